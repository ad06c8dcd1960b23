package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/internal/turn"
)

// planConsidered keeps why a plan has its tools. It precedes the plan's request, or, for what
// a call of tools:find has found, belongs to the call.
func (b *builder) planConsidered(p event.PlanConsidered) {
	if !turn.Has(b.id, p.Plan) {
		return
	}
	p.Reasoning = text.Cut(p.Reasoning, 1000)
	switch s, pl := b.steps[p.Call], b.plans[p.Plan]; {
	case p.Call != "" && s != nil:
		s.Detail.Considered = &p
	case pl != nil:
		pl.Detail.Considered = &p
	default:
		b.considered[p.Plan] = p
	}
}

// planRequested begins a round, or another attempt at it.
func (b *builder) planRequested(p event.PlanRequested) {
	if !turn.Has(b.id, p.Plan) {
		return
	}
	at := b.m.decided
	pl := b.plans[p.Plan]
	if pl == nil {
		key := turn.Work(p.Plan)
		if end := b.asked(key); !end.IsZero() {
			at = end
		}
		pl = &plan{span: b.open(p.Plan, "", LanePlan, KindPlan, fmt.Sprintf("plan, round %d", p.Round), b.before(key, at))}
		b.plans[p.Plan], b.owned[key] = pl, pl.span
		d := &pl.Detail
		d.Plan, d.Round, d.Offered, d.Notes = p.Plan, p.Round, len(p.Tools), b.list(p.Notes, d)
		if c, ok := b.considered[p.Plan]; ok {
			d.Considered = &c
		}
	}
	if pl.attempt != nil {
		b.shut(pl.attempt, b.m.began, StatusFailed)
		pl.attempt.Detail.Usage = usage(p.Spent)
		pl.attempt.Detail.Error = cmp.Or(p.Failed, "its answer was invalid or missing; another attempt was made")
	}
	pl.n++
	pl.attempt = b.open(fmt.Sprintf("%s/a%d", p.Plan, pl.n), p.Plan, LanePlan, KindAttempt,
		fmt.Sprintf("attempt %d, %s", p.Attempts, cmp.Or(p.Use, string(p.Provider))), at)
	for _, d := range []*Detail{&pl.Detail, &pl.attempt.Detail} {
		d.Attempt, d.Attempts, d.Provider = p.Attempt, p.Attempts, p.Provider
	}
}

func usage(u provider.Usage) *provider.Usage {
	if u == (provider.Usage{}) {
		return nil
	}
	return &u
}

// planCompleted ends a round. The calls of the answer begin to wait.
func (b *builder) planCompleted(p event.PlanCompleted) {
	pl := b.plans[p.Plan]
	if pl == nil {
		return
	}
	st, at := StatusOK, b.after(turn.Work(p.Plan))
	d := &pl.attempt.Detail
	d.WorkedMS = p.DurationMS
	switch {
	case p.Error != nil:
		st = StatusFailed
		d.Code, d.Error, d.Usage = string(p.Error.Code), text.Cut(p.Error.Message, 1000), usage(p.Spent)
	case p.Response != nil:
		var cut bool
		d.Model, d.Usage, d.Calls = p.Response.Model, usage(p.Response.Usage), len(p.Steps)
		d.Text, cut = b.clip.text(p.Response.TextContent)
		d.whole("text", !cut)
	}
	b.shut(pl.attempt, b.m.began, st)
	b.shut(pl.span, at, st)
	asked := pl.Detail
	pl.Detail = *d
	pl.Detail.Commit, pl.Detail.Plan, pl.Detail.Round = asked.Commit, p.Plan, asked.Round
	pl.Detail.Offered, pl.Detail.Notes, pl.Detail.Considered = asked.Offered, asked.Notes, asked.Considered
	pl.Detail.Cut = slices.Concat(asked.Cut, d.Cut)
	for _, s := range p.Steps {
		b.planned(s, p.Plan, at)
	}
}

func (b *builder) planned(s event.Step, plan string, at time.Time) {
	parent := ""
	if b.steps[s.Parent] != nil {
		parent = s.Parent
	}
	st := &step{span: b.open(s.Call, parent, LaneAct, KindStep, s.Tool, at), ready: at, readyIn: b.c.Sequence}
	d := &st.Detail
	d.Plan, d.Call, d.Tool, d.Idempotent = plan, s.Call, s.Tool, s.Idempotent
	d.DependsOn = s.DependsOn[:min(len(s.DependsOn), maxListed)]
	d.whole("depends_on", len(s.DependsOn) <= maxListed)
	b.args(d, s.Args)
	b.steps[s.Call], b.owned[turn.Work(s.Call)] = st, st.span
}

func (b *builder) args(d *Detail, args []byte) {
	var cut bool
	d.Args, cut = b.clip.json(args)
	d.whole("args", !cut)
}

