package session

import (
	"container/list"
	"sync"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

const (
	// appendsAtOnce bounds this core's commits in flight. The server stores commits one by
	// one: sending more does not store them sooner, but delays everything else on the
	// connection until its pings go unanswered.
	appendsAtOnce = 64
	// inputsAtOnce bounds the appends of inputs, per lane. While earlier lanes append, too,
	// only startsBeside inputs may begin a turn and queuesBeside may queue behind one.
	// Otherwise, when thousands of inputs arrive at once, each step of the running turns
	// would wait behind that many inputs.
	inputsAtOnce = 16
	startsBeside = 8
	queuesBeside = 2
	// lately is how long after a step of a turn queueing inputs are throttled: after each
	// of their appends, the next waits for as long as that one took. On a busy machine they
	// compete with turns for more than the log.
	lately = 100 * time.Millisecond
	// crowded is how long an input may wait for its append before no more causes are
	// requested. Every delivered cause must be extended repeatedly.
	crowded = 100 * time.Millisecond
)

// lane is the urgency of an append.
type lane int

const (
	turns  lane = iota // a step of a turn, or its end
	starts             // an input that begins a turn
	queues             // an input that queues behind the running turn
	lanes
)

// appendLanes bounds concurrent appends. Earlier lanes go first, and each lane is first come,
// first served.
type appendLanes struct {
	mu    sync.Mutex
	lanes [lanes]struct {
		waiting list.List // of applicant
		inside  int
	}
	step  time.Time // when the latest step of a turn arrived
	rests time.Time // until when no queueing input is admitted
}

type applicant struct {
	in    chan struct{} // closed on admission
	since time.Time
}

// enter returns a channel that is closed once the caller is admitted.
func (g *appendLanes) enter(l lane) chan struct{} {
	a := applicant{make(chan struct{}), time.Now()}
	g.mu.Lock()
	defer g.mu.Unlock()
	if l == turns {
		g.step = a.since
	}
	g.lanes[l].waiting.PushBack(a)
	g.admit()
	return a.in
}

// leave ends an append, which took the given time, and admits the next.
func (g *appendLanes) leave(l lane, took time.Duration) {
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
			g.admit()
		})
	}
	g.admit()
}

// giveWay withdraws from the lane. It reports false if the caller was already admitted.
func (g *appendLanes) giveWay(l lane, in chan struct{}) bool {
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

// admit admits the applicants that may append now. The caller holds the lock.
func (g *appendLanes) admit() {
	for l := range lanes {
		for g.lanes[l].waiting.Len() > 0 && g.inside(lanes) < appendsAtOnce && g.lanes[l].inside < g.most(l) {
			w := &g.lanes[l].waiting
			g.lanes[l].inside++
			close(w.Remove(w.Front()).(applicant).in)
		}
	}
}

// inside counts the appends under way in the lanes before l.
func (g *appendLanes) inside(l lane) (n int) {
	for i := range l {
		n += g.lanes[i].inside
	}
	return n
}

// most is how many appends of a lane may be under way now.
func (g *appendLanes) most(l lane) int {
	switch {
	case l == turns && g.lanes[starts].waiting.Len()+g.lanes[queues].waiting.Len() > 0:
		return appendsAtOnce - startsBeside // the rest is reserved for inputs
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

// room reports whether inputs are appended without a long wait.
func (g *appendLanes) room() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range []lane{starts, queues} {
		if next := g.lanes[l].waiting.Front(); next != nil && time.Since(next.Value.(applicant).since) > crowded {
			return false
		}
	}
	return true
}

// laneOf returns the lane of a decision. One that ends a turn, or must come before a
// user's message about it, does not wait behind thousands of inputs.
func (s *session) laneOf(d *decide.Decision) lane {
	t, next := d.Commit.Header.Trigger, d.State().Turn
	switch {
	case s.mark.seq != 0: // others wait for it
		return turns
	case t.Kind != event.ByCause, t.Cause != subject.Input, t.Sequence != s.delivery:
		return turns
	case s.state.Turn == nil:
		return starts
	case next != nil && next.ID == s.state.Turn.ID:
		return queues
	}
	return turns
}

// enter waits until the session may append the decision, and extends its deliveries
// meanwhile. It returns false if it gave up its place for something that the turn waits
// for: that comes first, and the input, which is still held, is decided later. It does not
// give way if plugins were asked about the input, so that they are not asked again.
func (s *session) enter(d *decide.Decision, l lane) bool {
	in := s.set.appends.enter(l)
	select {
	case <-in:
		return true
	default:
	}
	var mail <-chan struct{}
	if l != turns && len(d.Commit.Header.Hooks) == 0 {
		mail = s.mailbox.signal
	}
	tick := time.NewTicker(extendAfter)
	defer tick.Stop()
	rung := false
	defer func() {
		if rung {
			s.mailbox.ring()
		}
	}()
	for {
		select {
		case <-in:
			return true
		case <-mail:
			rung = true
			if s.mailbox.urgent() && s.set.appends.giveWay(l, in) {
				return false
			}
		case <-tick.C:
			if mail != nil {
				s.Directory.Listens(s.claimant)
			}
			s.takeIn()
			s.extend()
		}
	}
}
