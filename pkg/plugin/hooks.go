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

// HookCall is what a hook is asked with.
type HookCall[T any] struct {
	hook.Envelope   // who asks, about what, and until when; its Data is the raw form
	Data          T // the point's payload, a copy: change it and give it to [Replace]

	room *room // for CallTool
}

// HookFunc answers at a point that decides. The context ends at the deadline,
// after which the answer is not wanted. An error (or a panic) is answered as one
// and counts as the hook's on_error says.
//
// A hook may be asked again about the same invocation, with the same data: it is
// answered with the reply it had, and the function is not called.
type HookFunc[T any] func(ctx context.Context, call *HookCall[T]) (Reply, error)

// ObserverFunc is told at a point where no answer has an effect.
type ObserverFunc[T any] func(ctx context.Context, call *HookCall[T]) error

// HookOption declares how a hook is asked. [Manifest].Hooks, when it is set, wins.
type HookOption func(*Hook)

// Deadline is how long the hook may take to answer, in whole milliseconds;
// default 2 s, at most 60 s.
func Deadline(d time.Duration) HookOption { return func(h *Hook) { h.DeadlineMS = d.Milliseconds() } }

// WhenFailing says what no answer in time, or garbage, counts as; default
// [hook.Deny] at before_act, [hook.Allow] elsewhere.
func WhenFailing(rule hook.OnErrorRule) HookOption { return func(h *Hook) { h.OnError = rule } }

// InMode wishes for a mode; the system's configuration wins.
func InMode(m hook.Mode) HookOption { return func(h *Hook) { h.Mode = m } }

// OnAgentStart is told that a core begins to serve an agent.
func OnAgentStart(f ObserverFunc[hook.AgentData], opts ...HookOption) Handler {
	return observer(hook.OnAgentStart, f, opts)
}

// BeforeSense is asked about an input before it is perceived. Replace changes the
// text, deny ends the input.
func BeforeSense(f HookFunc[hook.SenseData], opts ...HookOption) Handler {
	return asked(hook.BeforeSense, f, opts)
}

// AfterSense is asked about perceptions. Replace may drop or annotate them, deny
// ends the input.
func AfterSense(f HookFunc[hook.PerceptionsData], opts ...HookOption) Handler {
	return asked(hook.AfterSense, f, opts)
}

// BeforePlan is asked before the model is. Replace may change the system prompt
// for this question, remove tools and give advice; deny ends the turn.
func BeforePlan(f HookFunc[hook.PlanData], opts ...HookOption) Handler {
	return asked(hook.BeforePlan, f, opts)
}

// AfterPlan is asked about the model's answer. Replace changes text and calls,
// deny ends the turn.
func AfterPlan(f HookFunc[hook.AfterPlanData], opts ...HookOption) Handler {
	return asked(hook.AfterPlan, f, opts)
}

// BeforeAct is asked about a tool call before it runs: the place for a policy.
// Replace changes the arguments, deny refuses, confirm asks a person, answer
// skips the tool. A plugin that fails here denies, unless [WhenFailing] says
// otherwise.
func BeforeAct(f HookFunc[hook.ActData], opts ...HookOption) Handler {
	return asked(hook.BeforeAct, f, opts)
}

// AfterAct is asked about a call's result. Replace changes the result, deny
// withholds it.
func AfterAct(f HookFunc[hook.AfterActData], opts ...HookOption) Handler {
	return asked(hook.AfterAct, f, opts)
}

// BeforeReflect is asked about an experience. Replace may set its notes.
func BeforeReflect(f HookFunc[hook.ReflectData], opts ...HookOption) Handler {
	return asked(hook.BeforeReflect, f, opts)
}

// AfterReflect is told of an experience as it is recorded.
func AfterReflect(f ObserverFunc[hook.ReflectData], opts ...HookOption) Handler {
	return observer(hook.AfterReflect, f, opts)
}

// OnError observes failures: of turns, tool calls, hooks and plugins; see [hook.ErrorData].
func OnError(f ObserverFunc[hook.ErrorData], opts ...HookOption) Handler {
	return observer(hook.OnError, f, opts)
}

// OnAgentStop is told that a core stops serving an agent.
func OnAgentStop(f ObserverFunc[hook.AgentData], opts ...HookOption) Handler {
	return observer(hook.OnAgentStop, f, opts)
}

type hookPart struct {
	declared Hook
	bind     func(*room) answerFunc
}

func observer[T any](p hook.Point, f ObserverFunc[T], opts []HookOption) Handler {
	if f == nil {
		return bad("hooks", "the handler for %s is nil", p)
	}
	return asked(p, func(ctx context.Context, c *HookCall[T]) (Reply, error) { return Continue(), f(ctx, c) }, opts)
}