// argsOf copies the arguments of another detail.
func (d *Detail) argsOf(from *Detail) {
	d.Args = from.Args
	d.whole("args", !slices.Contains(from.Cut, "args"))
}

// whole records whether a field is complete.
func (d *Detail) whole(field string, is bool) {
	switch i := slices.Index(d.Cut, field); {
	case is && i >= 0:
		d.Cut = slices.Delete(d.Cut, i, i+1)
	case !is && i < 0:
		d.Cut = append(d.Cut, field)
	}
}

// moved ends a step's waiting, because it is being decided about now.
func (b *builder) moved(s *step, why string) {
	at := b.before(turn.Work(s.ID), b.m.began)
	if !s.ready.IsZero() && s.readyIn != b.c.Sequence && at.After(s.ready) {
		w := b.open(fmt.Sprintf("%s/w%d", s.ID, len(b.all)), s.ID, LaneAct, KindWait, why, s.ready)
		w.Detail.Call, w.Detail.DependsOn = s.ID, s.Detail.DependsOn
		b.shut(w, at, StatusOK)
	}
	s.ready = time.Time{}
}

// waitsFor returns what a planned step has waited for.
func waitsFor(s *step) string {
	if len(s.Detail.DependsOn) > 0 {
		return "waits for " + strings.Join(s.Detail.DependsOn, ", ")
	}
	return "waits for a runner"
}

// audited marks a decision of the security layer.
func (b *builder) audited(p event.Audited) {
	parent, at := "", b.m.began
	if s := b.steps[p.Call]; s != nil {
		parent, at = s.ID, b.after(turn.Work(p.Call))
		if s.confirm != nil && !s.confirm.closed {
			parent = s.confirm.ID
		} else {
			b.moved(s, waitsFor(s))
		}
	}
	st := map[event.Effect]Status{event.EffectDeny: StatusDenied, event.EffectConfirm: StatusAsked}[p.Effect]
	if st == "" {
		st = StatusOK
	}
	s := b.mark(fmt.Sprintf("s%d.%d", b.c.Sequence, len(b.all)), parent, LaneConfirm, KindPolicy,
		"policy: "+string(p.Effect), at, st)
	d := &s.Detail
	d.Principal, d.Action, d.Tool, d.Call, d.Hash, d.Effect = p.Principal, p.Action, p.Resource, p.Call, p.Hash, p.Effect
	d.Rule, d.Reason, d.Grant, d.Obligations = p.Rule, text.Cut(p.Reason, 1000), p.Grant, p.Obligations
}

// confirmAsked starts the wait for a decision; the user sees the request once it is in the log.
func (b *builder) confirmAsked(p event.ToolCallRequest) {
	s := b.steps[p.ConfirmationID]
	if s == nil {
		return
	}
	b.moved(s, waitsFor(s))
	s.confirm = b.open(s.ID+"/confirm", s.ID, LaneConfirm, KindConfirm, "waits for a person", b.m.stored)
	d := &s.confirm.Detail
	d.Call, d.Tool, d.Hash, d.ExpiresAt, d.Warning = s.ID, p.ToolName, p.Hash, p.ExpiresAt, p.SecurityWarning
	b.args(d, p.Args)
	s.Detail.Hash = p.Hash
	s.Detail.argsOf(d)
}

func (b *builder) confirmed(p event.ActConfirmed) {
	s := b.steps[p.Call]
	if s == nil || s.confirm == nil {
		return
	}
	st := StatusDenied
	if p.Outcome == event.Approved {
		st = StatusOK
		s.ready, s.readyIn = b.m.began, b.c.Sequence
	}
	d := &s.confirm.Detail
	d.Outcome, d.By, d.Source, d.Reason, d.Grant = p.Outcome, p.By, p.Source, text.Cut(p.Reason, 1000), p.Always
	s.confirm.Name = string(p.Outcome) + " by " + strings.Join(append(slices.Clone(p.Others), cmp.Or(p.Person, string(p.By))), ", ")
	if p.Outcome == event.Expired {
		s.confirm.Name = "nobody answered in time"
	}
	b.shut(s.confirm, b.m.began, st)
}

