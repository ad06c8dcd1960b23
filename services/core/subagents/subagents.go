package subagents

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/runner"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/internal/submit"
)

// Config is what the tools need.
type Config struct {
	Bus *journal.Journal
	Log *slog.Logger
	// State loads a session.
	State func(ctx context.Context, ref subject.Ref) (*decide.State, error)
	// Labels lists where the texts from outside come from that a session has seen.
	Labels func(*decide.State) []string
}

// Subagents runs the tools of one core.
type Subagents struct {
	cfg    Config
	sender submit.Sender
}

// New returns the tools.
func New(cfg Config) *Subagents {
	return &Subagents{cfg: cfg, sender: submit.Sender{Bus: cfg.Bus.Bus, Writer: subject.AgentWriter}}
}

// Cancel cancels a task. Repeating it has no effect.
func (s *Subagents) Cancel(ctx context.Context, t event.Task, why string) error {
	_, err := s.sender.Stop(ctx, t.Ref, event.Cancel{InputID: t.InputID, Reason: why})
	return err
}

// give stores what a call sends. It is idempotent: the id of the input is the call's.
func (s *Subagents) give(ctx context.Context, c runner.Call, text string, origin event.Origin) *tool.Result {
	if c.Commission == nil {
		r := tool.Failure(tool.CodeInternal, "the call has no commission")
		return &r
	}
	_, err := s.sender.Say(ctx, c.Commission.To, event.Input{
		Text: text, ID: c.ID, Source: "agent:" + string(c.Session), Origin: origin, By: &c.Commission.By,
		Mode: event.ModeSteer,
	})
	if err == nil {
		return nil
	}
	r := tool.Failure(tool.CodeFailed, fmt.Sprintf("the task could not be stored: %v", err))
	if why, _ := submit.Why(err); why >= submit.Unknown { // it may be stored: this is no answer yet
		r = tool.Failure(tool.CodeOutcomeUnknown, fmt.Sprintf("the task may be stored: %v", err))
	}
	return &r
}

func (s *Subagents) delegate(ctx context.Context, c runner.Call) executor.Answer {
	ask, wrong := runner.Decode[struct {
		Task string `json:"task"`
		Wait bool   `json:"wait"`
	}](c)
	if wrong == nil {
		wrong = s.give(ctx, c, ask.Task, "")
	}
	if wrong != nil {
		return executor.Answer{Result: wrong}
	}
	to := c.Commission.To
	if !ask.Wait {
		return s.answer(ctx, c, tool.OK(report{Session: to.Session, Agent: to.Agent, Status: running}), nil)
	}
	within, cancel := before(ctx, delegateWithin)
	defer cancel()
	got := s.await(within, []event.Task{{Ref: to, InputID: c.ID}}, s.printer(c))
	if ctx.Err() != nil && !got[0].ended() {
		return s.stopped()
	}
	s.bring(ctx, c, got)
	return s.answer(ctx, c, got[0].result(), got)
}

func (s *Subagents) send(ctx context.Context, c runner.Call) executor.Answer {
	ask, wrong := runner.Decode[struct {
		Text string `json:"text"`
	}](c)
	if wrong != nil {
		return executor.Answer{Result: wrong}
	}
	var origin event.Origin // to a sub-agent: it is the caller's word
	if c.Commission != nil && s.above(ctx, c) {
		origin = event.Origin(event.OriginAgent + ":" + string(c.Session))
	}
	if wrong := s.give(ctx, c, ask.Text, origin); wrong != nil {
		return executor.Answer{Result: wrong}
	}
	return s.answer(ctx, c, tool.OK(map[string]any{"sent": true, "session": c.Commission.To.Session}), nil)
}

// above reports whether the message goes to the session that the caller works for.
func (s *Subagents) above(ctx context.Context, c runner.Call) bool {
	st, err := s.cfg.State(ctx, c.Ref)
	return err != nil || st.Above != nil && *st.Above == c.Commission.To
}

func (s *Subagents) wait(ctx context.Context, c runner.Call) executor.Answer {
	ask, wrong := runner.Decode[struct {
		Sessions []string `json:"sessions"`
		Seconds  int      `json:"seconds"`
	}](c)
	if wrong != nil {
		return executor.Answer{Result: wrong}
	}
	tasks, wrong := s.tasks(ctx, c, ask.Sessions)
	if wrong != nil {
		return executor.Answer{Result: wrong}
	}
	within, cancel := before(ctx, time.Duration(ask.Seconds)*time.Second)
	defer cancel()
	got := s.await(within, tasks, s.printer(c))
	if ctx.Err() != nil {
		return s.stopped()
	}
	s.bring(ctx, c, got)
	reports := make([]report, len(got))
	for i := range got {
		reports[i] = got[i].report
	}
	return s.answer(ctx, c, tool.OK(map[string]any{"agents": reports}), got)
}

