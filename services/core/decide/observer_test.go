package decide_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
)

// observer reads only public data, the causes and the commits' events, and checks the
// promises. It shares no code with the fold.
type observer struct {
	causes map[uint64]storedCause // every one

	rev, cursor, driver uint64
	now                 time.Time
	ids                 map[string]bool

	open      string            // the open turn
	inputs    map[string]uint64 // turn -> its input
	began     map[string]uint64 // turn -> the commit that began it
	terminals map[uint64]int    // input -> how many terminal events
	calls     map[string]*callSeen
	plans     map[string][]string // plan -> tools offered
	waiting   []uint64            // inputs that were queued, in the log's order
	taken     map[string]bool     // writer and id of accepted inputs
	order     []string            // calls, as they were planned
	grants    []event.Grant       // since the last reset
	answers   map[uint64]int      // confirmation -> how often it was decided
	first     uint64              // the first cause that was committed
	paused    bool
	joins     map[uint64]uint64 // inputs that have joined a turn -> its input

	// What the simulation knows about the world outside the log.
	answered  map[string]bool                 // calls that a before_act hook answered
	judges    bool                            // there are judges at before_act
	judged    map[judgement]hook.Verb         // the latest
	specs     map[string]map[string]tool.Spec // by name and digest, those that a tool has had
	refusedBy map[string]bool                 // attempts that said never or refused
	risky     map[string]bool                 // tools that need a person
	codes     map[tool.Code]int               // of results, for the statistics of a run
	successes map[string]int                  // by tool
	failures  map[event.FailCode]int
	audits    map[string]int // by action, rule and effect
}

// judgement identifies what the judges were asked about.
type judgement struct{ call, args string }

// passed reports whether the judges, since the call was last assigned or shown to a
// person, have let exactly this call pass, or required a confirmation.
func (o *observer) passed(call string, args json.RawMessage) bool {
	verb := o.judged[judgement{call, string(args)}]
	return verb == hook.Continue || verb == hook.Confirm
}

// callSeen is what the log records about one call.
type callSeen struct {
	approvers []string // people, while more must approve
	event.Step
	turn      string
	audited   *event.Audited
	barred    bool // it passed, and may no longer run
	asked     *event.ToolCallRequest
	askedAt   uint64
	askedFor  int // how many attempts there were before
	confirmed *event.ActConfirmed
	requests  []event.ActRequested
	completed *event.ActCompleted
}

func newObserver() *observer {
	return &observer{
		causes: map[uint64]storedCause{}, ids: map[string]bool{}, inputs: map[string]uint64{},
		began: map[string]uint64{}, terminals: map[uint64]int{}, calls: map[string]*callSeen{},
		plans: map[string][]string{}, taken: map[string]bool{}, answered: map[string]bool{}, refusedBy: map[string]bool{},
		answers: map[uint64]int{}, judged: map[judgement]hook.Verb{}, specs: map[string]map[string]tool.Spec{},
		risky: map[string]bool{"mail:send": true}, codes: map[tool.Code]int{}, successes: map[string]int{},
		failures: map[event.FailCode]int{},
		audits:   map[string]int{},
	}
}

