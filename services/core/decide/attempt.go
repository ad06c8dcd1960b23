package decide

import (
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/executor"
	"skandha.dev/pkg/tool"
)

// OnCallAnswer decides about what became of an attempt at a call. Nil means no
// effect: the attempt is not the current one, it goes on, or there is nowhere
// to run it again yet (retry is true then, and the shell comes back).
func OnCallAnswer(s *State, door uint64, a executor.Answer, env *Env) (d *Decision, retry bool) {
	if s.Turn == nil || !a.State.Final() {
		return nil, false
	}
	st := s.Turn.step(a.Call)
	if st == nil || st.Status != Assigned || st.Attempt != a.Attempt {
		return nil, false
	}
	b := start(s, door, event.Trigger{Kind: event.ByReply, Call: a.Call, Attempt: a.Attempt}, env.Now, env)
	b.touched = true
	c := *st
	switch a.State {
	case executor.Finished:
		b.completeFrom(c, resultOf(a), a)
	case executor.Never, executor.Refused:
		if !b.again(c, a) {
			return nil, true
		}
	case executor.Stopped:
		b.completeFrom(c, tool.Failure(tool.CodeOutcomeUnknown, "it was stopped while it ran"), a)
	default:
		b.completeFrom(c, tool.Failure(tool.CodeOutcomeUnknown, "it ran, and its result is gone"), a)
	}
	b.advance()
	return b.done(), false
}

// OnUnreachable decides about a call whose runner cannot be asked (rule 9). An
// idempotent one is attempted elsewhere; any other ends as outcome_unknown,
// which is final, so the shell waits for start_by and the skew before.
func OnUnreachable(s *State, door uint64, call, attempt string, env *Env) (d *Decision, retry bool) {
	if s.Turn == nil {
		return nil, false
	}
	st := s.Turn.step(call)
	if st == nil || st.Status != Assigned || st.Attempt != attempt {
		return nil, false
	}
	b := start(s, door, event.Trigger{Kind: event.ByReply, Call: call, Attempt: attempt}, env.Now, env)
	b.touched = true
	c := *st
	c.Uncertain = true
	if !c.Idempotent {
		b.completeFrom(c, c.notRun(""), executor.Answer{})
	} else if !b.again(c, executor.Answer{}) {
		return nil, true
	}
	b.advance()
	return b.done(), false
}

