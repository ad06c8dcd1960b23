package subagents

import (
	"context"
	"fmt"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/internal/turn"
)

// found is what is known of a task.
type found struct {
	report
	task event.Task
	in   turn.Input
	made []artifact // in its session
}

func (f *found) ended() bool { return f.Status == done || f.Status == failed }

// result returns the result of the call that gave the task.
func (f *found) result() tool.Result {
	if f.Status != failed {
		r := f.report
		if f.Status != done {
			r.Reason = "it goes on; agent:wait waits for it"
		}
		return tool.OK(r)
	}
	return tool.Failure(tool.CodeFailed, fmt.Sprintf("agent %s in session %s failed: %s: %s", f.Agent, f.Session, f.Code, f.Reason))
}

// await returns what is known of each task when all have ended, or when ctx ends.
func (s *Subagents) await(ctx context.Context, tasks []event.Task, progress func(string)) []found {
	out := make([]found, len(tasks))
	ends := make(chan struct{}, len(tasks))
	for i, t := range tasks {
		out[i] = found{report{Session: t.Session, Agent: t.Agent, Status: running}, t, turn.Input{}, nil}
		go func() {
			defer func() { ends <- struct{}{} }()
			if err := s.follow(ctx, &out[i], progress); err != nil {
				out[i].Reason = err.Error()
			}
		}()
	}
	for range tasks {
		<-ends
	}
	return out
}

// follow reads the log of a task's session until the task has ended, or until ctx ends.
func (s *Subagents) follow(ctx context.Context, f *found, progress func(string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	items, err := follow.With(ctx, s.cfg.Bus, f.task.Ref, follow.Position{}, follow.Options{Log: s.cfg.Log, Silent: true})
	if err != nil {
		return err
	}
	for it := range items {
		if it.Commit == 0 {
			continue
		}
		if err := f.take(it.Event, progress); err != nil {
			s.cfg.Log.Warn("an event of a sub-agent cannot be read", "session", f.task.Ref, "event", it.Event.ID, "error", err)
		}
		if f.ended() {
			return nil
		}
	}
	return nil
}

// maxShownArgs is how much of the arguments of a call is shown, in bytes.
const maxShownArgs = 120

// take notes what an event says about the task.
func (f *found) take(e event.Event, progress func(string)) error {
	tell := func(format string, args ...any) {
		if progress != nil {
			progress(fmt.Sprintf("%s/%s: ", f.Agent, f.Session) + fmt.Sprintf(format, args...))
		}
	}
	err := event.Visitor{
		Perceived: func(p event.Perceived) {
			if p.Writer == subject.AgentWriter && p.InputID == f.task.InputID && f.in.Sequence == 0 {
				f.in.Sequence = p.Sequence
			}
		},
		TurnFailed: func(p event.TurnFailed) { // at once, or a repeated one
			if p.InputID == f.task.InputID && p.Code != event.FailDuplicate && f.in.Sequence == 0 {
				f.in.Sequence = p.Sequence
			}
		},
		ToolCallRequest: func(p event.ToolCallRequest) {
			f.Status, f.Waits = asking, append(f.Waits, p.ToolName)
			tell("a person must decide about %s %s\n%s chat --agent %s --session %s", p.ToolName,
				text.Cut(secret.Hide(p.Args), maxShownArgs), buildinfo.Command(), f.Agent, f.Session)
		},
		ActConfirmed: func(event.ActConfirmed) { f.Status, f.Waits = running, nil },
		ActRequested: func(p event.ActRequested) { tell("calls %s", p.Tool) },
		ActCompleted: func(p event.ActCompleted) { f.made = append(f.made, artifactsOf(f.task.Ref, p.Result)...) },
	}.Visit(e)
	if f.in.Sequence > 0 {
		f.in.See(e)
	}
	switch end := f.in.End; {
	case end.Recorded != nil:
		f.Status, f.Waits, f.Answer = done, nil, end.Recorded.Answer
	case end.Failed != nil:
		f.Status, f.Waits, f.Code, f.Reason = failed, nil, end.Failed.Code, end.Failed.Reason
	}
	return err
}