// commit checks one commit, stored at seq and decided at delivery.
func (o *observer) commit(c event.Commit, seq, delivery uint64) error {
	h := c.Header
	switch {
	case h.Prev != o.rev:
		return fmt.Errorf("it follows %d, the last commit is %d", h.Prev, o.rev)
	case h.Cursor < o.cursor:
		return fmt.Errorf("the cursor goes back from %d to %d", o.cursor, h.Cursor)
	case h.Now.Before(o.now):
		return fmt.Errorf("time goes back from %s to %s", o.now, h.Now)
	case (h.Trigger.Kind == event.ByCause || h.Trigger.Kind == event.ByPoison && h.Trigger.Sequence > 0) &&
		h.Cursor != h.Trigger.Sequence:
		return fmt.Errorf("the cursor is %d after cause %d", h.Cursor, h.Trigger.Sequence)
	case h.Trigger.Sequence == 0 && h.Cursor != o.cursor:
		return errors.New("the cursor moved without a cause")
	case h.Trigger.Kind == event.ByPoison && h.Trigger.Sequence > 0 && len(h.Hooks) > 0:
		return errors.New("hooks were asked about poison")
	case !h.Now.Equal(h.Now.Truncate(time.Millisecond)):
		return fmt.Errorf("time %s is finer than a millisecond", h.Now)
	}
	if o.first == 0 {
		o.first = h.Trigger.Sequence
	}
	touched := false
	for i, e := range c.Events {
		about, err := o.witness(c, e, seq)
		if err != nil {
			return fmt.Errorf("event %d, %s: %w", i, e.Type, err)
		}
		touched = touched || about
		if o.ids[e.ID] || !e.Time.Equal(h.Now) {
			return fmt.Errorf("event %d has the id %s, perhaps of another, and happened at %s, its commit at %s", i, e.ID, e.Time, h.Now)
		}
		o.ids[e.ID] = true
	}
	want := o.driver // rule 3: unchanged by pure queueing
	if o.open == "" {
		want = 0
	} else if touched || h.Trigger.Kind == event.ByPoison && o.expired(h.Now) {
		want = delivery
	}
	if h.Driver != want {
		return fmt.Errorf("the driver is %d, want %d (turn %q, touched %t, delivery %d)", h.Driver, want, o.open, touched,
			delivery)
	}
	o.rev, o.cursor, o.driver, o.now = seq, h.Cursor, h.Driver, h.Now
	return nil
}

// expired reports whether a request has expired: if the poisonous cause was its timer, a
// core must drive until the request is ended otherwise.
func (o *observer) expired(now time.Time) bool {
	for _, c := range o.calls {
		if c.asked != nil && c.confirmed == nil && c.completed == nil && !now.Before(c.asked.ExpiresAt) {
			return true
		}
	}
	return false
}

// event checks one event; about says whether it changes the open turn.
func (o *observer) event(c event.Commit, e event.Event, seq uint64) (about bool, err error) {
	switch e.Type {
	case event.TypePerceived:
		return see(e, func(p event.Perceived) (bool, error) { return o.perceived(e, p, seq) })
	case event.TypePlanRequested:
		return see(e, func(p event.PlanRequested) (bool, error) {
			o.plans[p.Plan] = p.Tools
			for _, name := range p.Tools {
				if spec, known := catalog[name]; name != "plan:execute" && name != "tools:find" && (!known || spec.Internal) {
					return true, fmt.Errorf("tool %q is offered", name)
				}
			}
			return true, o.inTurn(e, p.Plan)
		})
	case event.TypePlanCompleted:
		return see(e, func(p event.PlanCompleted) (bool, error) { return true, o.planned(e, p) })
	case event.TypeAudited:
		return see(e, func(p event.Audited) (bool, error) { return o.audited(c, e, p) })
	case event.TypeSessionReset:
		o.grants = nil
	case event.TypeToolCallRequest:
		return see(e, func(p event.ToolCallRequest) (bool, error) { return true, o.asked(p, seq) })
	case event.TypeActApproved:
		return see(e, func(p event.ActApproved) (bool, error) { return false, o.approved(c, p) })
	case event.TypeActConfirmed:
		return see(e, func(p event.ActConfirmed) (bool, error) { return true, o.confirmed(c, p) })
	case event.TypeActRequested:
		return see(e, func(p event.ActRequested) (bool, error) { return true, o.requested(c, e, p) })
	case event.TypeActCompleted:
		return see(e, func(p event.ActCompleted) (bool, error) { return true, o.completed(e, p) })
	case event.TypeRecorded:
		return see(e, func(p event.Recorded) (bool, error) { return o.terminal(c, e, p.Sequence, "") })
	case event.TypeTurnFailed:
		return see(e, func(p event.TurnFailed) (bool, error) {
			o.failures[p.Code]++
			return o.terminal(c, e, p.Sequence, p.Code)
		})
	}
	return false, nil
}

func see[P any, PP interface {
	*P
	event.Payload
}](e event.Event, f func(P) (bool, error)) (bool, error) {
	var p P
	if err := e.DataAs(PP(&p)); err != nil {
		return false, err
	}
	return f(p)
}

