package e2etest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Audit judges a log that is at rest against the promises of the design, with
// what the senders were told and what the tools did, and returns every violation
// that it finds.
func Audit(entries []Entry, effects []Effect, acked []Acked) []string {
	a := &audit{log: NewLog(), sessions: map[string]*sessionAudit{}, causes: map[uint64]Entry{}, attempts: map[string]uint64{}, commits: map[string]bool{}, calls: map[string]*callAudit{}, ids: map[string]Entry{}}
	for _, e := range entries {
		a.log.Add(e)
		if e.IsCommit() {
			a.commit(e)
		} else {
			a.causes[e.Seq] = e
			a.storedOnce(e)
			a.session(e.Session()).causes++
		}
	}
	a.bad = append(a.bad, a.log.Bad...)
	a.ends()
	a.results()
	a.effects(effects)
	a.acked(acked)
	return a.bad
}

type audit struct {
	log      *Log
	bad      []string
	sessions map[string]*sessionAudit
	causes   map[uint64]Entry
	attempts map[string]uint64 // nonce -> commit
	commits  map[string]bool   // ids
	calls    map[string]*callAudit
	ids      map[string]Entry // message ids of publishers
}

// sessionAudit is the observer's own, small fold.
type sessionAudit struct {
	name    string
	causes  int
	last    *Commit
	turn    uint64            // the open turn's input
	begun   map[uint64]bool   // inputs that were given a turn
	waiting map[uint64]bool   // queued inputs
	taken   map[string]uint64 // writer/id -> input
}

type callAudit struct {
	step
	session  string
	turn     uint64
	attempts []Assigned
	asked    *fields // the request to a person
	askedAt  uint64
	outcome  string // of asking
	results  []string
}

// storedOnce checks that a publisher who was not answered and asked again has
// stored its cause once, whatever died meanwhile.
func (a *audit) storedOnce(e Entry) {
	for _, id := range e.Header["Nats-Msg-Id"] {
		if before, is := a.ids[id]; is && e.Time.Sub(before.Time) < dedupWindow {
			a.fault("%s: message id %s was stored at %d and again at %d", e.Session(), id, before.Seq, e.Seq)
		}
		a.ids[id] = e
	}
}

// dedupWindow is how long the log is to remember a message id, less some.
const dedupWindow = 100 * time.Second

func (a *audit) session(name string) *sessionAudit {
	s := a.sessions[name]
	if s == nil {
		s = &sessionAudit{name: name, begun: map[uint64]bool{}, waiting: map[uint64]bool{}, taken: map[string]uint64{}}
		a.sessions[name] = s
	}
	return s
}

func (a *audit) fault(format string, args ...any) {
	a.bad = append(a.bad, fmt.Sprintf(format, args...))
}

// commit checks promise 4, as far as it can be seen from outside, and the order
// in which things are decided.
func (a *audit) commit(e Entry) {
	c, err := readCommit(e)
	if err != nil {
		return // the index has said so
	}
	s := a.session(e.Session())
	var prev, cursor uint64
	if s.last != nil {
		prev, cursor = s.last.Seq, s.last.Cursor
		if c.Now.Before(s.last.Now) {
			a.fault("%s: commit %d: its time goes back", s.name, c.Seq)
		}
	}
	switch {
	case c.Prev != prev:
		a.fault("%s: commit %d says that it follows %d; the one before is %d", s.name, c.Seq, c.Prev, prev)
	case c.Cursor < cursor:
		a.fault("%s: commit %d moves the cursor back from %d to %d", s.name, c.Seq, cursor, c.Cursor)
	case c.Cursor >= c.Seq:
		a.fault("%s: commit %d has processed cause %d, which was not there", s.name, c.Seq, c.Cursor)
	case a.commits[c.ID]:
		a.fault("%s: commit %d: its id %s was used before", s.name, c.Seq, c.ID)
	case c.Digest == "":
		a.fault("%s: commit %d has no digest", s.name, c.Seq)
	}
	a.commits[c.ID] = true
	a.trigger(s, c)
	for i, ev := range c.Events {
		f, err := ev.fields()
		if err != nil {
			continue
		}
		if why := a.event(s, &c, ev, f); why != "" {
			a.fault("%s: commit %d, event %d (%s): %s", s.name, c.Seq, i, ev.Type, why)
		}
	}
	if (s.turn == 0) != (c.Driver == 0) {
		a.fault("%s: after commit %d the open turn is that of input %d and the driver %d", s.name, c.Seq, s.turn, c.Driver)
	}
	if d, ok := a.causes[c.Driver]; c.Driver != 0 && (!ok || d.Session() != s.name) {
		a.fault("%s: commit %d: its driver %d is no cause of the session", s.name, c.Seq, c.Driver)
	}
	s.last = &c
}

