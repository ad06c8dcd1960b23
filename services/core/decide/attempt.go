package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/core/planner"
	"skandha.dev/services/internal/executor"
)

// OnCallAnswer decides about the outcome of an attempt at a call. Nil means no
// effect: the attempt is not the current one, it is still running, or no executor can
// run it again yet. In the last case retry is true, and the shell calls again later.
func OnCallAnswer(s *State, delivery uint64, a executor.Answer, env *Env) (d *Decision, retry bool) {
	if s.Turn == nil || !a.State.Final() {
		return nil, false
	}
	st := s.Turn.step(a.Call)
	if st == nil || st.Status != Assigned || st.Attempt != a.Attempt {
		return nil, false
	}
	b := start(s, delivery, event.Trigger{Kind: event.ByReply, Call: a.Call, Attempt: a.Attempt}, env.Now, env)
	b.touched = true
	c := *st
	var r tool.Result
	switch a.State {
	case executor.Never, executor.Refused:
		if !b.again(c, a) {
			return nil, true
		}
		b.advance()
		return b.done(), false
	case executor.Finished:
		r = c.resultOf(a)
	case executor.Stopped:
		r = tool.Failure(tool.CodeOutcomeUnknown, "it was stopped while it ran")
	default:
		r = tool.Failure(tool.CodeOutcomeUnknown, "it ran, but its result was lost")
	}
	if c.unsettled(r) {
		if !b.probe(c, a) {
			return nil, true
		}
	} else {
		b.completeFrom(c, r, a)
	}
	b.advance()
	return b.done(), false
}

// OnUnreachable decides about a call whose runner cannot be reached (rule 9). An
// idempotent call is attempted elsewhere; any other ends as outcome_unknown. That is
// final, so the shell first waits until start_by and the skew have passed.
func OnUnreachable(s *State, delivery uint64, call, attempt string, env *Env) (d *Decision, retry bool) {
	if s.Turn == nil {
		return nil, false
	}
	st := s.Turn.step(call)
	if st == nil || st.Status != Assigned || st.Attempt != attempt {
		return nil, false
	}
	b := start(s, delivery, event.Trigger{Kind: event.ByReply, Call: call, Attempt: attempt}, env.Now, env)
	b.touched = true
	c := *st
	lost := tool.Failure(tool.CodeOutcomeUnknown, itMayHaveRun)
	done := true
	switch {
	case c.Idempotent || c.probing(): // what has no effect, or none beside the first, is repeated
		c.Uncertain = true
		done = b.again(c, executor.Answer{})
	case c.unsettled(lost):
		done = b.probe(c, executor.Answer{})
	default:
		c.Uncertain = true
		b.completeFrom(c, lost, executor.Answer{})
	}
	if !done {
		return nil, true
	}
	b.advance()
	return b.done(), false
}

// again makes a new attempt, or gives up. False means that neither is possible yet.
// The second attempt follows at once if another runner is free, further ones after
// growing pauses: once a plugin or runner has refused, the next one is likely to
// refuse for the same reason.
func (b *builder) again(st Step, a executor.Answer) bool {
	if b.s.Paused != nil && !st.probing() {
		return false
	}
	ended := b.env.Heard
	if ended.IsZero() {
		ended = st.StartBy.Add(-executor.StartWithin)
	}
	limit := maxAttempts
	if st.probing() {
		limit *= 2
	}
	switch {
	case st.Attempts >= limit:
	case st.Attempts == 1 && b.assign(st, st.Final, st.Runner):
		return true
	case b.head.Now.Before(ended.Add(pause(st.Attempts))) && !b.arrivedSince(st.Tool, ended):
		return false
	case b.assign(st, st.Final, st.Runner):
		return true
	case busy(a) && b.head.Now.Before(st.StartBy):
		return false // the only runner has just refused: give it time
	case b.assign(st, st.Final):
		return true
	case !b.offers(st.Tool):
		if !b.givenUp(st.Tool, ended) {
			return false
		}
		b.completeFrom(st, st.notRun(b.unoffered(st.Tool)), executor.Answer{})
		return true
	case b.head.Now.Before(st.NotAfter.Add(runnerWait)):
		return false
	}
	b.completeFrom(st, st.notRun("no runner accepted it: "+string(a.Reason)+" "+a.Message), executor.Answer{})
	return true
}

// arrivedSince reports whether an executor or a plugin that offers the tool has
// registered since then, long enough ago that all processes know it.
func (b *builder) arrivedSince(tool string, then time.Time) bool {
	at := b.env.Tools.Arrived(tool)
	return at.After(then) && !b.head.Now.Before(at.Add(arrivalWait))
}

// arrivalWait is the delay between the arrival of an executor or a plugin and a new
// attempt at a refused call. Earlier, runners may not know a plugin yet.
const arrivalWait = 100 * time.Millisecond

// pause returns how long to wait after an executor's refusal, by the number of
// attempts, if no executor or plugin arrives. All pauses together are longer than a
// plugin's lease and a restart after it.
func pause(attempts int) time.Duration { return min(125*time.Millisecond<<attempts, 4*time.Second) }

func (b *builder) left(tool string) bool {
	_, left := b.env.Tools.Gone(tool)
	return left
}