// actRequested gives a step to a runner, which gets it when the event is in the log.
func (b *builder) actRequested(p event.ActRequested) {
	s := b.steps[p.Call]
	if s == nil {
		return
	}
	if s.run != nil {
		b.shut(s.run, b.m.began, StatusCancelled)
		if s.run.Detail.Reason = "it did not run; it was given to another runner"; p.Uncertain {
			s.run.Status, s.run.Detail.Reason = StatusUnknown,
				"it may have run; the tool is idempotent, so it was given to another runner"
		}
	} else {
		why := waitsFor(s)
		if s.confirm != nil {
			why = "waits for a runner"
		}
		b.moved(s, why)
	}
	if p.Commission != nil && p.Commission.By.Terms != nil {
		s.Detail.Works = &p.Commission.To
	}
	s.runs++
	s.run = b.open(fmt.Sprintf("%s/a%d", s.ID, s.runs), s.ID, LaneAct, KindRun,
		fmt.Sprintf("attempt %d, %s", p.Attempts, p.Runner), b.m.stored)
	b.args(&s.run.Detail, p.Args)
	s.Detail.argsOf(&s.run.Detail)
	for _, d := range []*Detail{&s.Detail, &s.run.Detail} {
		d.Call, d.Tool, d.Hash, d.Attempt, d.Attempts, d.Runner = p.Call, p.Tool, p.Hash, p.Attempt, p.Attempts, p.Runner
		d.Idempotent, d.Uncertain, d.ApprovedBy = p.Idempotent, p.Uncertain, p.ApprovedBy
	}
}

// actCompleted sets a step's one result.
func (b *builder) actCompleted(p event.ActCompleted) {
	s := b.steps[p.Call]
	if s == nil {
		return
	}
	st := statusOf(p.Result)
	if s.run == nil && len(b.children(s)) == 0 {
		b.moved(s, waitsFor(s))
	}
	b.shut(s.run, b.m.began, st)
	if s.confirm != nil {
		b.shut(s.confirm, b.m.began, st)
	}
	d := &s.Detail
	d.WorkedMS, d.Note = p.DurationMS, text.Cut(p.Note, 1000)
	if p.Hash != "" {
		d.Hash = p.Hash
	}
	if e := p.Result.Error; e != nil {
		d.Code, d.Error = string(e.Code), text.Cut(e.Error(), 2000)
		d.Notes = b.list(e.Details, d)
	}
	var cut bool
	d.Result, cut = b.clip.json(p.Result.Data)
	d.whole("result", !cut)
	b.shut(s.span, b.after(turn.Work(p.Call)), st)
}

// children returns the steps of a plan:execute call.
func (b *builder) children(of *step) (out []*step) {
	for _, s := range b.steps {
		if s.Parent == of.ID {
			out = append(out, s)
		}
	}
	return out
}

// recorded ends a turn that succeeded.
func (b *builder) recorded(p event.Recorded) {
	if p.Sequence != b.in.Sequence {
		return
	}
	b.shut(b.sense, b.m.decided, StatusOK)
	at, name := b.m.stored, "answered"
	if p.Command != "" {
		name = "/" + p.Command
		b.line.Text = name
	} else {
		began := b.m.began
		for _, pl := range b.plans {
			began = later(began, pl.end)
		}
		r := b.open("reflect", "", LaneReflect, KindReflect, "reflect", b.before(turn.Ending(b.in.Sequence), began))
		b.owned[turn.Ending(b.in.Sequence)] = r
		at = later(at, b.asked(turn.Ending(b.in.Sequence)))
		b.shut(r, at, StatusOK)
		d := &r.Detail
		d.Notes = b.list(p.Notes, d)
		if p.Input != "" && b.line.Text == "" {
			b.line.Text, _ = b.clip.text(p.Input)
		}
	}
	end := b.mark("end", "", LaneReflect, KindEnd, name, at, StatusOK)
	d := &end.Detail
	d.Rounds, d.Calls, d.Usage, d.WorkedMS = p.Rounds, len(p.Actions), usage(p.Usage), p.DurationMS
	var cut bool
	d.Text, cut = b.clip.text(p.Answer)
	d.whole("text", !cut)
	b.rest(at, StatusCancelled)
}

// turnFailed ends a turn without an answer.
func (b *builder) turnFailed(p event.TurnFailed) {
	if p.Sequence != b.in.Sequence {
		return
	}
	st := endOf(p.Code)
	at := b.after(turn.Ending(b.in.Sequence))
	if b.sense != nil && !b.sense.closed {
		b.shut(b.sense, later(b.asked(turn.Sense(b.in.Sequence)), b.m.began), st)
		at = later(at, b.m.decided)
	}
	end := b.mark("end", "", LaneReflect, KindEnd, "failed: "+string(p.Code), at, st)
	b.owned[turn.Ending(b.in.Sequence)] = end
	d := &end.Detail
	d.Code, d.Reason, d.Calls, d.Usage, d.WorkedMS = string(p.Code), text.Cut(p.Reason,
		1000), len(p.Actions), usage(p.Usage), p.DurationMS
	b.rest(at, StatusCancelled)
}

// rest ends all open spans at the end of the turn.
func (b *builder) rest(at time.Time, st Status) {
	for _, s := range b.all {
		b.shut(s, at, st)
	}
}
