package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/tool"
)

// MaxResult is the largest encoded result of a tool, in bytes.
const MaxResult = bus.MaxClaimBytes

// Tool adds a tool. The schema of its arguments follows from A, a struct (see
// below), or from the option [Args]; struct{} means that it has none.
//
// The function gets arguments that fit the schema. What it returns becomes
// result.data, as JSON; a [tool.Result] is taken as it is. An error becomes a
// failure with code tool_failed, or with the code of a [*tool.Error] in it; that
// of a context that ended, timeout; a panic, internal; a result above
// [MaxResult], result_too_large.
//
// The context ends at the call's deadline and carries the call ([CallOf]). The
// same call and attempt may be asked twice, and is answered with the result it
// had, which is kept until some thousand further calls have come; it never runs
// twice in one process.
//
// # From struct to schema
//
// Names follow the json tag, embedded structs are flattened, and unknown
// properties are refused. A field is required unless it is a pointer, has
// omitempty, omitzero or a default, or is tagged required:"false"; required:"true"
// wins over all of that. Further tags: desc:"what the model reads",
// enum:"a,b,c", default:"…" (text, or JSON for all but strings), min:"…" and
// max:"…" (of a number, or the length of a string or slice). time.Time is a
// string of format date-time, []byte one in base64; json.RawMessage, any and what
// has an UnmarshalJSON of its own are any JSON value. Types that contain
// themselves, functions, channels, complex numbers and time.Duration (whose unit
// no model guesses) are errors that name the field.
func Tool[A, R any](name, description string, f func(ctx context.Context, args A) (R, error), opts ...ToolOption) Handler {
	if f == nil {
		return bad("tools", "the handler of %q is nil", clip(name))
	}
	t := toolPart{spec: tool.Spec{Name: name, Description: description}}
	for _, o := range opts {
		o(&t.spec)
	}
	if t.spec.Args == nil {
		schema, err := schemaFor[A]()
		if err != nil {
			return bad("tools", "the arguments of %q have no schema: %v", clip(name), err)
		}
		t.spec.Args = schema
	}
	t.run = func(ctx context.Context, raw json.RawMessage) (any, error) {
		var args A
		if len(bytes.TrimSpace(raw)) > 0 {
			if err := json.Unmarshal(raw, &args); err != nil {
				return tool.Failure(tool.CodeInvalidArgs, "the arguments do not fit; the tool did not run", err.Error()), nil
			}
		}
		return f(ctx, args)
	}
	return handlerFunc(func(p *parts) { p.tools = append(p.tools, t) })
}

// ToolOption declares more of a tool. [Manifest].Tools, when it is set, wins.
type ToolOption func(*tool.Spec)

// Args is the JSON Schema of the arguments, instead of the one that follows from
// the type.
func Args(schema json.RawMessage) ToolOption { return func(s *tool.Spec) { s.Args = schema } }

// Idempotent says that running it twice is the same as once: only then is a call
// repeated when nobody knows whether it ran.
func Idempotent() ToolOption { return func(s *tool.Spec) { s.Idempotent = true } }

// Internal keeps the tool from models; it is for the agent's own services.
func Internal() ToolOption { return func(s *tool.Spec) { s.Internal = true } }

// Risk says how bad a wrong call can be; default [tool.RiskLow].
func Risk(r tool.Risk) ToolOption { return func(s *tool.Spec) { s.Risk = r } }

// Permissions are what it needs, such as network.request: the rules of the policy
// name them. Where no rule does, a person is asked about network.* and fs.delete.
func Permissions(p ...string) ToolOption { return func(s *tool.Spec) { s.Permissions = p } }

// Scope names the arguments that say on what it acts, such as path, or method and
// url. A person who approves a call for the whole session binds each of them;
// without a scope only exactly the same call can be approved so.
func Scope(args ...string) ToolOption { return func(s *tool.Spec) { s.Scope = args } }

// Scenarios are the situations it is for, of [tool.Scenarios].
func Scenarios(tags ...string) ToolOption { return func(s *tool.Spec) { s.ScenarioTags = tags } }