func (a *audit) trigger(s *sessionAudit, c Commit) {
	if c.Trigger.Kind != "cause" && c.Trigger.Kind != "poison" || c.Trigger.Sequence == 0 {
		return
	}
	cause, ok := a.causes[c.Trigger.Sequence]
	switch {
	case !ok || cause.Session() != s.name:
		a.fault("%s: commit %d: its cause %d is not in the session", s.name, c.Seq, c.Trigger.Sequence)
	case c.Cursor != c.Trigger.Sequence:
		a.fault("%s: commit %d decides about %d and moves the cursor to %d", s.name, c.Seq, c.Trigger.Sequence, c.Cursor)
	case s.last != nil && c.Trigger.Sequence <= s.last.Cursor:
		a.fault("%s: commit %d decides about cause %d again", s.name, c.Seq, c.Trigger.Sequence)
	case c.Trigger.Kind == "cause" && c.Trigger.Writer != cause.Writer():
		a.fault("%s: commit %d says that cause %d is by %s, not %s", s.name, c.Seq, cause.Seq, c.Trigger.Writer, cause.Writer())
	}
}

func (a *audit) event(s *sessionAudit, c *Commit, ev Event, f fields) string {
	switch ev.Type {
	case "skandha.sense.perceived.v1":
		return a.perceived(s, c, f)
	case "skandha.plan.requested.v1":
		if s.turn == 0 {
			return "the model is asked outside a turn"
		}
		return a.fresh(f.Attempt, c.Seq)
	case "skandha.plan.completed.v1":
		return a.planned(s, f)
	case "skandha.act.requested.v1":
		return a.assigned(s, c, f)
	case "skandha.ui.tool_call_request.v1":
		return a.asked(s, c, f)
	case "skandha.act.confirmed.v1":
		return a.confirmed(s, c, f)
	case "skandha.act.completed.v1":
		return a.completed(s, f)
	case "skandha.reflect.recorded.v1", "skandha.turn.failed.v1":
		return a.terminal(s, c, f)
	}
	return ""
}

func (a *audit) fresh(attempt string, seq uint64) string {
	if at, used := a.attempts[attempt]; used || attempt == "" {
		return fmt.Sprintf("attempt %q was begun before, in commit %d", attempt, at)
	}
	a.attempts[attempt] = seq
	return ""
}

func (a *audit) perceived(s *sessionAudit, _ *Commit, f fields) string {
	cause, ok := a.causes[f.Sequence]
	if !ok || cause.Session() != s.name || cause.Kind() != "input" && cause.Kind() != "command" {
		return fmt.Sprintf("%d is no input of the session", f.Sequence)
	}
	if f.InputID != "" && f.Disposition != "from_queue" {
		key := cause.Writer() + "/" + f.InputID
		if before := s.taken[key]; before != 0 {
			return fmt.Sprintf("input id %s was taken before, for %d", key, before)
		}
		s.taken[key] = f.Sequence
	}
	switch f.Disposition {
	case "ended":
		return ""
	case "queued":
		if s.turn == 0 {
			return "an input waits although nothing runs"
		}
		s.waiting[f.Sequence] = true
		return ""
	case "from_queue":
		if !s.waiting[f.Sequence] {
			return "it did not wait"
		}
		delete(s.waiting, f.Sequence)
	}
	switch {
	case s.turn != 0:
		return fmt.Sprintf("the turn of %d begins while that of %d is open", f.Sequence, s.turn)
	case s.begun[f.Sequence]:
		return fmt.Sprintf("the turn of %d begins twice", f.Sequence)
	}
	s.turn, s.begun[f.Sequence] = f.Sequence, true
	return ""
}

func (a *audit) planned(s *sessionAudit, f fields) string {
	if s.turn == 0 {
		return "the model answers outside a turn"
	}
	if len(f.Steps) > 0 {
		for id, k := range a.calls {
			if k.session == s.name && k.turn == s.turn && len(k.results) == 0 {
				return fmt.Sprintf("new calls while %s has no result", id)
			}
		}
	}
	for _, st := range f.Steps {
		if a.calls[st.Call] != nil {
			return fmt.Sprintf("call %s was requested before", st.Call)
		}
		a.calls[st.Call] = &callAudit{step: st, session: s.name, turn: s.turn}
	}
	return ""
}

