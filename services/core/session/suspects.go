package session

import (
	"slices"
	"sync"
	"time"
)

// suspects admits one suspected decision at a time, so that a core that dies of one leaves
// no other with its mark. What fewer processes have died of goes first: a cause that was
// being decided by chance when a core was killed waits until the others are done.
type suspects struct {
	mu      sync.Mutex
	busy    bool
	waiting []suspect
	closed  chan struct{} // nobody is admitted any more
}

type suspect struct {
	marks int
	in    chan struct{} // closed on admission
}

func newSuspects() suspects { return suspects{closed: make(chan struct{})} }

// enter returns a channel that is closed once the caller is admitted.
func (q *suspects) enter(marks int) chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	in := make(chan struct{})
	at, _ := slices.BinarySearchFunc(q.waiting, marks, func(w suspect, marks int) int {
		if w.marks <= marks {
			return -1
		}
		return 1
	})
	q.waiting = slices.Insert(q.waiting, at, suspect{marks, in})
	q.admit()
	return in
}

// leave ends a decision, or withdraws a caller that was not admitted yet.
func (q *suspects) leave(in chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.IndexFunc(q.waiting, func(w suspect) bool { return w.in == in }); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return
	}
	q.busy = false
	q.admit()
}

func (q *suspects) admit() {
	if q.busy || len(q.waiting) == 0 {
		return
	}
	q.busy = true
	close(q.waiting[0].in)
	q.waiting = slices.Delete(q.waiting, 0, 1)
}

// alone waits until no other suspect is decided, and extends the deliveries meanwhile. It
// returns false if this core stops.
func (s *session) alone(marks int) bool {
	if s.mark.alone != nil {
		return true
	}
	in := s.set.suspects.enter(marks)
	tick := time.NewTicker(extendAfter)
	defer tick.Stop()
	for {
		select {
		case <-in:
			s.mark.alone = in
			return true
		case <-s.set.suspects.closed:
			s.set.suspects.leave(in)
			return false
		case <-tick.C:
			s.takeIn()
			s.extend()
		}
	}
}
