package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
)

// HookCall is a request to a hook.
type HookCall[T any] struct {
	hook.Envelope   // agent, session, turn and deadline; Envelope.Data is the raw payload
	Data          T // the point's payload, a copy: to change it, pass the changed copy to [Replace]

	runtime *runtime // for CallTool
}

// HookFunc handles a hook point whose reply has an effect. The context ends at the
// deadline, after which the reply is ignored. An error or a panic is treated as the hook's
// on_error rule defines.
//
// If the same invocation arrives again with the same data, it gets the earlier reply
// without another call of the function.
type HookFunc[T any] func(ctx context.Context, call *HookCall[T]) (Reply, error)

// ObserverFunc handles a hook point whose reply has no effect.
type ObserverFunc[T any] func(ctx context.Context, call *HookCall[T]) error

// HookOption sets how a hook is called. [Manifest].Hooks, if set, overrides the options.
type HookOption func(*Hook)

// Deadline sets how long the hook may take to reply, in whole milliseconds; default 2 s,
// at most 60 s.
func Deadline(d time.Duration) HookOption { return func(h *Hook) { h.DeadlineMS = d.Milliseconds() } }

// WhenFailing sets the rule that applies if the hook fails, does not reply in time, or sends
// an invalid reply; default [hook.Deny] at before_act, [hook.Allow] elsewhere.
func WhenFailing(rule hook.OnErrorRule) HookOption { return func(h *Hook) { h.OnError = rule } }

// InMode requests a mode; the system's configuration overrides it.
func InMode(m hook.Mode) HookOption { return func(h *Hook) { h.Mode = m } }

// OnAgentStart adds a hook that observes that a core begins to serve an agent.
func OnAgentStart(f ObserverFunc[hook.AgentData], opts ...HookOption) Handler {
	return observer(hook.OnAgentStart, f, opts)
}

// BeforeSense adds a hook that is called for an input before it is perceived. [Replace]
// changes the text, [Deny] ends the input.
func BeforeSense(f HookFunc[hook.SenseData], opts ...HookOption) Handler {
	return asked(hook.BeforeSense, f, opts)
}

// AfterSense adds a hook that is called for perceptions. [Replace] may drop or annotate
// them, [Deny] ends the input.
func AfterSense(f HookFunc[hook.PerceptionsData], opts ...HookOption) Handler {
	return asked(hook.AfterSense, f, opts)
}

// BeforePlan adds a hook that is called before each request to the model. [Replace] may
// change the system prompt for this request, remove tools and add advice; [Deny] ends the
// turn.
func BeforePlan(f HookFunc[hook.PlanData], opts ...HookOption) Handler {
	return asked(hook.BeforePlan, f, opts)
}

// AfterPlan adds a hook that is called for the model's answer. [Replace] changes its text
// and calls, [Deny] ends the turn.
func AfterPlan(f HookFunc[hook.AfterPlanData], opts ...HookOption) Handler {
	return asked(hook.AfterPlan, f, opts)
}

// BeforeAct adds a hook that is called for a tool call before it runs: the place for a
// policy. [Replace] changes the arguments, [Deny] refuses the call, [Confirm] asks a
// person, and [Answer] skips the tool. If the plugin fails, the call is denied, unless
// [WhenFailing] says otherwise.
func BeforeAct(f HookFunc[hook.ActData], opts ...HookOption) Handler {
	return asked(hook.BeforeAct, f, opts)
}

// AfterAct adds a hook that is called for the result of a tool call. [Replace] changes the
// result, [Deny] withholds it.
func AfterAct(f HookFunc[hook.AfterActData], opts ...HookOption) Handler {
	return asked(hook.AfterAct, f, opts)
}

// BeforeReflect adds a hook that is called for an experience. [Replace] may set its notes.
func BeforeReflect(f HookFunc[hook.ReflectData], opts ...HookOption) Handler {
	return asked(hook.BeforeReflect, f, opts)
}

// AfterReflect adds a hook that observes an experience as it is recorded.
func AfterReflect(f ObserverFunc[hook.ReflectData], opts ...HookOption) Handler {
	return observer(hook.AfterReflect, f, opts)
}

// OnError adds a hook that observes failures of turns, tool calls, hooks and plugins; see
// [hook.ErrorData].
func OnError(f ObserverFunc[hook.ErrorData], opts ...HookOption) Handler {
	return observer(hook.OnError, f, opts)
}

// OnAgentStop adds a hook that observes that a core stops serving an agent.
func OnAgentStop(f ObserverFunc[hook.AgentData], opts ...HookOption) Handler {
	return observer(hook.OnAgentStop, f, opts)
}

type hookPart struct {
	declared Hook
	bind     func(*runtime) answerFunc
}

func observer[T any](p hook.Point, f ObserverFunc[T], opts []HookOption) Handler {
	if f == nil {
		return invalid("hooks", "the handler for %s is nil", p)
	}
	return asked(p, func(ctx context.Context, c *HookCall[T]) (Reply, error) { return Continue(), f(ctx, c) }, opts)
}

