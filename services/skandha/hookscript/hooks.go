package hookscript

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
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

// maxRewrites is how many calls whose arguments were changed are remembered.
const maxRewrites = 1024

// Handlers returns the hooks that run the commands; those of events without commands are left out.
func (s *Script) Handlers() plugin.Handlers {
	rewritten, _ := lru.New[string, []byte](maxRewrites) // fails only if the size is not positive
	r := runner{s, rewritten}
	var out plugin.Handlers
	add := func(event string, handler func(...plugin.HookOption) plugin.Handler) {
		var longest time.Duration
		for _, c := range s.of(event, "") {
			longest = max(longest, c.Timeout)
		}
		if longest > 0 { // time to kill what takes too long, and to answer
			out = append(out, handler(plugin.Deadline(longest+2*killWait), plugin.WhenFailing(hook.Deny)))
		}
	}
	add(PreToolUse, func(o ...plugin.HookOption) plugin.Handler { return plugin.BeforeAct(r.before, o...) })
	add(PostToolUse, func(o ...plugin.HookOption) plugin.Handler { return plugin.AfterAct(r.after, o...) })
	add(UserPromptSubmit, func(o ...plugin.HookOption) plugin.Handler { return plugin.AfterSense(r.sensed, o...) })
	add(Stop, func(o ...plugin.HookOption) plugin.Handler { return plugin.AfterReflect(r.ended, o...) })
	return out
}

type runner struct {
	script    *Script
	rewritten *lru.Cache[string, []byte] // the arguments that a call got, by its id
}

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

func same(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, err := json.Marshal(x)
	q, also := json.Marshal(y)
	return err == nil && also == nil && bytes.Equal(p, q)
}

// before decides about a call. If the configuration requires these hooks, they are asked again about
// arguments that they have changed: then they may deny the call, and change nothing more.
func (r runner) before(ctx context.Context, c *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
	t := toolOf(c.Data.Tool)
	args, err := t.theirs(c.Data.Args)
	if err != nil {
		return plugin.Deny(fmt.Sprintf("the hooks cannot be asked: %v", err)), nil
	}
	v, err := r.all(ctx, c.Envelope, input{Event: PreToolUse, Tool: t.Theirs, Input: args, Call: c.Data.Call})
	if err != nil {
		return plugin.Reply{}, err
	}
	key := string(c.Agent) + "/" + string(c.Session) + "/" + c.Data.Call
	was, again := r.rewritten.Get(key)
	again = again && same(was, c.Data.Args)
	switch {
	case v.deny != "":
		return plugin.Deny(v.deny), nil
	case v.input != nil && !again && !same(v.input, args) && v.ask != "":
		// The plugin would not be asked again about what it has changed, and nobody would be asked
		return plugin.Deny("the hooks change the arguments and ask a person at once, which is not supported: " + v.ask), nil
	case v.input != nil && !again && !same(v.input, args):
		to, err := t.ours(v.input)
		if err != nil {
			return plugin.Deny(fmt.Sprintf("updatedInput cannot be used: %v", err)), nil
		}
		r.rewritten.Add(key, to)
		data := c.Data
		data.Args = to
		return plugin.Replace(data), nil
	case v.ask != "":
		return plugin.Confirm(hook.LevelWarn, v.ask), nil
	}
	return plugin.Continue(), nil
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
