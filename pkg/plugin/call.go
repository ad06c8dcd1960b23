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

// CallTool runs an internal tool, one that no model is offered, for the agent, session
// and turn that the hook was asked about. ctx bounds the call; args encode to a JSON
// object, nil means none.
//
// Policy judges the call with the principal internal:<plugin>, and denies what a user
// would have to approve. The result says how it went, also when the tool was denied, does
// not exist or failed. The error says that core did not answer: [bus.ErrUnavailable], or
// [bus.ErrTimeout], after which the tool may have run. A call that [Serve] did not make,
// such as one in a test, has no bus to ask: that is an error too.
func (c *HookCall[T]) CallTool(ctx context.Context, name string, args any) (tool.Result, error) {
	if c.room == nil || c.room.caller == nil {
		return tool.Result{}, errors.New("calling an internal tool: the hook was not asked over the bus")
	}
	call := tool.InternalCall{
		Agent: c.Agent, Session: c.Session, Turn: c.Turn, Caller: subject.Writer(c.room.plugin), Tool: name,
	}
	var err error
	if args != nil {
		if call.Args, err = json.Marshal(args); err != nil {
			return tool.Result{}, fmt.Errorf("the arguments of %s do not encode to JSON: %w", clip(name), err)
		}
	}
	body, err := json.Marshal(call)
	if err != nil {
		return tool.Result{}, fmt.Errorf("the arguments of %s do not encode to JSON: %w", clip(name), err)
	}
	answer, err := c.room.caller.Request(ctx, subject.Service(coreName, "call"), coreName, body)
	if err != nil {
		return tool.Result{}, fmt.Errorf("calling %s: %w", clip(name), err)
	}
	var r tool.Result
	if err := json.Unmarshal(answer, &r); err != nil {
		return tool.Result{}, fmt.Errorf("calling %s: the answer is not a tool result: %w", clip(name), err)
	}
	return r, nil
}
