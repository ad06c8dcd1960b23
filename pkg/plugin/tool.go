package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/tool"
)

// MaxResult is the largest encoded result of a tool, in bytes.
const MaxResult = bus.MaxClaimBytes

// Tool adds a tool. The schema of its arguments is derived from A, a struct (see below), or
// set by the option [Args]. Use struct{} for a tool without arguments.
//
// The function receives arguments that fit the schema. Its return value becomes
// result.data, as JSON; a [tool.Result] is used unchanged. An error becomes a failure with
// code tool_failed, or with the code of the [*tool.Error] that it wraps. After the deadline
// the code is timeout, after a panic internal, and for a result larger than [MaxResult]
// result_too_large.
//
// The context ends at the call's deadline and carries the call ([CallOf]). The same call and
// attempt may arrive twice. It never runs twice in one process: the second request gets the
// earlier result, which is kept for some thousand further calls.
//
// # From struct to schema
//
// Names follow the json tag, embedded structs are flattened, and unknown properties are
// rejected. A field is required unless it is a pointer, has omitempty, omitzero or a
// default, or is tagged required:"false"; required:"true" overrides all of that.
//
// Further tags are desc:"description for the model", enum:"a,b,c", default:"…" (text for
// strings, JSON for other types), min:"…" and max:"…" (of a number, or of the length of a
// string or slice).
//
// A time.Time is a string of format date-time, and a []byte is a base64 string.
// json.RawMessage, any, and types that implement json.Unmarshaler accept any JSON value.
// Recursive types, functions, channels, complex numbers and time.Duration (a model cannot
// know its unit) are errors that name the field.
func Tool[A, R any](
	name, description string, f func(ctx context.Context, args A) (R, error), opts ...ToolOption,
) Handler {
	if f == nil {
		return invalid("tools", "the handler for %q is nil", clip(name))
	}
	t := toolPart{spec: tool.Spec{Name: name, Description: description}}
	for _, o := range opts {
		o(&t.spec)
	}
	if t.spec.Args == nil {
		schema, err := schemaFor[A]()
		if err != nil {
			return invalid("tools", "cannot derive a schema for the arguments of %q: %v", clip(name), err)
		}
		t.spec.Args = schema
	}
	t.run = decoded(f)
	return handlerFunc(func(p *parts) { p.tools = append(p.tools, t) })
}

// toolFunc runs or probes a call with these arguments.
type toolFunc func(ctx context.Context, args json.RawMessage) (any, error)

func decoded[A, R any](f func(ctx context.Context, args A) (R, error)) toolFunc {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var args A
		if len(bytes.TrimSpace(raw)) > 0 {
			if err := json.Unmarshal(raw, &args); err != nil {
				return tool.Failure(tool.CodeInvalidArgs, "invalid arguments; the tool was not run", err.Error()), nil
			}
		}
		return f(ctx, args)
	}
}

// ToolOption sets a field of a tool's spec. [Manifest].Tools, if set, overrides the options.
type ToolOption func(*tool.Spec)

// Args sets the JSON Schema of the arguments, instead of the one that is derived from the
// type.
func Args(schema json.RawMessage) ToolOption { return func(s *tool.Spec) { s.Args = schema } }

// Idempotent declares that running a call twice has the same effect as running it once.
// Only then is a call repeated when it is unknown whether it ran.
func Idempotent() ToolOption { return func(s *tool.Spec) { s.Idempotent = true } }

// Internal hides the tool from models; only services and hooks can call it.
func Internal() ToolOption { return func(s *tool.Spec) { s.Internal = true } }

// Risk sets how much harm a wrong call can do; default [tool.RiskLow].
func Risk(r tool.Risk) ToolOption { return func(s *tool.Spec) { s.Risk = r } }

// Permissions sets the permissions that the tool needs, such as network.request. The rules
// of the policy refer to them. Without a matching rule, calls that need network.* or
// fs.delete require a person's approval.
func Permissions(p ...string) ToolOption { return func(s *tool.Spec) { s.Permissions = p } }

// Scope names the arguments that identify what the tool acts on, such as path, or method
// and url. If a person approves a call for the whole session, the approval is bound to each
// of these arguments; without a scope, it covers only identical calls.
func Scope(args ...string) ToolOption { return func(s *tool.Spec) { s.Scope = args } }

// Scenarios sets the situations that the tool is for; see [tool.Scenarios].
func Scenarios(tags ...string) ToolOption { return func(s *tool.Spec) { s.ScenarioTags = tags } }

