package decide

import (
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/executor"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// startTurn begins the turn of a perception, now.
func (b *builder) startTurn(p event.Perceived) {
	b.touched = true
	p.Disposition = event.Started
	p.Deadline = b.deadline()
	b.emit(p)
	b.requestPlan()
}

// next begins the turn of the input that has waited longest, if there is one.
func (b *builder) next() {
	for b.s.Turn == nil && len(b.s.Queue) > 0 {
		q := b.s.Queue[0]
		if b.s.Locked != "" {
			b.emit(event.TurnFailed{
				Sequence: q.Sequence, InputID: q.InputID, Code: event.FailLocked,
				Reason: b.s.Locked + "; /reset opens the session again",
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

// forever is the wall time of a turn without limit.
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
	data := hook.ReflectData{Input: t.Text, Answer: answer, Tools: toolsOf(t), Rounds: t.Round}
	if d := b.hook(hook.BeforeReflect, "", data); d.Verb == hook.Replace {
		var r hook.ReflectData
		if decodeInto(d.Data, &r) == nil {
			data.Notes = r.Notes
		}
	}
	b.emit(event.Recorded{
		Sequence: t.Sequence, InputID: t.InputID, Input: t.Text, Answer: answer, Actions: t.Actions,
		Rounds: t.Round, Usage: t.Usage, Notes: data.Notes,
		DurationMS: b.head.Now.Sub(t.Started).Milliseconds(),
	})
	b.hook(hook.AfterReflect, "", data)
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

// failTurn ends the turn without an answer. No call may be open.
func (b *builder) failTurn(code event.FailCode, reason string) {
	t := b.s.Turn
	b.hook(hook.OnError, "", hook.ErrorData{Code: string(code), Message: reason})
	b.emit(event.TurnFailed{
		Sequence: t.Sequence, InputID: t.InputID, Code: code, Reason: reason, Actions: t.Actions,
		Usage: t.Usage, DurationMS: b.head.Now.Sub(t.Started).Milliseconds(),
	})
	b.touched, b.ready = true, true
}

// closeTurn ends the turn with all that is open in it: every call gets its one
// result first, and says truthfully whether it ran (rule 10).
func (b *builder) closeTurn(code event.FailCode, reason string, closings Closings, goOn bool) {
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
	if goOn {
		b.next()
	}
}

// closingResult is what can truthfully be said of a call that is being closed.
func closingResult(st Step, closings Closings) tool.Result {
	if st.Status != Assigned {
		return tool.Failure(tool.CodeCancelled, "cancelled before it was given to a runner: it did not run")
	}
	c, asked := closings[st.Call]
	if !asked || c.Unreachable || c.Answer.Attempt != st.Attempt { // rule 6
		return tool.Failure(tool.CodeOutcomeUnknown, "cancelled; its runner cannot be reached: it may have run")
	}
	switch c.Answer.State {
	case executor.Never, executor.Refused:
		if st.Uncertain {
			return tool.Failure(tool.CodeOutcomeUnknown, "cancelled; an earlier attempt may have run")
		}
		return tool.Failure(tool.CodeCancelled, "cancelled before it began: it did not run")
	case executor.Finished:
		return resultOf(c.Answer)
	}
	return tool.Failure(tool.CodeOutcomeUnknown, "cancelled while it ran: part of its effect may have happened")
}

func resultOf(a executor.Answer) tool.Result {
	if a.Result == nil {
		return tool.Failure(tool.CodeInternal, "the runner finished without a result")
	}
	return reported(*a.Result)
}

// reported is what a runner or a hook may say of a call that ran. The codes that
// say it did not run are core's alone.
func reported(r tool.Result) tool.Result {
	switch {
	case r.Success:
		r.Error = nil
	case r.Error == nil:
		r.Error = &tool.Error{Code: tool.CodeFailed, Message: "it failed without saying why"}
	case didNotRun(r.Error.Code):
		e := *r.Error
		e.Code, e.Message = tool.CodeFailed, e.Error()
		r.Error = &e
	}
	return r
}

func didNotRun(c tool.Code) bool {
	switch c {
	case tool.CodeCancelled, tool.CodeNotRun, tool.CodeSkipped, tool.CodeDenied, tool.CodeExpired:
		return true
	}
	return false
}

// amended is what an after_act hook may make of a result: its words and its
// data. Whether the call ran is not the hook's to say.
func amended(was, by tool.Result) tool.Result {
	if was.Error == nil || was.Success {
		return reported(by)
	}
	switch code := was.Error.Code; {
	case didNotRun(code), code == tool.CodeOutcomeUnknown, code == tool.CodeUnknownTool, code == tool.CodeInvalidArgs, code == tool.CodeInvalidPlan:
		e := *was.Error
		if by.Error != nil {
			e.Message, e.Details = by.Error.Message, by.Error.Details
		}
		by.Success, by.Error = false, &e
		return by
	}
	return reported(by)
}

// MustClose lists the calls that must be stopped, and asked about, before the
// cause can be decided, because deciding it would end them (rule 10).
func MustClose(s *State, c Cause) []Step {
	if s.Turn == nil || c.Sequence <= s.Cursor || !ends(s, c) {
		return nil
	}
	return s.Assigned()
}

// Assigned lists the calls that are with a runner.
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
	switch c.Kind {
	case subject.Cancel:
		var x event.Cancel
		return event.DecodeCause(c.Body, &x) == nil && names(x, c.Writer, s.Turn.Pending)
	case subject.Input:
		in, err := readInput(c.Body)
		if _, dup := s.seen(c.Writer, in.ID); err != nil || dup || s.Locked != "" {
			return false
		}
		return in.Mode == event.ModeInterrupt
	case subject.Command:
		x, err := readCommand(c.Body)
		if _, dup := s.seen(c.Writer, x.ID); err != nil || dup {
			return false
		}
		return x.Name == "reset" || x.Name == "cancel" && s.Turn.Began < c.Sequence
	}
	return false
}

// OnDeadline ends the open turn because its wall time is over.
func OnDeadline(s *State, door uint64, closings Closings, env *Env) *Decision {
	if s.Turn == nil || env.Now.Before(s.Turn.Deadline) {
		return nil
	}
	b := start(s, door, event.Trigger{Kind: event.ByProgress}, env.Now, env)
	b.touched = true
	b.closeTurn(event.FailDeadline, fmt.Sprintf("the turn's wall time of %s is over", b.agent().Limits.Wall), closings, true)
	return b.done()
}

// OnPoisonTurn ends a turn that core after core has failed to drive (rule 13).
func OnPoisonTurn(s *State, door uint64, closings Closings, why string, env *Env) *Decision {
	if s.Turn == nil {
		return nil
	}
	b := start(s, door, event.Trigger{Kind: event.ByPoison}, env.Now, env)
	b.touched, b.quiet = true, true
	b.closeTurn(event.FailPoison, why, closings, false)
	b.quiet = false // the next turn is no poison: its hooks count
	b.next()
	return b.done()
}
