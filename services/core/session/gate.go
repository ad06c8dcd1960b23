package session

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

// gates keep the inputs of an agent waiting that are over its limits: of turns at once, and of
// inputs per minute. They count what this core does. An input that waits is delivered and not
// decided, so that it counts as backlog, and its session takes up later inputs after it.
//
// Sessions wait in one line per agent. While others wait, a session with a turn queues no more
// inputs behind it: after the turn it goes to the end of the line, as any other.
type gates struct {
	mu       sync.Mutex
	agents   map[subject.Agent]*gate
	sessions *lru.Cache[subject.Ref, *bucket] // of inputs per minute
}

type gate struct {
	running map[*session]bool // those with a turn that does not wait for people
	line    line[*session]
	waiting map[*session]bool // those in the line
	inputs  bucket
}

// bucket holds how many inputs may be taken up now: up to those of a minute.
type bucket struct {
	left float64
	at   time.Time // when it was filled last; zero: never
}

// maxBuckets is how many sessions' inputs per minute are counted at once.
const maxBuckets = 10_000

// fill adds what has become free since the last time, and reports whether an input may be taken.
func (b *bucket) fill(perMinute int, now time.Time) bool {
	switch {
	case perMinute <= 0:
		return true
	case b.at.IsZero():
		b.left = float64(perMinute)
	default:
		b.left = min(float64(perMinute), b.left+now.Sub(b.at).Minutes()*float64(perMinute))
	}
	b.at = now
	return b.left >= 1
}

func newGates() (*gates, error) {
	sessions, err := lru.New[subject.Ref, *bucket](maxBuckets)
	return &gates{agents: map[subject.Agent]*gate{}, sessions: sessions}, err
}

// of returns the gate of an agent. The caller holds the lock.
func (g *gates) of(a subject.Agent) *gate {
	at := g.agents[a]
	if at == nil {
		at = &gate{running: map[*session]bool{}, waiting: map[*session]bool{}}
		g.agents[a] = at
	}
	return at
}

// enter reports whether the session may take up its next input. If not, it waits in the line,
// and is woken when it may be its turn.
func (g *gates) enter(s *session, l decide.Limits, person bool, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.of(s.ref.Agent)
	if b, known := g.sessions.Get(s.ref); known && !b.fill(l.SessionInputsPerMinute, now) {
		if at.waiting[s] { // it must not hold up others
			at.line.drop(s)
			delete(at.waiting, s)
			at.wake(l)
		}
		return false
	}
	first, busy := at.line.first()
	room := l.Turns <= 0 || at.running[s] || len(at.running) < l.Turns
	if !room || !at.inputs.fill(l.InputsPerMinute, now) || busy && first != s {
		at.line.add(s, at.waiting[s], person)
		at.waiting[s] = true
		return false
	}
	if busy {
		at.line.take()
		delete(at.waiting, s)
	}
	at.running[s] = true
	at.wake(l)
	return true
}

// took counts an input that the session has taken up.
func (g *gates) took(s *session, l decide.Limits, now time.Time) {
	if !l.Gated() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.of(s.ref.Agent).inputs.left--
	b, known := g.sessions.Get(s.ref)
	if !known {
		b = &bucket{}
		b.fill(l.SessionInputsPerMinute, now)
		g.sessions.Add(s.ref, b)
	}
	b.left--
}

// keep notes what the session does: whether it has a turn that runs, and an input that waits.
func (g *gates) keep(s *session, l decide.Limits, running, waits bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.agents[s.ref.Agent]
	if at == nil {
		if !running || !l.Gated() {
			return
		}
		at = g.of(s.ref.Agent)
	}
	freed := false
	if running && l.Gated() {
		at.running[s] = true
	} else if at.running[s] {
		delete(at.running, s)
		freed = true
	}
	if !waits && at.waiting[s] {
		at.line.drop(s)
		delete(at.waiting, s)
		freed = true
	}
	switch {
	case len(at.running)+len(at.waiting) == 0 && !l.Gated():
		delete(g.agents, s.ref.Agent)
	case freed:
		at.wake(l)
	}
}

// wake wakes the next session if it may enter. The caller holds the lock.
func (at *gate) wake(l decide.Limits) {
	if next, ok := at.line.first(); ok && (l.Turns <= 0 || len(at.running) < l.Turns) {
		next.mailbox.put(pokeMail{})
	}
}

// len returns how many sessions wait for a limit of their agent.
func (g *gates) len() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, at := range g.agents {
		n += at.line.len()
	}
	return n
}

// limits returns the limits of the session's agent.
func (s *session) limits() decide.Limits {
	if a := s.Plugins.Agent(s.ref.Agent); a != nil {
		return a.Limits
	}
	return decide.Limits{}
}

// admitted reports whether the limits of the agent let the held input be decided now.
func (s *session) admitted(h *held) bool {
	l := s.limits()
	if h.at.Writer == subject.AgentWriter { // the turn of another session waits for it
		return true
	}
	return !l.Gated() || s.set.gates.enter(s, l, h.forPerson(), time.Now())
}

// keepGate tells the gate of the agent what the session does now.
func (s *session) keepGate() {
	running := s.driving() && s.state.Turn != nil && !s.state.Parked()
	waits := false
	if s.state != nil {
		waits = s.nextInput(max(s.state.Cursor, s.passed)) != 0
	}
	s.set.gates.keep(s, s.limits(), running, waits)
}

// counts notes that a commit has taken up an input.
func (s *session) counts(t event.Trigger) {
	if t.Kind == event.ByCause && t.Cause == subject.Input {
		s.set.gates.took(s, s.limits(), time.Now())
	}
}