func (s *Subagents) stop(ctx context.Context, c runner.Call) executor.Answer {
	ask, wrong := runner.Decode[struct {
		Session string `json:"session"`
	}](c)
	if wrong != nil {
		return executor.Answer{Result: wrong}
	}
	tasks, wrong := s.tasks(ctx, c, []string{ask.Session})
	if wrong == nil {
		if err := s.Cancel(ctx, tasks[0], "stopped by agent "+string(c.Agent)); err != nil {
			r := tool.Failure(tool.CodeFailed, fmt.Sprintf("it could not be stopped: %v", err))
			wrong = &r
		}
	}
	if wrong != nil {
		return executor.Answer{Result: wrong}
	}
	within, cancel := before(ctx, soon)
	defer cancel()
	got := s.await(within, tasks, s.printer(c))
	return s.answer(ctx, c, tool.OK(got[0].report), got)
}

// stopped is the answer of a call that was stopped while it waited.
func (s *Subagents) stopped() executor.Answer {
	r := tool.Failure(tool.CodeFailed, "the call was stopped while it waited; a turn that is cancelled cancels what it has given")
	return executor.Answer{Result: &r}
}

// before bounds a wait, so that the result is given before the call's time is over.
func before(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	end := time.Now().Add(within)
	if limit, ok := ctx.Deadline(); ok && limit.Add(-margin).Before(end) {
		end = limit.Add(-margin)
	}
	return context.WithDeadline(ctx, end)
}

// tasks returns what the sessions with these names work on for the caller's; without names, what all of
// them do that were not heard of.
func (s *Subagents) tasks(ctx context.Context, c runner.Call, names []string) ([]event.Task, *tool.Result) {
	fail := func(code tool.Code, format string, args ...any) ([]event.Task, *tool.Result) {
		r := tool.Failure(code, fmt.Sprintf(format, args...))
		return nil, &r
	}
	st, err := s.cfg.State(ctx, c.Ref)
	if err != nil {
		return fail(tool.CodeFailed, "the session cannot be read: %v", err)
	}
	var known []string
	var out []event.Task
	for _, child := range st.Children {
		known = append(known, string(child.Session))
		if names == nil && !child.Ended || slices.Contains(names, string(child.Session)) {
			out = append(out, child.Task)
		}
	}
	for _, n := range names {
		switch {
		case len(known) == 0:
			return fail(tool.CodeInvalidArgs, "no session works for this one")
		case !slices.Contains(known, n):
			return fail(tool.CodeInvalidArgs, "%q does not work for this session; those that do: %q", n, known)
		}
	}
	return out, nil
}

// answer completes a result with what the sub-agents have spent, and with where the texts come from
// that they have read.
func (s *Subagents) answer(ctx context.Context, c runner.Call, r tool.Result, got []found) executor.Answer {
	a := executor.Answer{Result: &r}
	if ctx.Err() != nil { // the call was stopped, and nobody waits for its result
		return a
	}
	var labels []string
	for _, f := range got {
		st, err := s.cfg.State(ctx, f.task.Ref)
		if err != nil {
			labels = executor.AddLabels(labels, "agent:"+string(f.task.Session)) // what it has read is unknown
			s.cfg.Log.Warn("what a sub-agent has spent is not known yet", "session", f.task.Ref, "error", err)
			continue
		}
		labels = executor.AddLabels(labels, s.cfg.Labels(st)...)
		a.Tasks = append(a.Tasks, event.TaskReport{Ref: f.task.Ref, Usage: spent(st), Ended: f.ended()})
	}
	a.Tasks = append(a.Tasks, s.others(ctx, c, a.Tasks)...)
	if len(labels) > 0 {
		r.Metadata = map[string]any{tool.MetadataAfter: labels}
	}
	r = result.Limit(ctx, s.cfg.Bus, result.Name(c.Ref, c.ID, c.Attempt), r)
	a.Result = &r
	return a
}

// others reports about the sub-agents that were stopped and not heard of since, so that what was
// reserved for them becomes free.
func (s *Subagents) others(ctx context.Context, c runner.Call, had []event.TaskReport) (out []event.TaskReport) {
	st, err := s.cfg.State(ctx, c.Ref)
	if err != nil {
		return nil
	}
	for _, child := range st.Children {
		is := func(r event.TaskReport) bool { return r.Ref == child.Ref }
		if !child.Stopped || child.Ended || slices.ContainsFunc(had, is) {
			continue
		}
		if its, err := s.cfg.State(ctx, child.Ref); err == nil && its.Turn == nil && len(its.Queue) == 0 {
			out = append(out, event.TaskReport{Ref: child.Ref, Usage: spent(its), Ended: true})
		}
	}
	return out
}

// spent returns what a session has spent, together with those that work for it.
func spent(st *decide.State) provider.Usage { return st.Usage }

// printer returns what shows people of the caller's session what its sub-agents do.
func (s *Subagents) printer(c runner.Call) func(string) {
	return s.cfg.Bus.Lines(c.Ref, c.Turn, event.Source, tool.Output{Call: c.ID, Attempt: c.Attempt})
}