func asked[T any](p hook.Point, f HookFunc[T], opts []HookOption) Handler {
	if f == nil {
		return bad("hooks", "the handler for %s is nil", p)
	}
	h := hookPart{declared: Hook{Point: p}}
	for _, o := range opts {
		o(&h.declared)
	}
	h.bind = func(r *room) answerFunc {
		seen := newMemo()
		return func(ctx context.Context, body []byte, yield func()) ([]byte, error) {
			call, err := decodeHook[T](p, body)
			if err != nil {
				return nil, err
			}
			// The same invocation with other data is another question: an earlier
			// plugin of the chain may have changed its mind.
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
		return nil, bus.Errorf(bus.CodeInvalidArgument, "the question is no envelope (schemas/hooks/envelope.json): %v", err)
	}
	if call.Point != p {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "point is %q, this is asked at %s", clip(string(call.Point)), p)
	}
	if err := json.Unmarshal(call.Envelope.Data, &call.Data); err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "data is not that of %s: %v", p, err)
	}
	return call, nil
}

func answerHook[T any](ctx context.Context, r *room, call *HookCall[T], f HookFunc[T]) ([]byte, error) {
	ctx, cancel := until(ctx, call.Deadline)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("the question came too late: %w", err)
	}
	call.room = r
	reply, err := contain(r, "hook "+string(call.Point), func() (Reply, error) { return f(ctx, call) })
	if err != nil {
		return nil, err
	}
	out, err := reply.wire(call.Point, reflect.TypeFor[T]())
	if err != nil {
		return nil, bus.Errorf(bus.CodeInternal, "the hook's reply makes no sense: %v", err)
	}
	body, err := encode(out)
	if len(body) > hook.MaxReply {
		return nil, bus.Errorf(bus.CodeTooLarge, "the hook's reply has %d bytes, at most %d are read", len(body), hook.MaxReply)
	}
	return body, err
}

// Reply is what a hook answers. The zero Reply is [Continue].
type Reply struct {
	verb    hook.Verb
	data    any
	reason  string
	warning *hook.Warning
}

// Continue goes on with what there is.
func Continue() Reply { return Reply{} }

// Replace goes on with the data, which must be of the point's own type, such as
// [hook.ActData] at before_act.
func Replace(data any) Reply { return Reply{verb: hook.Replace, data: data} }

// Stop ends the chain here and keeps the data as it is.
func Stop() Reply { return Reply{verb: hook.Stop} }

// Deny says no, and to the model and the person why.
func Deny(reason string) Reply { return Reply{verb: hook.DenyVerb, reason: reason} }

// Confirm has a person asked, who is shown the message. At before_act alone.
func Confirm(level hook.Level, message string) Reply {
	return Reply{verb: hook.Confirm, warning: &hook.Warning{Level: level, Message: message}}
}

// Answer skips the tool: the value, as JSON, is what its result holds. At
// before_act alone.
func Answer(value any) Reply { return Reply{verb: hook.AnswerFor, data: value} }

// wire is the reply as it crosses the bus. A reply that core would take for
// garbage is an error here, where its author looks.
func (r Reply) wire(p hook.Point, payload reflect.Type) (hook.Reply, error) {
	out := hook.Reply{Verb: r.verb, Reason: r.reason, Warning: r.warning}
	switch r.verb {
	case "":
		out.Verb = hook.Continue
	case hook.DenyVerb:
		if out.Reason == "" {
			out.Reason = "denied without a reason" // an empty one would be garbage, and a deny must hold
		}
	case hook.Confirm:
		if r.warning.Level == "" {
			out.Warning = &hook.Warning{Level: hook.LevelWarn, Message: r.warning.Message}
		}
		if r.warning.Message == "" {
			return out, fmt.Errorf("confirm has no message to show to the person")
		}
	case hook.Replace:
		t := reflect.TypeOf(r.data)
		if t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t != payload {
			return out, fmt.Errorf("replace at %s wants a %v, got a %T", p, payload, r.data)
		}
	}
	if !p.Allows(out.Verb) {
		return out, fmt.Errorf("%s means nothing at %s", r.verb, p)
	}
	if r.verb != hook.Replace && r.verb != hook.AnswerFor {
		return out, nil
	}
	data, err := json.Marshal(r.data)
	if err != nil {
		return out, fmt.Errorf("%s: the data does not encode to JSON: %w", r.verb, err)
	}
	out.Data = data
	return out, nil
}
