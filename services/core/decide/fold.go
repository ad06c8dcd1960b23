package decide

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/internal/text"
)

// ErrMismatch means that folding a commit did not produce the digest that it carries,
// or that the commit does not follow the state. The log or the fold is broken.
var ErrMismatch = errors.New("commit does not match the state")

// ErrNewer means that a core with a later fold version wrote the commit, so this core
// must not judge it.
var ErrNewer = errors.New("commit has a newer fold version")

// Apply folds the commit stored at seq and returns the state after it. It does not
// change the receiver.
func (s *State) Apply(c event.Commit, seq uint64) (*State, error) {
	if c.Ref != s.Ref {
		return nil, fmt.Errorf("%w: it belongs to %s, not to %s", ErrMismatch, c.Ref, s.Ref)
	}
	if c.Header.Prev != s.Rev {
		return nil, fmt.Errorf("%w: it follows %d, the state is at %d", ErrMismatch, c.Header.Prev, s.Rev)
	}
	if c.Header.FoldVersion > FoldVersion {
		return nil, fmt.Errorf("%w: fold version %d, this core has %d", ErrNewer, c.Header.FoldVersion, FoldVersion)
	}
	n := s.clone()
	n.Now, n.version = c.Header.Now, c.Header.FoldVersion
	for i := range c.Events {
		if err := n.fold(c.Events[i]); err != nil {
			return nil, fmt.Errorf("%w: event %d: %w", ErrMismatch, i, err)
		}
	}
	n.seal(c.Header)
	if n.Digest != c.Header.Digest && c.Header.FoldVersion == FoldVersion {
		return nil, fmt.Errorf("%w: digest is %s, want %s", ErrMismatch, n.Digest, c.Header.Digest)
	}
	n.stamp(seq)
	return n, nil
}

// seal applies the header and computes the digest.
func (s *State) seal(h event.Header) {
	s.Cursor, s.Driver, s.Delivery, s.Now = h.Cursor, h.Driver, h.Delivery, h.Now
	s.begun(h.Trigger)
	s.Prev = h.Prev
	s.Commits++
	s.Digest = s.digest()
}

// stamp records the sequence of the commit where the state needs it: an answer or a
// /cancel must not apply to a request or a turn that began after it was stored.
func (s *State) stamp(seq uint64) {
	s.Rev = seq
	if s.Turn == nil {
		return
	}
	s.Turn.Began = cmp.Or(s.Turn.Began, seq)
	for i := range s.Turn.Steps {
		if st := &s.Turn.Steps[i]; st.Status == Confirming && st.Asked == 0 {
			st.Asked = seq
		}
	}
}

func (s *State) unstamp(seq uint64) {
	if s.Turn == nil {
		return
	}
	if s.Turn.Began == seq {
		s.Turn.Began = 0
	}
	for i := range s.Turn.Steps {
		if st := &s.Turn.Steps[i]; st.Status == Confirming && st.Asked == seq {
			st.Asked = 0
		}
	}
}

// fold applies one event. It relies on nothing but the event itself.
func (s *State) fold(e event.Event) (err error) {
	if e.Type == event.TypeAudited && !bytes.Contains(e.Data, obligations) {
		return nil // most have none, so there is nothing to fold
	}
	bad := event.Visitor{
		Perceived:       func(p event.Perceived) { err = s.onPerceived(p) },
		Recalled:        func(p event.Recalled) { err = s.onRecalled(p) },
		PlanConsidered:  func(p event.PlanConsidered) { err = s.onPlanConsidered(p) },
		PlanRequested:   func(p event.PlanRequested) { err = s.onPlanRequested(p) },
		PlanCompleted:   func(p event.PlanCompleted) { err = s.onPlanCompleted(p) },
		ActRequested:    func(p event.ActRequested) { err = s.onActRequested(p) },
		ToolCallRequest: func(p event.ToolCallRequest) { err = s.onToolCallRequest(p) },
		ActApproved:     func(p event.ActApproved) { err = s.onActApproved(p) },
		ActConfirmed:    func(p event.ActConfirmed) { err = s.onActConfirmed(p) },
		ActCompleted:    func(p event.ActCompleted) { err = s.onActCompleted(p) },
		Audited:         func(p event.Audited) { err = s.onAudited(p) },
		Recorded:        func(p event.Recorded) { err = s.onRecorded(p) },
		TurnFailed:      s.onTurnFailed,
		SessionLocked:   s.onSessionLocked,
		SessionReset:    func(p event.SessionReset) { err = s.onReset(p) },
		SessionPaused:   func(p event.SessionPaused) { s.onPaused(p) },
		Checkpoint:      func(p event.Checkpoint) { err = s.onCheckpoint(p) },
		Summarized:      func(p event.Summarized) { err = s.onSummarized(p) },
		UIState:         func(p event.UIState) { s.UI = p.State },
	}.Visit(e)
	return cmp.Or(bad, err)
}