// again makes a new attempt, or gives up. False means not now. The first new attempt
// is made at once if another runner is free, further ones after growing pauses: after
// one plugin or runner has refused, the next is likely to refuse for the same reason.
func (b *builder) again(st Step, a executor.Answer) bool {
	ended := b.env.Heard
	if ended.IsZero() {
		ended = st.StartBy.Add(-executor.StartWithin)
	}
	switch {
	case st.Attempts >= maxAttempts:
	case st.Attempts == 1 && b.assign(st, st.Final, st.Runner):
		return true
	case b.head.Now.Before(ended.Add(pause(st.Attempts))) && !b.arrivedSince(st.Tool, ended):
		return false
	case b.assign(st, st.Final, st.Runner):
		return true
	case busy(a) && b.head.Now.Before(st.StartBy):
		return false // the runner that has just refused is the only one: let it breathe
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
	b.completeFrom(st, st.notRun("no runner took it: "+string(a.Reason)+" "+a.Message), executor.Answer{})
	return true
}

// arrivedSince reports whether an executor or a plugin that offers the tool has come
// since then, and had time to be known everywhere.
func (b *builder) arrivedSince(tool string, then time.Time) bool {
	at := b.env.Tools.Arrived(tool)
	return at.After(then) && !b.head.Now.Before(at.Add(arrivalWait))
}

// arrivalWait is how long after the arrival of an executor or a plugin a refused call
// is tried again: earlier, runners may not know a plugin yet.
const arrivalWait = 100 * time.Millisecond

// pause is how long to wait after an executor's refusal, by the number of attempts, if
// nobody arrives.
// All pauses together are longer than a plugin's lease and a restart after it.
func pause(attempts int) time.Duration { return min(125*time.Millisecond<<attempts, 4*time.Second) }

func (b *builder) left(tool string) bool {
	_, left := b.env.Tools.Gone(tool)
	return left
}

// goneSince is when the wait for a tool that no executor offers began, for a call that
// was ready at the given time.
func (b *builder) goneSince(tool string, ready time.Time) time.Time {
	if since, _ := b.env.Tools.Gone(tool); since.After(ready) {
		return since
	}
	return ready
}

// unoffered explains why a call without an executor was not run.
func (b *builder) unoffered(tool string) string {
	if b.left(tool) {
		return fmt.Sprintf("the plugin that offers %s is gone, and did not come back within %s", tool, pluginWait)
	}
	return fmt.Sprintf("no runner offers %s any more: it did not run", tool)
}

// busy reports whether an executor refused what it would take later.
func busy(a executor.Answer) bool {
	return a.State == executor.Refused && (a.Reason == executor.RefusedFull || a.Reason == executor.RefusedDraining)
}

// notRun is the result of a call whose last attempt did not run, as why says; of
// an attempt before nobody may know.
func (st *Step) notRun(why string) tool.Result {
	if st.Uncertain {
		return tool.Failure(tool.CodeOutcomeUnknown, "its runner died or cannot be reached: it may have run")
	}
	return tool.Failure(tool.CodeNotRun, why)
}

// OnProgress moves on what waits for an executor. Nil: nothing can move.
func OnProgress(s *State, door uint64, env *Env) *Decision {
	if s.Turn == nil || s.Turn.Plan != nil {
		return nil
	}
	b := start(s, door, event.Trigger{Kind: event.ByProgress}, env.Now, env)
	before := len(b.events)
	if s.wantsPlan() {
		b.requestPlan()
		if len(b.events) == before && b.noProviderSince(s.Turn.Idle) {
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

// noProviderSince reports whether a turn that has waited for a provider since then may
// end. A provider that is present is waited for, however busy it is.
func (b *builder) noProviderSince(t time.Time) bool {
	return !b.head.Now.Before(t.Add(providerWait)) && b.env.Executors.NoProvider() >= providerWait
}

// noProvider is why a turn ends that nobody could be asked for.
func (b *builder) noProvider() string {
	a := b.agent()
	if a.Provider == "" {
		return fmt.Sprintf("no provider has been there for %s", providerWait)
	}
	return fmt.Sprintf("no provider %q has been there for %s: agents.%s.provider names it, and /provider lists those that are there",
		a.Provider, providerWait, a.Name)
}

const (
	// runnerWait is how long a step waits for a runner that offers its tool at all.
	runnerWait = 30 * time.Second
	// pluginWait is how long a step waits for a plugin that left: its lease of ten
	// seconds, plus the time to start.
	pluginWait = 15 * time.Second
	// timerWait is how late the timer of a confirmation request may come.
	timerWait = 30 * time.Second
)

// expire ends what has waited too long: steps whose tool nobody offers, and
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

// abandoned reports whether a step could run and nobody has offered its tool for
// too long.
func (b *builder) abandoned(st *Step) bool {
	if b.s.Turn == nil || st.Status != Approved && (st.Status != Waiting || !b.s.Turn.ready(st)) {
		return false
	}
	return !b.offers(st.Tool) && b.givenUp(st.Tool, b.s.Turn.Idle)
}

// offers reports whether a live executor offers the tool.
func (b *builder) offers(tool string) bool {
	_, known := b.env.Tools.Lookup(tool)
	return known
}

// givenUp reports whether nobody has offered a tool for so long that a call, ready at
// the given time, waits no longer.
func (b *builder) givenUp(tool string, ready time.Time) bool {
	wait := runnerWait
	if b.left(tool) {
		wait = pluginWait
	}
	return !b.head.Now.Before(b.goneSince(tool, ready).Add(wait))
}
