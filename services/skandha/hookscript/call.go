package hookscript

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
)

// Fill returns arguments of a tool with the defaults of its schema, as core fills them in before the call runs.
// Arguments that do not fit the schema are returned as they are.
type Fill func(ctx context.Context, tool string, args json.RawMessage) (json.RawMessage, error)

// ruling is what the commands decide about a call.
type ruling struct {
	verdict
	from, to json.RawMessage // the arguments that they were asked about, and those that they want; ours
	used     bool
}

// maxCalls is how many calls are remembered.
const maxCalls = 1024

// calls remembers the rulings of calls that were shaped, so that their commands run once.
type calls struct {
	mu  sync.Mutex
	all *lru.Cache[string, ruling]
}

func newCalls() *calls {
	all, _ := lru.New[string, ruling](maxCalls) // fails only if the size is not positive
	return &calls{all: all}
}

func keyOf(c *plugin.HookCall[hook.ActData]) string {
	return string(c.Agent) + "/" + string(c.Session) + "/" + c.Data.Call + "/" + c.Data.Tool
}

func (c *calls) put(key string, r ruling) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.Add(key, r)
}

// take returns the ruling that a call's arguments came of. fresh is true for the first judgement alone: a
// later one, such as after a person's approval, asks the commands again.
func (c *calls) take(key string, args json.RawMessage) (r ruling, fresh, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok = c.all.Get(key)
	if !ok || !same(r.to, args) {
		return ruling{}, false, false
	}
	fresh = !r.used
	r.used = true
	c.all.Add(key, r)
	return r, fresh, true
}

// rule runs the commands for a call with the arguments.
func (r runner) rule(ctx context.Context, c *plugin.HookCall[hook.ActData], args json.RawMessage) (ruling, error) {
	out := ruling{from: args, to: args}
	t := toolOf(c.Data.Tool)
	theirs, err := t.theirs(args)
	if err != nil {
		out.verdict = denies("the hooks cannot be asked: %v", err)
		return out, nil
	}
	out.verdict, err = r.all(ctx, c.Envelope, input{Event: PreToolUse, Tool: t.Theirs, Input: theirs, Call: c.Data.Call})
	if err != nil || out.input == nil || same(out.input, theirs) {
		return out, err
	}
	if out.to, err = t.ours(out.input); err == nil && r.fill != nil {
		out.to, err = r.fill(ctx, c.Data.Tool, out.to)
	}
	if err != nil {
		out.verdict = denies("updatedInput cannot be used: %v", err)
	}
	return out, nil
}

// shape runs the commands, denies if they do, and applies the arguments that they want. Whether a person
// is asked is for judge to say.
func (r runner) shape(ctx context.Context, c *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
	v, err := r.rule(ctx, c, c.Data.Args)
	switch {
	case err != nil:
		return plugin.Reply{}, err
	case v.deny != "":
		return plugin.Deny(v.deny), nil
	}
	r.calls.put(keyOf(c), v)
	if same(v.to, v.from) {
		return plugin.Continue(), nil
	}
	data := c.Data
	data.Args = v.to
	return plugin.Replace(data), nil
}

// judge decides about a call as it is to run. Its arguments are those that the commands have made of others,
// and then pass only if that is still what they make of them; or others, and then the commands may not want any
// change.
func (r runner) judge(ctx context.Context, c *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
	v, fresh, ok := r.calls.take(keyOf(c), c.Data.Args)
	if !fresh {
		from := c.Data.Args
		if ok {
			from = v.from
		}
		var err error
		if v, err = r.rule(ctx, c, from); err != nil {
			return plugin.Reply{}, err
		}
	}
	switch {
	case v.deny != "":
		return plugin.Deny(v.deny), nil
	case !same(v.to, c.Data.Args):
		return plugin.Deny(fmt.Sprintf("the hooks want other arguments than those that would run: %s", shorten(string(v.to), maxReason/4))), nil
	case v.ask != "":
		return plugin.Confirm(hook.LevelWarn, v.ask), nil
	}
	return plugin.Continue(), nil
}