// take folds a payload directly, and reports false if the payload must be encoded and
// decoded first. It accepts payloads that decode to exactly what was encoded: numbers,
// times, and text that core wrote or that was JSON before; never raw JSON.
func (s *State) take(p event.Payload) (taken bool, err error) {
	switch p := p.(type) {
	case event.PlanRequested:
		if p.Question != nil {
			return false, nil // its schema is raw JSON
		}
		err = s.onPlanRequested(p)
	case event.ActApproved:
		err = s.onActApproved(p)
	case event.ActConfirmed:
		err = s.onActConfirmed(p)
	case event.Audited:
		return p.Obligations == nil, nil // without obligations it changes nothing
	case event.Recorded:
		err = s.onRecorded(p)
	case event.TurnFailed:
		s.onTurnFailed(p)
	case event.UIState:
		s.UI = p.State
	case event.UIMessage, event.UIReady:
	default:
		return false, nil
	}
	return true, err
}

// takeTerms folds for whom the session works, which its first input says.
func (s *State) takeTerms(p event.Perceived) {
	if p.By != nil && p.By.Terms != nil && s.Above == nil {
		s.Above, s.Terms = &p.By.Ref, p.By.Terms
	}
}

func (s *State) onPerceived(p event.Perceived) error {
	in := Pending{
		p.Sequence, p.InputID, p.Writer, p.Source, p.Text, p.Annotations, p.Files, p.Origin, p.From, p.ReplyTo,
		p.Outside, p.By, p.Steer,
	}
	s.takeTerms(p)
	if p.Disposition != event.FromQueue && p.Disposition != event.Joined && p.InputID != "" {
		s.see(seenKey(p.Writer, p.InputID), p.Sequence)
	}
	switch p.Disposition {
	case event.Queued:
		s.Queue = append(s.Queue, in)
	case event.EndedAtOnce:
	case event.Joined:
		return s.join(p.Sequence)
	case event.FromQueue:
		i := s.queued(p.Sequence)
		if i < 0 {
			return fmt.Errorf("input %d is not queued", p.Sequence)
		}
		in = s.Queue[i]
		s.Queue = slices.Delete(s.Queue, i, i+1)
		return s.begin(in, p.Deadline)
	case event.Started:
		return s.begin(in, p.Deadline)
	default:
		return fmt.Errorf("unknown disposition %q", p.Disposition)
	}
	return nil
}

func (s *State) begin(in Pending, deadline time.Time) error {
	if s.Turn != nil {
		return fmt.Errorf("turn %s is still open", s.Turn.ID)
	}
	if s.Locked != "" {
		s.reopen()
	}
	s.Turn = &Turn{ID: TurnID(in.Sequence), Pending: in, Started: s.Now, Deadline: deadline, Idle: s.Now}
	s.Turns++
	if s.Title == "" {
		s.Title = text.Cut(in.Text, 80)
	}
	s.hear(in)
	return nil
}

// hear adds an input to what the model sees.
func (s *State) hear(in Pending) {
	text := textOf(in) + in.sender()
	if in.From != "" { // several people may talk in a session
		text += "\n[from " + in.From + "]"
	}
	for _, a := range in.Annotations {
		text += "\n[" + a + "]"
	}
	s.say(provider.Message{Role: provider.RoleUser, Text: text, Files: in.Files, Origin: string(in.Origin)}, in.brought()...)
}