func asked[T any](p hook.Point, f HookFunc[T], opts []HookOption) Handler {
	if f == nil {
		return invalid("hooks", "the handler for %s is nil", p)
	}
	h := hookPart{declared: Hook{Point: p}}
	for _, o := range opts {
		o(&h.declared)
	}
	h.bind = func(r *runtime) answerFunc {
		seen := newMemo()
		return func(ctx context.Context, body []byte, yield func()) ([]byte, error) {
			call, err := decodeHook[T](p, body)
			if err != nil {
				return nil, err
			}
			// The same invocation with other data is a different request: an earlier
			// plugin of the chain may have replied differently.
			sum := sha256.Sum256(call.Envelope.Data)
			q := question{key: call.InvocationID + "\x00" + string(sum[:]), yield: yield}
			return seen.do(ctx, q, func() ([]byte, error) {
				return answerHook(ctx, r, call, f)
			})
		}
	}
	return handlerFunc(func(s *parts) { s.hooks = append(s.hooks, h) })
}

func decodeHook[T any](p hook.Point, body []byte) (*HookCall[T], error) {
	call := &HookCall[T]{}
	if err := json.Unmarshal(body, &call.Envelope); err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "the request is not an envelope (schemas/hooks/envelope.json): %v",
			err)
	}
	if call.Point != p {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "point is %q, want %q", clip(string(call.Point)), p)
	}
	if err := json.Unmarshal(call.Envelope.Data, &call.Data); err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "data does not fit %s: %v", p, err)
	}
	return call, nil
}

func answerHook[T any](ctx context.Context, r *runtime, call *HookCall[T], f HookFunc[T]) ([]byte, error) {
	ctx, cancel := withDeadline(ctx, call.Deadline)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("the request arrived too late: %w", err)
	}
	call.runtime = r
	reply, err := contain(r, "hook "+string(call.Point), func() (Reply, error) { return f(ctx, call) })
	if err != nil {
		return nil, err
	}
	out, err := reply.wire(call.Point, reflect.TypeFor[T]())
	if err != nil {
		return nil, bus.Errorf(bus.CodeInternal, "invalid reply of the hook: %v", err)
	}
	body, err := encode(out)
	if len(body) > hook.MaxReply {
		return nil, bus.Errorf(bus.CodeTooLarge, "the hook's reply has %d bytes, at most %d", len(body), hook.MaxReply)
	}
	return body, err
}

// Reply is the reply of a hook. The zero Reply is [Continue].
type Reply struct {
	verb    hook.Verb
	data    any
	reason  string
	warning *hook.Warning
}

// Continue returns a reply that continues with unchanged data.
func Continue() Reply { return Reply{} }

// Replace returns a reply that continues with other data, which must have the point's type,
// such as [hook.ActData] at before_act.
func Replace(data any) Reply { return Reply{verb: hook.Replace, data: data} }

// Stop returns a reply that ends the chain here and keeps the data unchanged.
func Stop() Reply { return Reply{verb: hook.Stop} }

// Deny returns a reply that denies. The model and the user see the reason.
func Deny(reason string) Reply { return Reply{verb: hook.DenyVerb, reason: reason} }

// Confirm returns a reply that asks a person for approval and shows them the message. It is
// valid only at before_act.
func Confirm(level hook.Level, message string) Reply {
	return Reply{verb: hook.Confirm, warning: &hook.Warning{Level: level, Message: message}}
}

// Answer returns a reply that skips the tool: the value, as JSON, becomes the data of its
// result. It is valid only at before_act.
func Answer(value any) Reply { return Reply{verb: hook.AnswerFor, data: value} }

// wire returns the reply in its wire format. A reply that core would reject is an error
// here, where the plugin's author sees it.
func (r Reply) wire(p hook.Point, payload reflect.Type) (hook.Reply, error) {
	out := hook.Reply{Verb: r.verb, Reason: r.reason, Warning: r.warning}
	switch r.verb {
	case "":
		out.Verb = hook.Continue
	case hook.DenyVerb:
		if out.Reason == "" {
			out.Reason = "denied without a reason" // core would reject an empty one, but a deny must hold
		}
	case hook.Confirm:
		if r.warning.Level == "" {
			out.Warning = &hook.Warning{Level: hook.LevelWarn, Message: r.warning.Message}
		}
		if r.warning.Message == "" {
			return out, fmt.Errorf("confirm has no message")
		}
	case hook.Replace:
		t := reflect.TypeOf(r.data)
		if t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t != payload {
			return out, fmt.Errorf("replace at %s requires a %v, got a %T", p, payload, r.data)
		}
	}
	if !p.Allows(out.Verb) {
		return out, fmt.Errorf("%s is not valid at %s", r.verb, p)
	}
	if r.verb != hook.Replace && r.verb != hook.AnswerFor {
		return out, nil
	}
	data, err := json.Marshal(r.data)
	if err != nil {
		return out, fmt.Errorf("%s: the data cannot be encoded as JSON: %w", r.verb, err)
	}
	out.Data = data
	return out, nil
}