func (o *observer) perceived(e event.Event, p event.Perceived, seq uint64) (bool, error) {
	if p.Disposition == event.Joined {
		return true, o.joined(e, p)
	}
	if o.terminals[p.Sequence] > 0 {
		return false, fmt.Errorf("input %d has ended", p.Sequence)
	}
	id := string(p.Writer) + " " + p.InputID
	switch {
	case p.Disposition == event.FromQueue:
		if len(o.waiting) == 0 || o.waiting[0] != p.Sequence {
			return false, fmt.Errorf("input %d starts while %v wait", p.Sequence, o.waiting)
		}
		o.waiting = o.waiting[1:]
	case p.InputID != "" && o.taken[id]:
		return false, fmt.Errorf("the input %q was taken before", id)
	}
	o.taken[id] = true
	if p.Disposition == event.Queued {
		o.waiting = append(o.waiting, p.Sequence)
	}
	if p.Disposition != event.Started && p.Disposition != event.FromQueue {
		return false, nil
	}
	if o.open != "" {
		return false, fmt.Errorf("turn %s is open", o.open)
	}
	o.open = decide.TurnID(p.Sequence)
	o.inputs[o.open], o.began[o.open] = p.Sequence, seq
	return true, o.inTurn(e, o.open)
}

// inTurn checks that the event, and what it refers to, belong to the open turn.
func (o *observer) inTurn(e event.Event, of string) error {
	if o.open == "" || e.Turn != o.open || of != o.open && !strings.HasPrefix(of, o.open+"-") {
		return fmt.Errorf("%s of turn %q while turn %q is open", of, e.Turn, o.open)
	}
	return nil
}

func (o *observer) planned(e event.Event, p event.PlanCompleted) error {
	if o.plans[p.Plan] == nil {
		return fmt.Errorf("plan %s was not requested", p.Plan)
	}
	for _, st := range p.Steps {
		if o.calls[st.Call] != nil {
			return fmt.Errorf("call %s was planned before", st.Call)
		}
		o.calls[st.Call] = &callSeen{Step: st, turn: o.open}
		o.order = append(o.order, st.Call)
	}
	return o.inTurn(e, p.Plan)
}

// pending returns a call without a result.
func (o *observer) pending(call string) (*callSeen, error) {
	c := o.calls[call]
	if c == nil {
		return nil, fmt.Errorf("call %s was never planned", call)
	}
	if c.completed != nil {
		return nil, fmt.Errorf("call %s has its result", call)
	}
	return c, nil
}

func (o *observer) asked(p event.ToolCallRequest, seq uint64) error {
	c, err := o.pending(p.ConfirmationID)
	switch {
	case err != nil:
		return err
	case c.asked != nil && (c.asked.Hash == p.Hash || c.confirmed == nil || c.confirmed.Outcome != event.Approved):
		return fmt.Errorf("call %s was asked about before", p.ConfirmationID)
	case len(c.requests) > 0 && c.requests[len(c.requests)-1].Hash == p.Hash:
		return fmt.Errorf("call %s was given out before", p.ConfirmationID)
	}
	is := o.specOf(p.ToolName, p.Args, p.Answer, p.Hash)
	if is == nil || p.Owner != is.Plugin {
		return fmt.Errorf("hash %s is not that of what is shown", p.Hash)
	}
	if p.Answer != nil && !o.answered[p.ConfirmationID] {
		return fmt.Errorf("no plugin has answered call %s", p.ConfirmationID)
	}
	if o.judges && !o.passed(p.ConfirmationID, p.Args) {
		return fmt.Errorf("a person is asked about %s, which no judge has let pass", p.Args)
	}
	delete(o.judged, judgement{p.ConfirmationID, string(p.Args)})
	c.asked, c.askedAt, c.askedFor, c.confirmed, c.approvers = &p, seq, len(c.requests), nil, nil
	return o.askedAsAudited(c)
}