func (s *State) onPlanRequested(p event.PlanRequested) error {
	t := s.Turn
	if t == nil || len(t.Steps) > 0 {
		return fmt.Errorf("plan %s was requested out of order", p.Plan)
	}
	t.Round = p.Round
	if p.Project != nil {
		s.Project, s.ProjectSum = *p.Project, sumOf(*p.Project)
	}
	if p.Question != nil && p.Attempts == 1 {
		t.Questions++
	}
	s.spend(p.Spent)
	if q := p.Question; q != nil && q.Purpose == event.PurposeDecision && p.Attempts == 1 {
		t.asked()
	}
	t.Plan = &Plan{
		ID: p.Plan, Round: p.Round, Attempt: p.Attempt, Attempts: p.Attempts, Refused: p.Refused, Lost: p.Lost,
		Provider: p.Provider, Use: p.Use, Model: p.Model, Not: p.Not,
		StartBy: p.StartBy, NotAfter: p.NotAfter, Tools: p.Tools, System: p.System, Notes: p.Notes, Question: p.Question,
	}
	return nil
}

func (s *State) onPlanCompleted(p event.PlanCompleted) error {
	t := s.Turn
	if t == nil || t.Plan == nil || t.Plan.ID != p.Plan {
		return fmt.Errorf("plan %s is not in progress", p.Plan)
	}
	if p.Response == nil && p.Error == nil {
		return fmt.Errorf("plan %s has neither response nor error", p.Plan)
	}
	if q := t.Plan.Question; q != nil {
		s.onAnswered(*q, p)
		return nil
	}
	if p.Response == nil {
		t.Plan.Error = p.Error.Error()
		s.spend(p.Spent)
		return nil
	}
	r := p.Response
	t.Plan = nil
	t.Idle = s.Now
	s.spend(r.Usage)
	m := provider.Message{Role: provider.RoleAssistant, Text: r.TextContent, ProviderState: r.ProviderState}
	for _, st := range p.Steps {
		t.Steps = append(t.Steps, Step{Step: st, Status: Waiting})
		if st.Parent == "" {
			m.ToolCalls = append(m.ToolCalls, provider.ToolCall{ID: st.CallID, Tool: st.Tool, Args: st.Args})
		}
	}
	for i := range t.Steps {
		if t.isParent(t.Steps[i].Call) {
			t.Steps[i].Status = Expanded
		}
	}
	if m.Text != "" || len(m.ToolCalls) > 0 {
		s.say(m)
	}
	return nil
}

func (s *State) spend(u provider.Usage) {
	s.Turn.Usage = s.Turn.Usage.Add(u)
	s.Usage = s.Usage.Add(u)
}

func (s *State) onActRequested(p event.ActRequested) error {
	st, err := s.open(p.Call)
	if err != nil {
		return err
	}
	st.Status, st.Final, st.Hash, st.ApprovedBy = Assigned, p.Args, p.Hash, p.ApprovedBy
	st.Spec, st.Attempt, st.Attempts, st.Runner = p.Spec, p.Attempt, p.Attempts, p.Runner
	st.StartBy, st.NotAfter = p.StartBy, p.NotAfter
	st.Idempotent, st.Uncertain, st.Sticky = p.Idempotent, p.Uncertain, p.Sticky
	st.Key, st.Probes, st.Probe = p.Key, p.Probes, p.Probe
	st.Commission = p.Commission
	s.sent(p.Commission, p.Args)
	s.lease(p)
	return nil
}

// lease records which runner a sticky call was assigned to.
func (s *State) lease(p event.ActRequested) {
	l, had := s.Leases[p.Sticky]
	switch {
	case p.Sticky == "", !had && len(s.Leases) >= maxLeases:
		return
	case !had:
		l.ID = p.Call
	}
	l.Runner = p.Runner
	if s.Leases == nil {
		s.Leases = map[string]Lease{}
	}
	s.Leases[p.Sticky] = l
}

// ran records which runner ran a sticky call, or may have run it.
func (s *State) ran(st *Step, p event.ActCompleted) {
	l, had := s.Leases[st.Sticky]
	if !had || p.Runner == "" || p.Result.Error != nil && slices.Contains(neverRan, p.Result.Error.Code) {
		return
	}
	l.Ran = p.Runner
	s.Leases[st.Sticky] = l
}

// neverRan lists the codes of calls that certainly did not run.
var neverRan = []tool.Code{
	tool.CodeInvalidArgs, tool.CodeUnknownTool, tool.CodeDenied, tool.CodeExpired, tool.CodeCancelled, tool.CodeNotRun,
	tool.CodeSkipped, tool.CodeInvalidPlan,
}

