package hookscript

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/services/internal/program"
)

// input is what a command gets on standard input.
type input struct {
	SessionID  string          `json:"session_id"`
	Transcript string          `json:"transcript_path"` // empty: the conversation is in the log
	Cwd        string          `json:"cwd"`
	Mode       string          `json:"permission_mode"`
	Event      string          `json:"hook_event_name"`
	Tool       string          `json:"tool_name,omitempty"`
	Input      json.RawMessage `json:"tool_input,omitempty"`
	Call       string          `json:"tool_use_id,omitempty"`
	Response   any             `json:"tool_response,omitempty"`
	Prompt     string          `json:"prompt,omitempty"`
}

// Handlers returns the hooks that run the commands, of two plugins; those of events without commands are left
// out. shape applies the arguments that PreToolUse commands want; judge decides about the call that came of
// it, and has all other hooks. A call that shape was not asked about, such as while it is away, is denied by judge
// if a command wants other arguments. Without fill, so is a call whose defaults a command leaves out.
func (s *Script) Handlers(fill Fill) (judge, shape plugin.Handlers) {
	r := newRunner(s)
	r.fill = fill
	add := func(to *plugin.Handlers, event string, handler func(...plugin.HookOption) plugin.Handler) {
		var longest time.Duration
		for _, c := range s.of(event, "") {
			longest = max(longest, c.Timeout)
		}
		if longest > 0 { // time to kill what takes too long, and to answer
			*to = append(*to, handler(plugin.Deadline(longest+2*program.KillWait), plugin.WhenFailing(hook.Deny)))
		}
	}
	add(&shape, PreToolUse, func(o ...plugin.HookOption) plugin.Handler { return plugin.BeforeAct(r.shape, o...) })
	add(&judge, PreToolUse, func(o ...plugin.HookOption) plugin.Handler { return plugin.BeforeAct(r.judge, o...) })
	add(&judge, PostToolUse, func(o ...plugin.HookOption) plugin.Handler { return plugin.AfterAct(r.after, o...) })
	add(&judge, UserPromptSubmit, func(o ...plugin.HookOption) plugin.Handler { return plugin.AfterSense(r.sensed, o...) })
	add(&judge, Stop, func(o ...plugin.HookOption) plugin.Handler { return plugin.AfterReflect(r.ended, o...) })
	return judge, shape
}

type runner struct {
	script *Script
	calls  *calls
	fill   Fill
}

func newRunner(s *Script) runner { return runner{script: s, calls: newCalls()} }

// all runs the commands of an event that match, at once, and combines what they decide.
func (r runner) all(ctx context.Context, e hook.Envelope, in input) (v verdict, err error) {
	commands := r.script.of(in.Event, in.Tool)
	if len(commands) == 0 {
		return v, nil
	}
	in.SessionID, in.Cwd, in.Mode = string(e.Session), r.script.Dir, "default"
	body, err := json.Marshal(in)
	if err != nil {
		return v, err
	}
	all := make([]verdict, len(commands))
	var running sync.WaitGroup
	for i, c := range commands {
		running.Go(func() { all[i] = c.run(ctx, r.script.Dir, body) })
	}
	running.Wait()
	for _, one := range all {
		if v.deny == "" {
			v.deny = one.deny
		}
		v.ask = join(v.ask, one.ask)
		v.context = join(v.context, one.context)
		switch {
		case one.input == nil:
		case v.input == nil:
			v.input = one.input
		case !same(v.input, one.input) && v.deny == "":
			v.deny = "two hooks want other arguments, and not the same"
		}
	}
	return v, nil
}

func join(a, b string) string { return strings.TrimSpace(a + "\n" + b) }

// same compares JSON. Numbers are the same if they are written so.
func same(a, b json.RawMessage) bool {
	x, err := canonical(a)
	y, also := canonical(b)
	return err == nil && also == nil && bytes.Equal(x, y)
}

func canonical(body json.RawMessage) ([]byte, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// after decides about a result.
func (r runner) after(ctx context.Context, c *plugin.HookCall[hook.AfterActData]) (plugin.Reply, error) {
	t := toolOf(c.Data.Tool)
	args, err := t.theirs(c.Data.Args)
	if err != nil {
		return plugin.Deny(fmt.Sprintf("the hooks cannot be asked: %v", err)), nil
	}
	v, err := r.all(ctx, c.Envelope,
		input{Event: PostToolUse, Tool: t.Theirs, Input: args, Call: c.Data.Call, Response: c.Data.Result})
	if err == nil && v.deny != "" {
		return plugin.Deny(v.deny), nil
	}
	return plugin.Continue(), err
}

// sensed decides about an input, and adds context for the model.
func (r runner) sensed(ctx context.Context, c *plugin.HookCall[hook.PerceptionsData]) (plugin.Reply, error) {
	data := c.Data
	changed := false
	for i, p := range data.Perceptions {
		v, err := r.all(ctx, c.Envelope, input{Event: UserPromptSubmit, Prompt: p.Text})
		if err != nil {
			return plugin.Reply{}, err
		}
		if v.deny != "" {
			return plugin.Deny(v.deny), nil
		}
		if v.context != "" {
			data.Perceptions[i].Annotations = append(data.Perceptions[i].Annotations, shorten(v.context, maxReason))
			changed = true
		}
	}
	if changed {
		return plugin.Replace(data), nil
	}
	return plugin.Continue(), nil
}

// ended runs what is to run after a turn. What it decides has no effect.
func (r runner) ended(ctx context.Context, c *plugin.HookCall[hook.ReflectData]) error {
	_, err := r.all(ctx, c.Envelope, input{Event: Stop})
	return err
}