// confirmed checks that an approval is for one call with exactly the arguments shown,
// requested earlier, in time, and once; anything else is not an approval (promise 3).
func (o *observer) confirmed(c event.Commit, p event.ActConfirmed) error {
	call, err := o.pending(p.Call)
	if err != nil {
		return err
	}
	t := c.Header.Trigger
	cause := o.causes[t.Sequence]
	var said event.Confirmation
	var timer event.Timer
	switch {
	case call.asked == nil:
		return errors.New("nobody was asked")
	case call.confirmed != nil:
		return errors.New("it was answered before")
	case t.Kind == event.ByProgress && p.Outcome == event.Expired &&
		!c.Header.Now.Before(call.asked.ExpiresAt.Add(30*time.Second)):
		// its timer was lost
	case t.Kind != event.ByCause || t.Sequence <= call.askedAt:
		return fmt.Errorf("it was asked at %d, the trigger is %+v", call.askedAt, t)
	case p.Outcome == event.Expired:
		if t.Cause != subject.Timer || t.Writer != subject.TimerWriter ||
			event.DecodeCause([]byte(cause.body), &timer) != nil ||
			timer.ID != p.Call {
			return fmt.Errorf("it expired by %+v", t)
		}
	case t.Cause != subject.Confirmation || event.DecodeCause([]byte(cause.body), &said) != nil:
		return fmt.Errorf("it was answered by %+v", t)
	case said.ConfirmationID != p.Call || said.Hash != call.asked.Hash || said.Approved != (p.Outcome == event.Approved):
		return fmt.Errorf("%s by %+v", p.Outcome, said)
	case !cause.Time.Before(call.asked.ExpiresAt):
		return fmt.Errorf("the answer of %s came after %s", cause.Time, call.asked.ExpiresAt)
	case p.By != cause.Writer:
		return fmt.Errorf("it was answered by %s, not by %s", cause.Writer, p.By)
	}
	if a := call.asked.Approval; a != nil && p.Outcome == event.Approved {
		switch {
		case slices.ContainsFunc(p.Others, func(o string) bool { return !slices.Contains(call.approvers, o) }),
			slices.Contains(p.Others, p.Person):
			return fmt.Errorf("%s and %v have approved, and before %v", p.Person, p.Others, call.approvers)
		case len(p.Others)+1 < a.People || p.Person == "" || p.Person == a.Requester:
			return fmt.Errorf("%s and %v are not enough for %+v", p.Person, p.Others, a)
		}
	}
	call.confirmed = &p
	return o.granting(t, call, said)
}

// specOf returns the spec, among those that the tool has had, that matches the hash.
func (o *observer) specOf(name string, args json.RawMessage, instead *event.Answered, hash string) *tool.Spec {
	for _, spec := range o.specs[name] {
		if decide.Hash(spec, args, instead) == hash {
			return &spec
		}
	}
	return nil
}

func (o *observer) requested(c event.Commit, e event.Event, p event.ActRequested) error {
	call, err := o.pending(p.Call)
	if err != nil {
		return err
	}
	plan := p.Call[:strings.LastIndex(p.Call, "-c")]
	spec := catalog[p.Tool]
	switch {
	case p.Tool != call.Tool || o.specOf(p.Tool, p.Args, nil, p.Hash) == nil:
		return fmt.Errorf("%s with hash %s is not what was planned, or shown", p.Tool, p.Hash)
	case spec.Internal || !slices.Contains(o.plans[plan], p.Tool) || p.Tool == "forbidden":
		return fmt.Errorf("tool %q may not be called here (offered: %v)", p.Tool, o.plans[plan])
	case call.asked != nil && call.asked.Hash == p.Hash:
		switch {
		case call.confirmed == nil || call.confirmed.Outcome != event.Approved:
			return errors.New("nobody has approved it")
		case p.ApprovedBy != call.confirmed.By || call.asked.Answer != nil:
			return fmt.Errorf("what runs is not what %s approved", call.confirmed.By)
		}
	case o.risky[p.Tool] && !call.granted() || p.ApprovedBy != "":
		return fmt.Errorf("%s needs a person, and nobody was asked", p.Tool)
	}
	switch {
	case o.judges && !o.passed(p.Call, p.Args):
		return fmt.Errorf("no judge has let %s pass", p.Args)
	case p.Attempts != len(call.requests)+1:
		return fmt.Errorf("attempt %d follows %d others", p.Attempts, len(call.requests))
	}
	if _, errs := spec.Validate(p.Args); len(errs) > 0 {
		return fmt.Errorf("its arguments %s do not fit: %v", p.Args, errs)
	}
	for _, d := range call.DependsOn {
		if dep := o.calls[d]; dep == nil || dep.completed == nil || !dep.completed.Result.Success {
			return fmt.Errorf("it depends on %s, which has not succeeded", d)
		}
	}
	if n := len(call.requests); n > 0 {
		last := call.requests[n-1]
		t := c.Header.Trigger
		approved := t.Kind == event.ByCause && t.Cause == subject.Confirmation && call.askedFor == n
		if !approved && (t.Kind != event.ByReply || t.Call != p.Call || t.Attempt != last.Attempt) {
			return fmt.Errorf("a new attempt without an answer about the one before: %+v", t)
		}
		if p.Probe.IsZero() && (!last.Probe.IsZero() || !last.Idempotent && !o.refusedBy[last.Attempt]) {
			return fmt.Errorf("attempt %s may have run, and %s is not idempotent", last.Attempt, p.Tool)
		}
		if p.Key != last.Key {
			return fmt.Errorf("the key was %s, and is %s", last.Key, p.Key)
		}
	}
	if !p.Probe.IsZero() && (len(call.requests) == 0 || !spec.Probe || !p.Uncertain) {
		return fmt.Errorf("a probe of a call that never ran, or that cannot be probed: %+v", p)
	}
	if err := o.asAudited(call, c.Header.Now, p); err != nil {
		return err
	}
	delete(o.judged, judgement{p.Call, string(p.Args)})
	call.requests = append(call.requests, p)
	return o.inTurn(e, p.Call)
}