// goneSince returns when the wait began for a tool that no executor offers, for a call
// that was ready at the given time.
func (b *builder) goneSince(tool string, ready time.Time) time.Time {
	if since, _ := b.env.Tools.Gone(tool); since.After(ready) {
		return since
	}
	return ready
}

// unoffered explains why a call without an executor was not run.
func (b *builder) unoffered(tool string) string {
	if b.left(tool) {
		return fmt.Sprintf("the plugin that offers %s stopped and did not return within %s", tool, pluginWait)
	}
	return fmt.Sprintf("no runner offers %s any more; the call did not run", tool)
}

// busy reports whether an executor refused a call that it would accept later.
func busy(a executor.Answer) bool {
	return a.State == executor.Refused && (a.Reason == executor.RefusedFull || a.Reason == executor.RefusedDraining)
}

// notRun returns the result of a call whose last attempt did not run, with the reason
// why. If an earlier attempt may have run, the outcome is unknown instead.
func (st *Step) notRun(why string) tool.Result {
	if st.Uncertain {
		return tool.Failure(tool.CodeOutcomeUnknown, itMayHaveRun)
	}
	return tool.Failure(tool.CodeNotRun, why)
}

const itMayHaveRun = "its runner died or cannot be reached: it may have run"

// OnProgress advances whatever waits for an executor. It returns nil if nothing can
// advance.
func OnProgress(s *State, delivery uint64, env *Env) *Decision {
	if s.Turn == nil || s.Turn.Plan != nil {
		return nil
	}
	b := start(s, delivery, event.Trigger{Kind: event.ByProgress}, env.Now, env)
	before := len(b.events)
	if s.wantsPlan() {
		b.requestPlan()
		if len(b.events) == before && b.noProviderSince(s.Turn.Idle, s.choices(b.env.Agent)) {
			b.failTurn(event.FailNoProvider, b.noProvider())
			b.next()
		}
	} else {
		b.advance()
		b.expire()
	}
	if len(b.events) == before {
		return nil
	}
	b.touched = true
	return b.done()
}

// noProviderSince reports whether a turn that has waited for one of these providers since then may
// end. While a provider is present the turn waits, however busy the provider is.
func (b *builder) noProviderSince(t time.Time, of []Choice) bool {
	if b.head.Now.Before(t.Add(providerWait)) {
		return false
	}
	return !slices.ContainsFunc(of, func(c Choice) bool { return b.env.Executors.NoProvider(c.Provider) < providerWait })
}

// noProvider explains why a turn ended for lack of a provider.
func (b *builder) noProvider() string {
	names := b.s.Providers(b.env.Agent, nil)
	switch {
	case names[0] == "":
		return fmt.Sprintf("no provider has been available for %s", providerWait)
	case b.s.Provider != "":
		return fmt.Sprintf("provider %q has been unavailable for %s; /provider chose it, lists the available ones, "+
			"and with %q returns to the agent's own", strings.Join(names, ", "), providerWait, commands.DefaultProvider)
	}
	return fmt.Sprintf("provider %q has been unavailable for %s; agents.%s.provider names it, "+
		"and /provider lists the available ones", strings.Join(names, ", "), providerWait, b.agent().Name)
}

const (
	// runnerWait is how long a step waits for a runner that offers its tool.
	runnerWait = 30 * time.Second
	// pluginWait is how long a step waits for a plugin that left: its lease of ten
	// seconds, plus the time to start.
	pluginWait = 15 * time.Second
	// timerWait is how late the timer of a confirmation request may fire.
	timerWait = 30 * time.Second
)

// expire ends whatever has waited too long: steps whose tool no executor offers, and
// confirmation requests whose timer was lost.
func (b *builder) expire() {
	if b.s.Turn == nil {
		return
	}
	before := len(b.events)
	for _, st := range slices.Clone(b.s.Turn.Steps) {
		switch {
		case st.Status == Confirming && !b.head.Now.Before(st.ExpiresAt.Add(timerWait)):
			b.expireRequest(&st)
		case b.abandoned(&st):
			b.complete(st.Call, tool.Failure(tool.CodeNotRun, b.unoffered(st.Tool)))
		}
	}
	if len(b.events) > before {
		b.advance()
	}
}

// abandoned reports whether a step is ready to run but no executor has offered its
// tool for too long.
func (b *builder) abandoned(st *Step) bool {
	if b.s.Turn == nil || b.s.Paused != nil || st.Status != Approved && (st.Status != Waiting || !b.s.Turn.ready(st)) {
		return false
	}
	return !b.offers(st.Tool) && b.givenUp(st.Tool, b.s.Turn.Idle)
}

// offers reports whether a live executor offers the tool, or core itself.
func (b *builder) offers(tool string) bool {
	if tool == planner.FindName {
		return true
	}
	_, known := b.env.Tools.Lookup(tool)
	return known
}

// givenUp reports whether no executor has offered a tool for so long that a call that
// was ready at the given time stops waiting.
func (b *builder) givenUp(tool string, ready time.Time) bool {
	wait := runnerWait
	if b.left(tool) {
		wait = pluginWait
	}
	return !b.head.Now.Before(b.goneSince(tool, ready).Add(wait))
}
