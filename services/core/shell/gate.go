package shell

import (
	"container/list"
	"sync"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

const (
	// appendsAtOnce bounds the commits of this core that are on their way to the log.
	// The server stores them one after the other: more of them store nothing sooner, and
	// make everything else on the connection wait, until its pings go unanswered.
	appendsAtOnce = 64
	// inputsAtOnce bounds those among them that take up an input. While others append,
	// too, startsBeside of them may begin a turn and queuesBeside only queue behind one.
	// When thousands of inputs come at once, each step of the turns that run would
	// otherwise wait behind so many inputs.
	inputsAtOnce = 16
	startsBeside = 8
	queuesBeside = 2
	// lately is for how long after a step of a turn an input that queues rests: as long
	// as its append took, no other one begins. On a busy machine it is not the log alone
	// that they would take from the turns.
	lately = 100 * time.Millisecond
	// crowded is how long an input may wait for its append before no more causes are
	// asked for. Each that was delivered must be extended again and again.
	crowded = 100 * time.Millisecond
)

// lane says how urgent an append is.
type lane int

const (
	turns  lane = iota // a step of a turn, or what ends one
	starts             // an input that begins a turn
	queues             // an input that queues behind the turn that runs
	lanes
)

// gate lets so many appends pass at once: those of the first lane that has any, and in
// each lane first come, first served.
type gate struct {
	mu    sync.Mutex
	lanes [lanes]struct {
		waiting list.List // of applicant
		inside  int
	}
	step  time.Time // when the latest step of a turn came
	rests time.Time // until when no input that queues is let in
}

type applicant struct {
	in    chan struct{} // closed to let in
	since time.Time
}

// enter returns a channel that is closed once the caller is let in.
func (g *gate) enter(l lane) chan struct{} {
	a := applicant{make(chan struct{}), time.Now()}
	g.mu.Lock()
	defer g.mu.Unlock()
	if l == turns {
		g.step = a.since
	}
	g.lanes[l].waiting.PushBack(a)
	g.let()
	return a.in
}

// leave makes room for the next after an append that took so long.
func (g *gate) leave(l lane, took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lanes[l].inside--
	if now := time.Now(); l == queues && now.Sub(g.step) < lately {
		if g.rests.Before(now) {
			g.rests = now
		}
		g.rests = g.rests.Add(took)
		time.AfterFunc(g.rests.Sub(now), func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.let()
		})
	}
	g.let()
}

// giveWay takes a place back, and reports false if its owner was let in already.
func (g *gate) giveWay(l lane, in chan struct{}) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting := &g.lanes[l].waiting
	for e := waiting.Front(); e != nil; e = e.Next() {
		if e.Value.(applicant).in == in {
			waiting.Remove(e)
			return true
		}
	}
	return false
}

// let lets in whoever may pass. The caller holds the lock.
func (g *gate) let() {
	for l := range lanes {
		for g.lanes[l].waiting.Len() > 0 && g.inside(lanes) < appendsAtOnce && g.lanes[l].inside < g.most(l) {
			w := &g.lanes[l].waiting
			g.lanes[l].inside++
			close(w.Remove(w.Front()).(applicant).in)
		}
	}
}

// inside counts the appends under way in the lanes before l.
func (g *gate) inside(l lane) (n int) {
	for i := range l {
		n += g.lanes[i].inside
	}
	return n
}

// most is how many appends of a lane may be under way now.
func (g *gate) most(l lane) int {
	switch {
	case l == turns && g.lanes[starts].waiting.Len()+g.lanes[queues].waiting.Len() > 0:
		return appendsAtOnce - startsBeside // the rest is kept for inputs
	case l == turns:
		return appendsAtOnce
	case l == queues && time.Now().Before(g.rests):
		return 0
	case g.inside(l) == 0:
		return inputsAtOnce
	case l == starts:
		return startsBeside
	}
	return queuesBeside
}

// room reports whether inputs need not wait long.
func (g *gate) room() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range []lane{starts, queues} {
		if next := g.lanes[l].waiting.Front(); next != nil && time.Since(next.Value.(applicant).since) > crowded {
			return false
		}
	}
	return true
}

// laneOf is how urgent a decision is. What ends a turn, or has to be decided before a
// person's word about it, is not kept waiting behind thousands of inputs.
func (s *session) laneOf(d *decide.Decision) lane {
	t, next := d.Commit.Header.Trigger, d.State().Turn
	switch {
	case t.Kind != event.ByCause, t.Cause != subject.Input, t.Sequence != s.door:
		return turns
	case s.state.Turn == nil:
		return starts
	case next != nil && next.ID == s.state.Turn.ID:
		return queues
	}
	return turns
}

// enter waits until the session may append the decision, and keeps its deliveries
// meanwhile. It returns false if it gave up its place because there is something
// that the session's turn waits for: that comes first, and the input, which is still
// held, is decided about after it. Plugins are not asked about an input again for that.
func (s *session) enter(d *decide.Decision, l lane) bool {
	in := s.c.appends.enter(l)
	select {
	case <-in:
		return true
	default:
	}
	var mail <-chan struct{}
	if l != turns && len(d.Commit.Header.Hooks) == 0 {
		mail = s.box.signal
	}
	tick := time.NewTicker(extendAfter)
	defer tick.Stop()
	rung := false
	defer func() {
		if rung {
			s.box.ring()
		}
	}()
	for {
		select {
		case <-in:
			return true
		case <-mail:
			rung = true
			if s.box.urgent() && s.c.appends.giveWay(l, in) {
				return false
			}
		case <-tick.C:
			if mail != nil {
				s.c.dir.listens(s)
			}
			s.takeIn()
			s.extend()
		}
	}
}
