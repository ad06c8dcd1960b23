package shell

import (
	"container/list"
	"slices"
	"time"

	"skandha.dev/pkg/subject"
)

// need is what a session waits for: a slot at an executor that offers name, which
// is a provider's (empty: any), or a tool's.
type need struct {
	kind subject.ExecutorKind
	name string
}

// queue is the sessions of this core that wait for executors, first come, first
// served. A free slot goes to whoever has waited longest for it, so that every
// session has its turn before any has a second one; and only as many are woken as
// there are slots, not all of them for each. The directory's lock guards it.
type queue struct {
	order *list.List // of *waiter
	index map[*session]*list.Element
}

type waiter struct {
	s      *session
	needs  []need
	tried  time.Time
	paused bool // keeps its place, and could not take a slot now
	served bool // has claimed a slot, and its commit is on the way
}

// counts reports whether the waiter has a right to a free slot just now.
func (w *waiter) counts(now time.Time) bool {
	return !w.paused && !w.served && now.Sub(w.tried) < stuck
}

// stuck is after how long without a try a waiter holds up nobody: its session is
// busy with something else, and asks again when it is back.
const stuck = 3 * time.Second

func newQueue() queue { return queue{order: list.New(), index: map[*session]*list.Element{}} }

// wait puts the session at the end, or leaves it where it is.
func (q *queue) wait(s *session, needs []need, paused bool) {
	if e := q.index[s]; e != nil {
		*e.Value.(*waiter) = waiter{s: s, needs: needs, tried: time.Now(), paused: paused}
		return
	}
	q.index[s] = q.order.PushBack(&waiter{s: s, needs: needs, tried: time.Now(), paused: paused})
}

// serve notes that the session has claimed a slot, or has given it back.
func (q *queue) serve(s *session, served bool) {
	if e := q.index[s]; e != nil {
		e.Value.(*waiter).served = served
	}
}

// listens notes that a free slot would be taken.
func (q *queue) listens(s *session) {
	if e := q.index[s]; e != nil {
		e.Value.(*waiter).tried = time.Now()
	}
}

// leave removes the session and reports whether it was there.
func (q *queue) leave(s *session) bool {
	e := q.index[s]
	if e == nil {
		return false
	}
	q.order.Remove(e)
	delete(q.index, s)
	return true
}

// ahead counts the waiters for n that come before the session; all, if it does not wait.
func (q *queue) ahead(s *session, n need) int {
	count, now := 0, time.Now()
	for e := q.order.Front(); e != nil; e = e.Next() {
		w := e.Value.(*waiter)
		if w.s == s {
			break
		}
		if w.has(n) && w.counts(now) {
			count++
		}
	}
	return count
}

// first lists who is to be woken: for each need as many as slots says are free.
func (q *queue) first(slots func(need) int) []*session {
	free, now := map[need]int{}, time.Now()
	var out []*session
	for e := q.order.Front(); e != nil; e = e.Next() {
		w := e.Value.(*waiter)
		if w.paused || w.served {
			continue
		}
		for _, n := range w.needs {
			left, known := free[n]
			if !known {
				left = slots(n)
			}
			if free[n] = left; w.counts(now) { // else it is woken, and holds up nobody
				free[n]--
			}
			if left > 0 {
				out = append(out, w.s)
				break
			}
		}
	}
	return out
}

func (q *queue) all() []*session {
	out := make([]*session, 0, q.order.Len())
	for e := q.order.Front(); e != nil; e = e.Next() {
		out = append(out, e.Value.(*waiter).s)
	}
	return out
}

func (w *waiter) has(n need) bool {
	return slices.Contains(w.needs, n)
}