// open finds a call of the open turn that has no result.
func (a *audit) open(s *sessionAudit, id string) (*callAudit, string) {
	k := a.calls[id]
	switch {
	case k == nil || k.session != s.name:
		return nil, fmt.Sprintf("nobody requested call %q", id)
	case k.turn != s.turn:
		return nil, fmt.Sprintf("call %s belongs to the turn of %d, open is %d", id, k.turn, s.turn)
	case len(k.results) > 0:
		return nil, fmt.Sprintf("call %s has its result already: %s", id, k.results[0])
	}
	return k, ""
}

// assigned checks promises 2 and 3 for an attempt at a call.
func (a *audit) assigned(s *sessionAudit, c *Commit, f fields) string {
	k, why := a.open(s, f.Call)
	if why != "" {
		return why
	}
	if why := a.fresh(f.Attempt, c.Seq); why != "" {
		return why
	}
	for _, dep := range k.DependsOn {
		if d := a.calls[dep]; d == nil || len(d.results) == 0 || d.results[0] != "success" {
			return fmt.Sprintf("call %s begins before %s, on which it depends, has succeeded", f.Call, dep)
		}
	}
	if f.Tool != k.Tool {
		return fmt.Sprintf("call %s is of %s, not %s", f.Call, k.Tool, f.Tool)
	}
	if k.Tool == ToolRisky && k.outcome != "approved" {
		return fmt.Sprintf("call %s of %s is given out without an approval", f.Call, k.Tool)
	}
	if k.asked != nil {
		if k.outcome != "approved" {
			return fmt.Sprintf("call %s is given out although the answer to its request was %q", f.Call, k.outcome)
		}
		if k.asked.Hash != f.Hash || !sameJSON(k.asked.Args, f.Args) {
			return fmt.Sprintf("call %s runs with %s, shown was %s", f.Call, f.Args, k.asked.Args)
		}
	}
	k.attempts = append(k.attempts, Assigned{c.Seq, f.Attempt, f.Runner})
	return ""
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && fmt.Sprint(x) == fmt.Sprint(y)
}

func (a *audit) asked(s *sessionAudit, c *Commit, f fields) string {
	k, why := a.open(s, f.ConfirmationID)
	if why != "" {
		return why
	}
	if k.asked != nil {
		return fmt.Sprintf("a person is asked twice about %s", f.ConfirmationID)
	}
	k.asked, k.askedAt = &f, c.Seq
	return ""
}

// confirmed checks promise 3: who said so, when, and about what.
func (a *audit) confirmed(s *sessionAudit, c *Commit, f fields) string {
	k, why := a.open(s, f.Call)
	if why != "" {
		return why
	}
	if k.asked == nil || k.outcome != "" {
		return fmt.Sprintf("call %s does not wait for an answer (the last was %q)", f.Call, k.outcome)
	}
	k.outcome = f.Outcome
	cause := a.causes[c.Trigger.Sequence]
	var said struct {
		ID             string `json:"id"`
		ConfirmationID string `json:"confirmation_id"`
		Hash           string `json:"hash"`
		Approved       bool   `json:"approved"`
	}
	if err := json.Unmarshal(cause.Data, &said); err != nil {
		return "what was said cannot be read: " + err.Error()
	}
	if cause.Session() != s.name || cause.Seq <= k.askedAt {
		return fmt.Sprintf("cause %d cannot mean the request in commit %d", cause.Seq, k.askedAt)
	}
	if f.Outcome == "expired" {
		switch {
		case cause.Kind() != "timer" || cause.Writer() != "core" || said.ID != f.Call:
			return fmt.Sprintf("expired, but cause %d is no timer of %s", cause.Seq, f.Call)
		case cause.Time.Before(k.asked.ExpiresAt):
			return fmt.Sprintf("expired %v early", k.asked.ExpiresAt.Sub(cause.Time))
		}
		return ""
	}
	switch {
	case cause.Kind() != "confirmation" || said.ConfirmationID != f.Call || f.By != cause.Writer():
		return fmt.Sprintf("cause %d by %s is no answer about %s", cause.Seq, cause.Writer(), f.Call)
	case said.Hash != k.asked.Hash:
		return "the answer is about other arguments than were shown"
	case said.Approved != (f.Outcome == "approved"):
		return fmt.Sprintf("%s, but the person said approved=%v", f.Outcome, said.Approved)
	case !cause.Time.Before(k.asked.ExpiresAt):
		return "the answer counts although the request had expired"
	}
	return ""
}

func (a *audit) completed(s *sessionAudit, f fields) string {
	k, why := a.open(s, f.Call)
	if why != "" {
		return why
	}
	k.results = append(k.results, f.Result.outcome())
	if len(k.attempts) > 0 {
		return ""
	}
	switch out := k.results[0]; out {
	case "tool_failed", "timeout", "outcome_unknown", "success":
		if k.Tool != "plan:execute" {
			return fmt.Sprintf("call %s ended as %s and was never given out", f.Call, out)
		}
	}
	return ""
}

