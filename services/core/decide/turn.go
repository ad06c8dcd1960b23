package decide

import (
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/services/core/commands"
)

// startTurn begins the turn of a perception at once.
func (b *builder) startTurn(p event.Perceived) {
	b.touched = true
	b.state(event.StateSensing)
	p.Disposition = event.Started
	p.Deadline = b.deadline()
	b.emit(p)
	b.requestPlan()
}

// next begins the turn of the input that has waited longest, if any.
func (b *builder) next() {
	for b.s.Turn == nil && len(b.s.Queue) > 0 && b.s.Paused == nil {
		q := b.s.Queue[0]
		if b.s.lockedAt(b.head.Now) {
			b.emit(event.TurnFailed{
				Sequence: q.Sequence, InputID: q.InputID, Code: event.FailLocked,
				Reason: b.s.LockedWhy(), Until: b.s.Breaker.Until,
			})
			continue
		}
		p := event.Perceived{Sequence: q.Sequence, InputID: q.InputID, Writer: q.Writer, Disposition: event.FromQueue}
		p.Deadline = b.deadline()
		b.touched = true
		b.emit(p)
		b.requestPlan()
	}
}

// forever is the wall time of a turn without a limit.
const forever = 100 * 365 * 24 * time.Hour

func (b *builder) deadline() time.Time {
	if wall := b.agent().Limits.Wall; wall > 0 {
		return b.head.Now.Add(wall)
	}
	return b.head.Now.Add(forever)
}

// finish ends the turn with its answer.
func (b *builder) finish(answer string) {
	t := b.s.Turn
	b.message(answer)
	b.state(event.StateReflecting)
	data := hook.ReflectData{Input: t.Text, Answer: answer, Tools: toolsOf(t), Rounds: t.Round}
	if d := ask(b, hook.BeforeReflect, "", data); d.Verb == hook.Replace {
		var r hook.ReflectData
		if decodeInto(d.Data, &r) == nil {
			data.Notes = r.Notes
		}
	}
	b.emit(event.Recorded{
		Sequence: t.Sequence, InputID: t.InputID, Input: t.Text, Answer: answer, Actions: t.Actions,
		Rounds: t.Round, Usage: t.Usage, Notes: data.Notes,
		DurationMS: b.head.Now.Sub(t.Started).Milliseconds(), Learned: b.learned(),
	})
	ask(b, hook.AfterReflect, "", data)
	b.touched, b.ready = true, true
	b.next()
}

func toolsOf(t *Turn) []string {
	var names []string
	for _, a := range t.Actions {
		if !slices.Contains(names, a.Tool) {
			names = append(names, a.Tool)
		}
	}
	return names
}

// failTurn ends the turn without an answer. The caller must have closed all calls.
func (b *builder) failTurn(code event.FailCode, reason string) {
	t := b.s.Turn
	of := t.ID
	if code == event.FailReset {
		of = ""
	}
	ask(b, hook.OnError, "", hook.ErrorData{Code: string(code), Message: reason})
	b.emit(event.TurnFailed{
		Sequence: t.Sequence, InputID: t.InputID, Code: code, Reason: reason, Until: b.s.Breaker.Until, Actions: t.Actions,
		Usage: t.Usage, DurationMS: b.head.Now.Sub(t.Started).Milliseconds(), Learned: b.learned(),
		Stops: b.s.stops(of),
	})
	b.touched, b.ready = true, true
}

// closeTurn ends the turn with everything that is open in it. First every call gets
// its one result, which says truthfully whether it ran (rule 10). With startNext, the
// next queued input then begins its turn.
func (b *builder) closeTurn(code event.FailCode, reason string, closings Closings, startNext bool) {
	t := b.s.Turn
	for _, st := range slices.Clone(t.Steps) {
		if st.Status == Done || st.Status == Expanded {
			continue
		}
		if b.s.Turn.step(st.Call) == nil {
			break // the last result closed the round
		}
		b.completeFrom(st, closingResult(st, closings), closings[st.Call].Answer)
	}
	for _, st := range slices.Clone(t.Steps) {
		if st.Status == Expanded {
			b.composePlan(st) // some of its steps may have run
		}
	}
	b.failTurn(code, reason)
	if startNext {
		b.next()
	}
}

// MustClose lists the calls that the cause would end. The shell must ask their
// runners to stop them, and collect the answers, before it decides the cause (rule 10).
func MustClose(s *State, c Cause) []Step {
	if s.Turn == nil || c.Sequence <= s.Cursor || !ends(s, c) {
		return nil
	}
	return s.Assigned()
}

// Assigned lists the calls that are assigned to a runner.
func (s *State) Assigned() []Step {
	var out []Step
	if s.Turn != nil {
		for _, st := range s.Turn.Steps {
			if st.Status == Assigned {
				out = append(out, st)
			}
		}
	}
	return out
}

// ends reports whether the cause would close the open turn.
func ends(s *State, c Cause) bool {
	if c.err != nil {
		return false
	}
	switch says := c.says.(type) {
	case event.Cancel:
		return s.Turn.named(says, c.Writer)
	case event.Input:
		_, dup := s.seen(c.Writer, says.ID)
		return !dup && says.Mode == event.ModeInterrupt && s.Paused == nil
	case event.Command:
		_, dup := s.seen(c.Writer, says.ID)
		return !dup && (says.Name == commands.Reset || says.Name == commands.Delete || says.Name == commands.Cancel && s.Turn.Began < c.Sequence)
	}
	return false
}

// OnDeadline ends the open turn if its wall time is used up. It returns nil if not.
func OnDeadline(s *State, delivery uint64, closings Closings, env *Env) *Decision {
	if s.Turn == nil || s.Paused != nil || env.Now.Before(s.Turn.Deadline) {
		return nil
	}
	b := start(s, delivery, event.Trigger{Kind: event.ByProgress}, env.Now, env)
	b.touched = true
	why := fmt.Sprintf("the turn exceeded its wall time of %s", b.agent().Limits.Wall)
	b.closeTurn(event.FailDeadline, why, closings, true)
	return b.done()
}
