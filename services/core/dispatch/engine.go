// Package dispatch is the hook engine: it asks the plugins registered at a hook
// point, over the bus, and folds their answers into one decision.
//
// A plugin is asked with a request to hook.<point>.<plugin> and answers on
// reply.core.<plugin>.…; no other plugin can answer for it. Questions that are
// open when the connection is lost are sent again after the reconnect. A missing
// answer, a missing plugin and an invalid answer are failures, and the hook's on_error
// decides what they count as. A plugin that fails [Config.SuspendAfter] times in a row
// is suspended, with a notice: it is no longer asked, and a hook that denies on error
// continues to deny.
//
// At before_act there are two phases. First the plugins shape the call, each one seeing
// the result of its predecessor. Then [HookSet.JudgeIn] asks about the call in the form in
// which it will run, all plugins at once: the judges named by the configuration, and every
// plugin that was asked about a different call or, because of a stop, an answer or a
// used-up budget, was not asked at all. If a plugin is not connected but its lease has not
// ended, the engine waits for it, because it may be about to reconnect.
//
// With no plugin at a point, the engine builds and sends nothing.
package dispatch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
)

// The defaults.
const (
	DefaultBudget       = 10 * time.Second
	DefaultSuspendAfter = 5
)

// Hooked is one plugin at one point.
type Hooked struct {
	Plugin  subject.Plugin
	Point   hook.Point
	Mode    hook.Mode        // default: the point's
	OnError hook.OnErrorRule // default: the point's
	// OnSilence applies if the plugin gives no answer at all, because it is suspended, not
	// connected or late. Default: OnError.
	OnSilence hook.OnErrorRule
	Deadline  time.Duration // default: hook.DefaultDeadline
	// Judge is set if the configuration names the plugin at before_act. It is asked only in
	// the second phase, and cannot change the call.
	Judge bool
	// Required is set if the configuration names the plugin at another point. It is asked
	// after the others, whatever they answered, unless they denied.
	Required bool
	// Unasked is the reason why the plugin is listed but not asked: it is suspended, or
	// required and missing. Each time it would be asked counts as a failure.
	Unasked string
}

// hooked is a Hooked with its precomputed subject.
type hooked struct {
	Hooked
	subject string
}

func (h Hooked) withDefaults() Hooked {
	if h.Mode == "" {
		h.Mode = h.Point.DefaultMode()
	}
	if h.OnError == "" {
		h.OnError = h.Point.DefaultOnError()
	}
	h.OnSilence = cmp.Or(h.OnSilence, h.OnError)
	if h.Deadline <= 0 {
		h.Deadline = hook.DefaultDeadline
	}
	return h
}

// ErrAbsent is the error of an answer if no plugin listened for the question.
var ErrAbsent = errors.New("it is not connected")

// Ask sends requests to plugins and waits for the answers; see [bus.Caller.RequestAll].
type Ask func(ctx context.Context, questions []bus.Question) []bus.Answer

// Config of an engine.
type Config struct {
	Ask Ask
	// Serves reports whether a plugin may be asked about an agent. Default: always true.
	Serves func(p subject.Plugin, a subject.Agent) bool
	// Allows reports whether a plugin may answer with a verb at a point. Default: always true.
	Allows func(p subject.Plugin, at hook.Point, v hook.Verb) bool
	// Observes reports whether a plugin may change nothing at a point. Nobody waits for its answer there.
	// Default: always false.
	Observes func(p subject.Plugin, at hook.Point) bool
	// Reachable reports whether this process is connected to the bus. While it is not,
	// failures do not count against plugins. Default: always true.
	Reachable func() bool
	// SuspendAfter is how many failures in a row suspend a plugin; default 5,
	// negative: never.
	SuspendAfter int
	// Suspend suspends a plugin. It is called once per suspension, in a new goroutine.
	Suspend func(p subject.Plugin, reason string)
	// Failed is called for each failure of a hook, except at on_error itself, in a new
	// goroutine. Default: none.
	Failed func(env hook.Envelope, p subject.Plugin, err error)
	Log    *slog.Logger
}