func (a *audit) terminal(s *sessionAudit, _ *Commit, f fields) string {
	cause, ok := a.causes[f.Sequence]
	if !ok || cause.Session() != s.name {
		return fmt.Sprintf("%d is no cause of the session", f.Sequence)
	}
	delete(s.waiting, f.Sequence)
	if s.turn != f.Sequence {
		if s.begun[f.Sequence] {
			return fmt.Sprintf("the turn of %d ends again", f.Sequence)
		}
		return ""
	}
	s.turn = 0
	for id, k := range a.calls {
		if k.session == s.name && k.turn == f.Sequence && len(k.results) == 0 {
			return fmt.Sprintf("the turn of %d ends, and call %s has no result", f.Sequence, id)
		}
	}
	return ""
}

// ends checks promise 1.
func (a *audit) ends() {
	for _, e := range a.causes {
		n := len(a.log.Terminals[e.Seq])
		switch {
		case e.MustEnd() && n != 1:
			a.fault("%s: %s at %d has %d terminal events: %v", e.Session(), e.Kind(), e.Seq, n, a.log.Terminals[e.Seq])
		case !e.MustEnd() && n > 1:
			a.fault("%s: %s at %d has %d terminal events: %v", e.Session(), e.Kind(), e.Seq, n, a.log.Terminals[e.Seq])
		}
	}
	for _, s := range a.sessions {
		if s.turn != 0 {
			a.fault("%s: the turn of %d is still open", s.name, s.turn)
		}
		for seq := range s.waiting {
			a.fault("%s: input %d still waits", s.name, seq)
		}
	}
}

// results checks that every requested call has its one result.
func (a *audit) results() {
	for id, k := range a.calls {
		if len(k.results) != 1 {
			a.fault("%s: call %s has %d results: %v", k.session, id, len(k.results), k.results)
		}
	}
}

// didNotRun are the results which say that the call certainly had no effect.
var didNotRun = []string{
	"cancelled", "not_run", "skipped", "denied", "confirmation_expired",
	"invalid_arguments", "unknown_tool", "invalid_plan",
}

// effects checks promise 2 against what the tools did.
func (a *audit) effects(effects []Effect) {
	did := map[string][]Effect{}
	for _, e := range effects {
		did[e.Call] = append(did[e.Call], e)
		k := a.calls[e.Call]
		if k == nil {
			a.fault("an effect of call %s, which nobody requested", e.Call)
			continue
		}
		i := slices.IndexFunc(k.attempts, func(at Assigned) bool { return at.Attempt == e.Attempt })
		if i < 0 || k.attempts[i].Runner != e.Runner {
			a.fault("%s: an effect of call %s at %s in attempt %s, which was never given to it", k.session, e.Call, e.Runner, e.Attempt)
		}
	}
	for id, k := range a.calls {
		lines := did[id]
		perAttempt := map[string]int{}
		for _, e := range lines {
			if perAttempt[e.Attempt]++; perAttempt[e.Attempt] == 2 {
				a.fault("%s: attempt %s at call %s ran twice", k.session, e.Attempt, id)
			}
		}
		if len(k.results) == 0 || !strings.HasPrefix(k.Tool, "e2e:") {
			continue // its effects are not in the file
		}
		result := k.results[0]
		switch {
		case k.Tool != ToolAgain && len(lines) > 1:
			a.fault("%s: call %s of %s, which is not idempotent, had its effect %d times: %s", k.session, id, k.Tool, len(lines), where(lines))
		case slices.Contains(didNotRun, result) && len(lines) > 0:
			a.fault("%s: call %s of %s ended as %s and had its effect: %s", k.session, id, k.Tool, result, where(lines))
		case result == "success" && len(lines) == 0:
			a.fault("%s: call %s of %s succeeded without an effect", k.session, id, k.Tool)
		}
	}
}

func where(lines []Effect) string {
	var out []string
	for _, e := range lines {
		out = append(out, fmt.Sprintf("at %s by %s, attempt %s", e.At.Format(time.StampMilli), e.Runner, e.Attempt))
	}
	return strings.Join(out, "; ")
}

// acked checks that what senders were told is true.
func (a *audit) acked(acked []Acked) {
	for _, x := range acked {
		e, ok := a.causes[x.Seq]
		switch {
		case !ok:
			a.fault("%s at %d was acknowledged and is not in the log", x.Subject, x.Seq)
		case e.Subject != x.Subject || string(e.Data) != x.Body:
			a.fault("%s was acknowledged at %d, where the log has %s", x.Subject, x.Seq, e.Subject)
		}
	}
}
