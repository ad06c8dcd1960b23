package directory

import (
	"testing"
	"time"

	"skandha.dev/pkg/subject"
)

// Every free slot is assigned, in order. A session that has claimed one, cannot take one
// now, or is busy does not hold up others.
func TestEveryFreeSlotIsGivenOut(t *testing.T) {
	n := []Need{{Kind: subject.Runner, Name: "t"}}
	q, s := newQueue(), make([]*Claimant, 10)
	for i := range s {
		s[i] = &Claimant{}
		q.wait(s[i], n, i == 0) // the first was refused a moment ago
	}
	q.index[s[1]].Value.(*waiter).tried = time.Now().Add(-2 * stuck) // the second is busy
	free := 4
	woken := q.first(func(Need) int { return free })
	if len(woken) != free+1 || woken[0] != s[1] || woken[1] != s[2] {
		t.Fatalf("%d are woken, want the busy one and %d more", len(woken), free)
	}
	var served int
	for _, w := range s[2:] {
		if free > q.ahead(w, n[0]) {
			free--
			served++
			q.serve(w, true)
		}
	}
	if served != 4 || free != 0 {
		t.Errorf("%d of 4 slots are assigned", served)
	}
	if woken := q.first(func(Need) int { return 1 }); len(woken) != 2 || woken[1] != s[6] {
		t.Errorf("%d are woken for the next slot, want the busy one and the next in line", len(woken))
	}
	q.serve(s[2], false) // its commit was not stored
	if q.ahead(s[6], n[0]) != 1 {
		t.Error("a session that gave back its slot must be first again")
	}
}

// Somebody with many sessions holds up nobody else: each owner has one place in each round.
func TestTheSessionsOfOneOwnerHoldUpNobodyElse(t *testing.T) {
	n := []Need{{Kind: subject.Runner, Name: "t"}}
	q := newQueue()
	join := func(w subject.Writer) *Claimant {
		s := &Claimant{owner: owner{writer: w}}
		q.wait(s, n, false)
		return s
	}
	var flood []*Claimant
	for range 100 {
		flood = append(flood, join("flood"))
	}
	calm := join("calm")
	if ahead := q.ahead(calm, n[0]); ahead != 1 {
		t.Errorf("%d are ahead of the only session of another, want 1", ahead)
	}
	for range 50 { // its next step
		q.leave(flood[0])
		flood = flood[1:]
		q.leave(calm)
		calm = join("calm")
		if ahead := q.ahead(calm, n[0]); ahead > 1 {
			t.Fatalf("%d are ahead of it at its next step, want at most 1", ahead)
		}
	}
	q.leave(flood[len(flood)-1]) // given up, not served
	q.leave(calm)
	if ahead := q.ahead(join("calm"), n[0]); ahead > 2 {
		t.Errorf("%d are ahead of it after the last session has left", ahead)
	}
	// The owner's own sessions keep their order, and each is served before any is served twice.
	q.leave(flood[0])
	q.wait(flood[0], n, false)
	if last := q.all()[q.order.Len()-1]; last != flood[0] {
		t.Error("the session that was served is not the last one")
	}
	for _, s := range q.all() {
		q.leave(s)
	}
	if len(q.latest) > 0 {
		t.Errorf("an empty queue remembers %v", q.latest)
	}
}

// What a person waits for comes first, and what nobody waits for still has its turn: with one owner
// of each kind, and more sessions than slots, one slot in five.
func TestAPersonGoesBeforeATimerWhichDoesNotStarve(t *testing.T) {
	n := []Need{{Kind: subject.Runner, Name: "t"}}
	q := newQueue()
	join := func(w subject.Writer, person bool) {
		s := &Claimant{}
		s.For(w, person)
		q.wait(s, n, false)
	}
	for range 20 {
		join("cron", false)
	}
	join("ann", true)
	if first := q.all()[0]; first.owner.background {
		t.Error("a timer that came first goes before a person")
	}
	for range 19 {
		join("ann", true)
	}
	served := map[bool]int{}
	for range 100 {
		s := q.all()[0]
		served[s.owner.background]++
		q.leave(s)
		join(s.owner.writer, !s.owner.background) // its next step
	}
	if served[true] != 20 {
		t.Errorf("of 100 slots, %d are given to timers, want 20", served[true])
	}
	// Alone, they are served in the order of their coming.
	q = newQueue()
	for range 3 {
		join("cron", false)
	}
	if all := q.all(); len(all) != 3 || q.ahead(all[2], n[0]) != 2 {
		t.Errorf("%d wait", len(all))
	}
}
