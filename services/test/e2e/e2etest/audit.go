package e2etest

import (
	"fmt"
	"time"
)

// Audit judges a log that is at rest against the promises of the design, with
// what the senders were answered and what the tools did, and returns every violation
// that it finds.
func Audit(entries []Entry, effects []Effect, acked []Acked) []string {
	a := &audit{
		log: NewLog(), sessions: map[string]*sessionAudit{}, causes: map[uint64]Entry{}, attempts: map[string]uint64{},
		commits: map[string]bool{}, calls: map[string]*callAudit{}, ids: map[string]Entry{},
	}
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
	a.answers()
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
	first   uint64 // the first cause that a commit decides about
	last    *Commit
	turn    uint64            // the open turn's input
	begun   map[uint64]bool   // inputs that were given a turn
	waiting map[uint64]bool   // queued inputs
	taken   map[string]uint64 // writer/id -> input
	granted map[string]bool   // hashes of calls that need no approval any more
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
		s = &sessionAudit{
			name: name, begun: map[uint64]bool{}, waiting: map[uint64]bool{}, taken: map[string]uint64{},
			granted: map[string]bool{},
		}
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
	if s.first == 0 {
		s.first = c.Trigger.Sequence
	}
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
		a.fault("%s: commit %d says that cause %d is by %s, not %s", s.name, c.Seq, cause.Seq, c.Trigger.Writer,
			cause.Writer())
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
	case "skandha.session.reset.v1":
		clear(s.granted)
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

// answers checks that every answer to a session that was there was decided, once:
// it counts, or is refused where everybody can see it.
func (a *audit) answers() {
	for _, e := range a.causes {
		if e.Kind() != "confirmation" || !wellFormed(e.Subject) || len(a.log.Terminals[e.Seq]) > 0 { // poison
			continue
		}
		want := 1
		if first := a.session(e.Session()).first; first == 0 || e.Seq < first {
			want = 0
		}
		if got := a.log.Answered[e.Seq]; len(got) != want {
			a.fault("%s: the answer at %d was decided %d times: %v", e.Session(), e.Seq, len(got), got)
		}
	}
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

// acked checks that the answers to senders are true.
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