func (o *observer) completed(e event.Event, p event.ActCompleted) error {
	call, err := o.pending(p.Call)
	if err != nil {
		return err
	}
	if !p.Result.Success {
		if p.Result.Error == nil {
			return errors.New("a failure without a reason")
		}
		o.codes[p.Result.Error.Code]++
	}
	if p.Result.Success {
		o.successes[p.Tool]++
	}
	if err := call.obliged(p); err != nil {
		return err
	}
	call.completed = &p
	return o.inTurn(e, p.Call)
}

// terminal checks for exactly one terminal event per input, after the results of all its
// calls.
func (o *observer) terminal(c event.Commit, e event.Event, seq uint64, code event.FailCode) (bool, error) {
	if o.terminals[seq]++; o.terminals[seq] > 1 {
		return false, fmt.Errorf("input %d ends a second time", seq)
	}
	if o.causes[seq].Sequence == 0 {
		return false, fmt.Errorf("input %d was never stored", seq)
	}
	t := c.Header.Trigger
	o.waiting = slices.DeleteFunc(o.waiting, func(w uint64) bool { return w == seq })
	if t.Kind == event.ByCause && t.Cause == subject.Cancel && code == event.FailCancelled {
		var x event.Cancel
		by, in := o.causes[t.Sequence], o.causes[seq]
		if err := event.DecodeCause([]byte(by.body), &x); err != nil ||
			x.Sequence != seq && o.joins[x.Sequence] != seq && (x.Sequence != 0 || by.Writer != in.Writer) {
			return false, fmt.Errorf("the cancel %s of %s hit input %d of %s", by.body, by.Writer, seq, in.Writer)
		}
	}
	if o.open == "" || o.inputs[o.open] != seq {
		if e.Turn != "" {
			return false, fmt.Errorf("it says turn %s of input %d", e.Turn, seq)
		}
		return false, nil
	}
	if code == event.FailCancelled && o.began[o.open] > t.Sequence && t.Cause == subject.Command {
		return false, fmt.Errorf("a /cancel stored at %d hit a turn that began at %d", t.Sequence, o.began[o.open])
	}
	for _, call := range o.order {
		if x := o.calls[call]; x.turn == o.open && x.completed == nil {
			return false, fmt.Errorf("call %s has no result yet", call)
		}
	}
	err := o.inTurn(e, o.open)
	o.open = ""
	return true, err
}

// finished checks what must hold once nothing is in progress.
func (o *observer) finished(poisoned map[uint64]bool) error {
	if o.open != "" {
		return fmt.Errorf("turn %s is still open", o.open)
	}
	for seq, c := range o.causes {
		want := 1
		switch c.Kind {
		case subject.Cancel, subject.Confirmation, subject.Timer:
			want = 0
		}
		if poisoned[seq] {
			want = 1
		}
		if o.terminals[seq] != want {
			return fmt.Errorf("cause %d (%s) has %d terminal events, want %d", seq, c.Kind, o.terminals[seq], want)
		}
	}
	for id, c := range o.calls {
		if c.completed == nil {
			return fmt.Errorf("call %s has no result", id)
		}
	}
	return o.answersAreDecided(poisoned)
}