// Timeout is how long a call may run, in whole milliseconds; default 60 s.
func Timeout(d time.Duration) ToolOption {
	return func(s *tool.Spec) { s.TimeoutMS = d.Milliseconds() }
}

type callKey struct{}

// CallOf is the call that a tool's context belongs to: its id (a good idempotency
// key towards other systems), attempt, session, turn and deadline.
func CallOf(ctx context.Context) (call tool.Call, ok bool) {
	call, ok = ctx.Value(callKey{}).(tool.Call)
	return call, ok
}

type toolPart struct {
	spec tool.Spec
	run  func(ctx context.Context, args json.RawMessage) (any, error)
}

func (t toolPart) bind(r *room) answerFunc {
	seen := newMemo()
	return func(ctx context.Context, body []byte, yield func()) ([]byte, error) {
		var call tool.Call
		if err := json.Unmarshal(body, &call); err != nil {
			return nil, bus.Errorf(bus.CodeInvalidArgument, "the question is no call (schemas/tool/call.json): %v", err)
		}
		switch {
		case call.Call == "" || call.Attempt == "":
			return nil, bus.Errorf(bus.CodeInvalidArgument, "call or attempt is missing")
		case call.Tool != t.spec.Name:
			return nil, bus.Errorf(bus.CodeInvalidArgument, "tool is %q, this runs %q", clip(call.Tool), t.spec.Name)
		}
		q := question{key: call.Call + "\x00" + call.Attempt, once: call.Deadline.Add(clockSlack), yield: yield}
		result, err := seen.do(ctx, q, func() ([]byte, error) { return t.answer(ctx, r, call) })
		if errors.Is(err, errForgotten) {
			return encode(tool.Failure(tool.CodeOutcomeUnknown,
				"the tool ran, but its result is no longer stored"))
		}
		return result, err
	}
}

// clockSlack is how far the clock may be set back during a call. A call is not run
// after its deadline, so it must be remembered until then.
const clockSlack = time.Minute

// answer runs the call. Its error says that it did not run.
func (t toolPart) answer(ctx context.Context, r *room, call tool.Call) ([]byte, error) {
	ctx, cancel := until(ctx, call.Deadline)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("the call came too late, the tool did not run: %w", err)
	}
	result := t.result(context.WithValue(ctx, callKey{}, call), r, call.Args)
	body, err := json.Marshal(result)
	if err != nil {
		body, err = encode(tool.Failure(tool.CodeInternal, "the tool did run, but its result does not encode to JSON: "+err.Error()))
	}
	if len(body) > MaxResult {
		body, err = encode(tool.Failure(tool.CodeTooLarge, fmt.Sprintf(
			"the tool did run, but its result has %d bytes, at most %d can be sent; ask for less at a time", len(body), MaxResult)))
	}
	return body, err
}

func (t toolPart) result(ctx context.Context, r *room, args json.RawMessage) tool.Result {
	panicked := true
	v, err := contain(r, "tool "+t.spec.Name, func() (any, error) {
		v, err := t.run(ctx, args)
		panicked = false
		return v, err
	})
	var failure *tool.Error
	switch {
	case panicked:
		return tool.Failure(tool.CodeInternal, err.Error())
	case errors.As(err, &failure):
		return tool.Result{Error: failure}
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return tool.Failure(tool.CodeTimeout, "the tool was stopped at its deadline: "+err.Error())
	case err != nil:
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	if result, ok := v.(tool.Result); ok {
		return sound(result)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return tool.Failure(tool.CodeInternal, "the tool did run, but its result does not encode to JSON: "+err.Error())
	}
	return tool.Result{Success: true, Data: data}
}

// sound makes a result that contradicts itself one that fits the schema.
func sound(r tool.Result) tool.Result {
	switch {
	case r.Success:
		r.Error = nil
	case r.Error == nil:
		r.Error = &tool.Error{Code: tool.CodeFailed, Message: "the tool says that it failed, and not why"}
	}
	return r
}