// Timeout sets how long a call may run, in whole milliseconds; default 60 s.
func Timeout(d time.Duration) ToolOption {
	return func(s *tool.Spec) { s.TimeoutMS = d.Milliseconds() }
}

// Probe adds to the tool with the name, which must be one of the handlers, the function that finds
// out what became of an earlier call, so that its outcome does not stay unknown. [CallOf] returns
// the call, with the Key under which the other system may know it and with Probe set. The
// function returns the result of the earlier call; a [*tool.Error] with code not_run if that
// certainly had no effect and never will; or any other error if it cannot find out. It must not
// have an effect itself, except one that the other system recognizes by the key as a repetition.
func Probe[A, R any](name string, f func(ctx context.Context, args A) (R, error)) Handler {
	if f == nil {
		return invalid("tools", "the probe of %q is nil", clip(name))
	}
	return handlerFunc(func(p *parts) {
		p.probes = append(p.probes, probePart{name, decoded(f)})
	})
}

type probePart struct {
	tool string
	run  toolFunc
}

// attach gives the tools their probes.
func (p *parts) attach() (found Problems) {
	for _, probe := range p.probes {
		i := slices.IndexFunc(p.tools, func(t toolPart) bool { return t.spec.Name == probe.tool })
		if i < 0 {
			found = append(found, Problem{"tools", fmt.Sprintf("a probe is for the tool %q, which has no handler", clip(probe.tool))})
			continue
		}
		p.tools[i].spec.Probe, p.tools[i].probe = true, probe.run
	}
	return found
}

type callKey struct{}

// CallOf returns the call that a tool's context belongs to, with its key (an idempotency key for
// other systems), id, attempt, session, turn and deadline.
func CallOf(ctx context.Context) (call tool.Call, ok bool) {
	call, ok = ctx.Value(callKey{}).(tool.Call)
	return call, ok
}

type toolPart struct {
	spec  tool.Spec
	run   toolFunc
	probe toolFunc // nil: none
}

func (t toolPart) bind(r *runtime) answerFunc {
	seen := newMemo()
	return func(ctx context.Context, body []byte, yield func()) ([]byte, error) {
		var call tool.Call
		if err := json.Unmarshal(body, &call); err != nil {
			return nil, bus.Errorf(bus.CodeInvalidArgument, "the request is not a tool call (schemas/tool/call.json): %v", err)
		}
		switch {
		case call.Call == "" || call.Attempt == "":
			return nil, bus.Errorf(bus.CodeInvalidArgument, "call or attempt is missing")
		case call.Tool != t.spec.Name:
			return nil, bus.Errorf(bus.CodeInvalidArgument, "tool is %q, want %q", clip(call.Tool), t.spec.Name)
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

// answer runs the call. If it returns an error, the tool did not run.
func (t toolPart) answer(ctx context.Context, r *runtime, call tool.Call) ([]byte, error) {
	ctx, cancel := withDeadline(ctx, call.Deadline)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("the call arrived too late; the tool was not run: %w", err)
	}
	run := t.run
	if call.Probe != nil {
		if run = t.probe; run == nil {
			return nil, bus.Errorf(bus.CodeInvalidArgument, "the tool %q has no probe", clip(t.spec.Name))
		}
	}
	result := t.result(context.WithValue(ctx, callKey{}, call), r, run, call.Args)
	body, err := json.Marshal(result)
	if err != nil {
		body, err = encode(tool.Failure(tool.CodeInternal,
			"the tool ran, but its result cannot be encoded as JSON: "+err.Error()))
	}
	if len(body) > MaxResult {
		body, err = encode(tool.Failure(tool.CodeTooLarge, fmt.Sprintf(
			"the tool ran, but its result has %d bytes, at most %d can be sent; request less at a time", len(body), MaxResult)))
	}
	return body, err
}

func (t toolPart) result(ctx context.Context, r *runtime, run toolFunc, args json.RawMessage) tool.Result {
	panicked := true
	v, err := contain(r, "tool "+t.spec.Name, func() (any, error) {
		v, err := run(ctx, args)
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
		return consistent(result)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return tool.Failure(tool.CodeInternal, "the tool ran, but its result cannot be encoded as JSON: "+err.Error())
	}
	return tool.Result{Success: true, Data: data}
}

// consistent turns a result that contradicts itself into one that fits the schema.
func consistent(r tool.Result) tool.Result {
	switch {
	case r.Success:
		r.Error = nil
	case r.Error == nil:
		r.Error = &tool.Error{Code: tool.CodeFailed, Message: "the tool failed without giving a reason"}
	}
	return r
}
