package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// coreName is core's name on the bus, as a service and as a responder.
const coreName = "core"

// CallTool runs an internal tool (one that is not offered to models) for the agent, session
// and turn of the hook's call. The args must encode to a JSON object; nil means none. ctx
// limits how long CallTool waits.
//
// Policy judges the call with the principal internal:<plugin>, and denies it if it would
// need a person's approval. If the tool was denied, does not exist or failed, the result
// reports it. CallTool returns an error if core did not answer: [bus.ErrUnavailable], or
// [bus.ErrTimeout], after which the tool may have run. It also returns an error if the
// HookCall was not made by [Serve] but, for example, by a test.
func (c *HookCall[T]) CallTool(ctx context.Context, name string, args any) (tool.Result, error) {
	if c.runtime == nil || c.runtime.caller == nil {
		return tool.Result{}, errors.New("calling an internal tool: the hook was not called over the bus")
	}
	call := tool.InternalCall{
		Agent: c.Agent, Session: c.Session, Turn: c.Turn, Caller: subject.Writer(c.runtime.plugin), Tool: name,
	}
	var err error
	if args != nil {
		if call.Args, err = json.Marshal(args); err != nil {
			return tool.Result{}, fmt.Errorf("the arguments of %s cannot be encoded as JSON: %w", clip(name), err)
		}
	}
	body, err := json.Marshal(call)
	if err != nil {
		return tool.Result{}, fmt.Errorf("the arguments of %s cannot be encoded as JSON: %w", clip(name), err)
	}
	answer, err := c.runtime.caller.Request(ctx, subject.Call(call.Caller), coreName, body)
	if err != nil {
		return tool.Result{}, fmt.Errorf("calling %s: %w", clip(name), err)
	}
	var r tool.Result
	if err := json.Unmarshal(answer, &r); err != nil {
		return tool.Result{}, fmt.Errorf("calling %s: the answer is not a tool result: %w", clip(name), err)
	}
	return r, nil
}
