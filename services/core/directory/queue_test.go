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