// Engine asks plugins. Make one with [New].
type Engine struct {
	cfg   Config
	hooks atomic.Pointer[HookSet]
	stats stats
	blame blame
	noted noted
	open  chan struct{} // the questions to observers that have no answer yet
}

// New makes an engine without plugins.
func New(cfg Config) *Engine {
	cfg.SuspendAfter = cmp.Or(cfg.SuspendAfter, DefaultSuspendAfter)
	if cfg.Reachable == nil {
		cfg.Reachable = func() bool { return true }
	}
	if cfg.Serves == nil {
		cfg.Serves = func(subject.Plugin, subject.Agent) bool { return true }
	}
	if cfg.Allows == nil {
		cfg.Allows = func(subject.Plugin, hook.Point, hook.Verb) bool { return true }
	}
	if cfg.Observes == nil {
		cfg.Observes = func(subject.Plugin, hook.Point) bool { return false }
	}
	if cfg.Suspend == nil {
		cfg.Suspend = func(subject.Plugin, string) {}
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	e := &Engine{cfg: cfg, open: make(chan struct{}, maxOpen)}
	e.hooks.Store(&HookSet{engine: e})
	return e
}

// HookSet holds the plugins registered at every point. It is immutable: a decision that
// uses one sees the same plugins throughout.
type HookSet struct {
	engine *Engine
	points map[hook.Point]*point
}

// point holds the plugins of one point in their order, split into segments: each plugin of
// a chain is a segment, and adjacent parallel plugins share one. Judges are in no segment.
type point struct {
	budget   time.Duration
	hooks    []Hooked
	segments [][]hooked
	judged   []hooked // all of hooks, in their order
}

// NewHookSet builds a set of plugins, listed in the order in which they are asked. A budget
// bounds all plugins of a point together; default [DefaultBudget].
func (e *Engine) NewHookSet(hooks []Hooked, budgets map[hook.Point]time.Duration) *HookSet {
	t := &HookSet{engine: e, points: map[hook.Point]*point{}}
	for _, h := range hooks {
		h = h.withDefaults()
		p := t.points[h.Point]
		if p == nil {
			p = &point{budget: budgets[h.Point]}
			if p.budget <= 0 {
				p.budget = DefaultBudget
			}
			t.points[h.Point] = p
		}
		one := hooked{h, subject.Hook(string(h.Point), h.Plugin)}
		n := len(p.segments) - 1
		switch {
		case h.Judge:
		case h.Mode == hook.Parallel && n >= 0 && p.segments[n][0].Mode == hook.Parallel &&
			p.segments[n][0].Required == h.Required:
			p.segments[n] = append(p.segments[n], one)
		default:
			p.segments = append(p.segments, []hooked{one})
		}
		p.hooks, p.judged = append(p.hooks, h), append(p.judged, one)
	}
	return t
}

// Set makes t the current set, which [Engine.HookSet] returns. For a plugin that can be
// asked again, the count of failures restarts.
func (e *Engine) Set(t *HookSet) {
	old := e.hooks.Swap(t)
	before := old.askable()
	for k := range t.askable() {
		if !before[k] {
			e.blame.clear(k)
		}
	}
}

func (t *HookSet) askable() map[key]bool {
	out := map[key]bool{}
	for at, p := range t.points {
		for _, h := range p.hooks {
			if h.Unasked == "" {
				out[key{at, h.Plugin}] = true
			}
		}
	}
	return out
}

// HookSet returns the current set.
func (e *Engine) HookSet() *HookSet { return e.hooks.Load() }

// Any implements decide.Hooks.
func (t *HookSet) Any(p hook.Point) bool { return t.points[p] != nil }

// Hooks lists the plugins of a point in the order in which they are asked.
func (t *HookSet) Hooks(p hook.Point) []Hooked {
	if at := t.points[p]; at != nil {
		return at.hooks
	}
	return nil
}

// Budget returns the time limit for all plugins of a point together.
func (t *HookSet) Budget(p hook.Point) time.Duration {
	if at := t.points[p]; at != nil {
		return at.budget
	}
	return DefaultBudget
}
