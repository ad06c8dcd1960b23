package directory

import (
	"container/list"
	"maps"
	"slices"
	"time"

	"skandha.dev/pkg/subject"
)

// Need is what a session waits for: a slot at an executor that offers Name, a
// provider (empty: any) or a tool.
type Need struct {
	Kind subject.ExecutorKind
	Name string
	At   subject.Instance // the only suitable instance, because it keeps the session's data; empty: any
}

// queue holds the sessions of this core that wait for executors, in rounds. In a round each owner has one place, and
// the session that came first is served first; so every session is served once before any is served twice, and
// somebody with a thousand sessions delays those of others by one place in each round. What no person waits for has
// a place in each fourth round only, so that it gets at least a fifth of the slots that it competes for with one
// person, and never none. Only as many sessions are woken as there are slots. The directory's lock guards it.
type queue struct {
	order  *list.List // of *waiter, by round
	index  map[*Claimant]*list.Element
	latest map[owner]uint64 // the latest round of each
}

// owner shares the places of a round.
type owner struct {
	writer     subject.Writer
	background bool // no person waits
}

// backgroundRounds is how many rounds apart the places of an owner are if no person waits for it.
const backgroundRounds = 4

// stride is how many rounds apart the owner's places are.
func (o owner) stride() uint64 {
	if o.background {
		return backgroundRounds
	}
	return 1
}

type waiter struct {
	s      *Claimant
	owner  owner // of the session when it came; the session may change its own meanwhile
	round  uint64
	needs  []Need
	tried  time.Time
	paused bool // keeps its place, but could not take a slot now
	served bool // has claimed a slot, and its commit is in flight
}

// counts reports whether the waiter is entitled to a free slot now.
func (w *waiter) counts(now time.Time) bool {
	return !w.paused && !w.served && now.Sub(w.tried) < stuck
}

// stuck is how long after its last try a waiter stops holding up others: its session
// is busy with something else, and tries again afterwards.
const stuck = 3 * time.Second

// maxOwners is how many owners are remembered, beside those that wait.
const maxOwners = 1000

func newQueue() queue {
	return queue{order: list.New(), index: map[*Claimant]*list.Element{}, latest: map[owner]uint64{}}
}

// wait puts the session at the end of its owner's next round, or updates it in place.
func (q *queue) wait(s *Claimant, needs []Need, paused bool) {
	if e := q.index[s]; e != nil {
		w := e.Value.(*waiter)
		*w = waiter{s: s, owner: w.owner, round: w.round, needs: needs, tried: time.Now(), paused: paused}
		return
	}
	stride := s.owner.stride()
	round := q.latest[s.owner] + stride
	if first := q.order.Front(); first != nil {
		w := first.Value.(*waiter)
		round = max(round, w.round+stride-w.owner.stride()) // before those whom nobody waits for
	}
	q.latest[s.owner] = round
	w := &waiter{s: s, owner: s.owner, round: round, needs: needs, tried: time.Now(), paused: paused}
	at := q.order.Back()
	for at != nil && at.Value.(*waiter).round > round {
		at = at.Prev()
	}
	if at == nil {
		q.index[s] = q.order.PushFront(w)
		return
	}
	q.index[s] = q.order.InsertAfter(w, at)
}

// serve notes that the session has claimed a slot, or has given it back.
func (q *queue) serve(s *Claimant, served bool) {
	if e := q.index[s]; e != nil {
		e.Value.(*waiter).served = served
	}
}

// listens notes that the session would take a free slot.
func (q *queue) listens(s *Claimant) {
	if e := q.index[s]; e != nil {
		e.Value.(*waiter).tried = time.Now()
	}
}

// leave removes the session and reports whether it was there.
func (q *queue) leave(s *Claimant) bool {
	e := q.index[s]
	if e == nil {
		return false
	}
	q.order.Remove(e)
	delete(q.index, s)
	switch first := q.order.Front(); {
	case first == nil:
		clear(q.latest)
	case len(q.latest) > 2*q.order.Len()+maxOwners:
		maps.DeleteFunc(q.latest, func(_ owner, r uint64) bool { return r < first.Value.(*waiter).round })
	}
	return true
}

// ahead counts the waiters for n before the session, or all if the session does not wait.
func (q *queue) ahead(s *Claimant, n Need) int {
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

// first lists the sessions to wake: for each need, as many as it has free slots.
func (q *queue) first(slots func(Need) int) []*Claimant {
	free, now := map[Need]int{}, time.Now()
	take := func(n Need) (left int) {
		left, known := free[n]
		if !known {
			left = slots(n)
		}
		free[n] = left - 1
		return left
	}
	var out []*Claimant
	for e := q.order.Front(); e != nil; e = e.Next() {
		w := e.Value.(*waiter)
		if w.paused || w.served {
			continue
		}
		for _, n := range w.needs {
			left := take(n)
			if !w.counts(now) { // it is woken, but holds up no other
				free[n]++
			} else if left > 0 && n.At != "" {
				take(Need{Kind: n.Kind, Name: n.Name}) // the slot is one of those, too
			}
			if left > 0 {
				out = append(out, w.s)
				break
			}
		}
	}
	return out
}

func (q *queue) all() []*Claimant {
	out := make([]*Claimant, 0, q.order.Len())
	for e := q.order.Front(); e != nil; e = e.Next() {
		out = append(out, e.Value.(*waiter).s)
	}
	return out
}

func (w *waiter) has(n Need) bool {
	return slices.Contains(w.needs, n)
}