var obligations = []byte(`"obligations"`)

// onAudited keeps the obligations of a call that may continue. A denial has none.
func (s *State) onAudited(p event.Audited) error {
	if p.Action != event.ActionCall || p.Effect == event.EffectDeny || p.Obligations == nil {
		return nil
	}
	st, err := s.open(p.Call)
	if err != nil {
		return err
	}
	st.Obligations = p.Obligations
	return nil
}

// firstWithAfter is the first fold version in which results bring labels.
const firstWithAfter = 10

func (s *State) onActCompleted(p event.ActCompleted) error {
	st, err := s.open(p.Call)
	if err != nil {
		return err
	}
	st.Status, st.Result, st.Note, st.After = Done, &p.Result, p.Note, p.After
	if s.version < firstWithAfter && s.Turn.isParent(st.Call) {
		st.After = []string{"tool:" + st.Tool} // what its steps brought was not recorded yet
	}
	s.ran(st, p)
	s.reported(p.Tasks)
	s.Turn.limit(p.Skill)
	a := event.Action{Call: p.Call, Tool: p.Tool, Success: p.Result.Success}
	if p.Result.Error != nil {
		a.Code = p.Result.Error.Code
	}
	t := s.Turn
	t.Actions, t.Idle = append(t.Actions, a), s.Now
	if !t.isParent(st.Call) {
		s.Breaker.count(p)
	}
	for i := range t.Steps {
		if t.Steps[i].Parent == "" && t.Steps[i].Status != Done {
			return nil
		}
	}
	s.closeRound()
	return nil
}

func (s *State) onRecorded(p event.Recorded) error {
	if p.Joined != "" {
		return nil
	}
	if p.Command != "" {
		s.choose(p.Provider)
		return nil
	}
	if s.Turn == nil || s.Turn.Sequence != p.Sequence {
		return fmt.Errorf("input %d is not the open turn", p.Sequence)
	}
	s.Turn = nil
	return nil
}

// choose keeps what /provider chose, if anything.
func (s *State) choose(provider string) {
	switch provider {
	case "":
	case commands.DefaultProvider:
		s.Provider = ""
	default:
		s.Provider = provider
	}
}

func (s *State) onTurnFailed(p event.TurnFailed) {
	s.onStopped(p.Stops)
	if s.Turn != nil && s.Turn.Sequence == p.Sequence {
		s.Failed++
		s.abandon()
		return
	}
	if i := s.queued(p.Sequence); i >= 0 {
		s.Queue = slices.Delete(s.Queue, i, i+1)
	}
}

func (s *State) onReset(p event.SessionReset) error {
	s.onStopped(p.Stops)
	if s.Turn != nil {
		return fmt.Errorf("reset with turn %s open", s.Turn.ID)
	}
	s.Window, s.Locked, s.Damage, s.Breaker, s.Leases, s.Summary = nil, "", nil, Breaker{}, nil, nil
	s.Recalled = ""
	s.Grants, s.GrantChain = nil, ""
	s.Chain = chain(s.Chain, []byte("reset"))
	s.WindowBase = s.Chain
	return nil
}

func (s *State) queued(seq uint64) int {
	return slices.IndexFunc(s.Queue, func(p Pending) bool { return p.Sequence == seq })
}

// open finds a step that has no result yet.
func (s *State) open(call string) (*Step, error) {
	if s.Turn != nil {
		if st := s.Turn.step(call); st != nil && st.Status != Done {
			return st, nil
		}
	}
	return nil, fmt.Errorf("call %s is not open", call)
}

func (t *Turn) step(call string) *Step {
	for i := range t.Steps {
		if t.Steps[i].Call == call {
			return &t.Steps[i]
		}
	}
	return nil
}

func (t *Turn) isParent(call string) bool {
	return slices.ContainsFunc(t.Steps, func(s Step) bool { return s.Parent == call })
}

// ready reports whether a waiting step's dependencies are done.
func (t *Turn) ready(st *Step) bool {
	for _, d := range st.DependsOn {
		if dep := t.step(d); dep == nil || dep.Status != Done {
			return false
		}
	}
	return true
}
