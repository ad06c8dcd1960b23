package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// CallTool runs an internal tool, one that no model is offered, for the agent, session
// and turn that the handler of a hook or a tool was asked about. ctx is the handler's
// and bounds the call; args encode to a JSON object, nil means none.
//
// Policy judges the call with the principal internal:<plugin>, and denies what a user
// would have to approve. The result says how it went, also when it was denied, does
// not exist or failed. The error says that core did not answer: [bus.ErrUnavailable],
// [bus.ErrTimeout], after which the tool may have run, or that ctx is no handler's.
func CallTool(ctx context.Context, name string, args any) (tool.Result, error) {
	s, ok := ctx.Value(scopeKey{}).(scope)
	if !ok {
		return tool.Result{}, errors.New("calling an internal tool: the context is not that of a hook's or a tool's handler")
	}
	call := tool.InternalCall{Agent: s.ref.Agent, Session: s.ref.Session, Turn: s.turn, Caller: subject.Writer(s.room.plugin), Tool: name}
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
	answer, err := s.room.caller.Request(ctx, subject.Service(coreName, "call"), coreName, body)
	if err != nil {
		return tool.Result{}, fmt.Errorf("calling %s: %w", clip(name), err)
	}
	var r tool.Result
	if err := json.Unmarshal(answer, &r); err != nil {
		return tool.Result{}, fmt.Errorf("calling %s: the answer is not a tool result: %w", clip(name), err)
	}
	return r, nil
}

// coreName is core's name on the bus, as a service and as a responder.
const coreName = "core"

// scope is what a handler was asked about.
type scope struct {
	room *room
	ref  subject.Ref
	turn string
}

type scopeKey struct{}

func (s scope) in(ctx context.Context) context.Context { return context.WithValue(ctx, scopeKey{}, s) }
