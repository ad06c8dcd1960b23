package session

import (
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

func gated(t *testing.T, names ...subject.Session) (*gates, []*session) {
	t.Helper()
	g, err := newGates()
	if err != nil {
		t.Fatal(err)
	}
	var all []*session
	for _, n := range names {
		all = append(all, &session{ref: subject.Ref{Agent: "main", Session: n}, mailbox: newMailbox()})
	}
	return g, all
}

// Only so many turns run at once. The session that waits longest is woken when one ends, and no
// session queues more behind its turn while others wait.
func TestTurnsOfAnAgentAreLimited(t *testing.T) {
	g, s := gated(t, "a", "b", "c")
	l, now := decide.Limits{Turns: 1}, time.Now()
	enter := func(i int) bool { return g.enter(s[i], l, true, now) }
	if !enter(0) || enter(1) || enter(2) || enter(1) || enter(0) {
		t.Fatal("want one turn, and the others in the line")
	}
	if g.len() != 3 || !s[1].mailbox.empty() {
		t.Fatalf("%d wait", g.len())
	}
	g.keep(s[0], l, false, true) // its turn has ended, and an input of it waits
	if s[1].mailbox.empty() || enter(2) || enter(0) || !enter(1) {
		t.Fatal("want the first of the line to be woken, and to be next")
	}
	g.keep(s[2], l, false, false) // its input was taken elsewhere
	g.keep(s[1], l, false, false) // parked, or ended
	if !enter(0) || g.len() != 0 {
		t.Fatalf("%d wait", g.len())
	}
	g.keep(s[1], l, true, false) // approved: it goes on, over the limit
	g.keep(s[0], l, false, false)
	if enter(2) {
		t.Error("a turn that goes on after an approval does not count")
	}
}

// What nobody waits for goes after people, but one of five.
func TestPeopleEnterFirst(t *testing.T) {
	g, s := gated(t, "running", "timer-1", "timer-2", "p1", "p2", "p3", "p4", "p5")
	l, now := decide.Limits{Turns: 1}, time.Now()
	g.enter(s[0], l, true, now)
	for i, x := range s[1:] {
		g.enter(x, l, i >= 2, now)
	}
	var order []subject.Session
	for running := s[0]; g.len() > 0; {
		g.keep(running, l, false, false)
		for _, x := range s[1:] {
			if !x.mailbox.empty() && g.enter(x, l, true, now) {
				order, running = append(order, x.ref.Session), x
				x.mailbox.take()
				break
			}
		}
	}
	for i, want := range []subject.Session{"p1", "p2", "p3", "p4", "timer-1", "p5", "timer-2"} {
		if order[i] != want {
			t.Fatalf("entered in the order %v", order)
		}
	}
}

// A minute's worth of inputs may come at once. Then they are taken up at the rate of the limit.
func TestInputsPerMinuteAreLimited(t *testing.T) {
	g, s := gated(t, "a", "b")
	l, now := decide.Limits{InputsPerMinute: 6, SessionInputsPerMinute: 4}, time.Now()
	take := func(i int) int {
		n := 0
		for ; g.enter(s[i], l, true, now); n++ {
			g.took(s[i], l, now)
		}
		return n
	}
	if a, b := take(0), take(1); a != 4 || b != 2 {
		t.Fatalf("took %d and %d, want 4 by the session's limit and 2 by the agent's", a, b)
	}
	now = now.Add(10 * time.Second)
	if a, b := take(0), take(1); a != 0 || b != 1 {
		t.Fatalf("after 10 s, took %d and %d, want 0 and 1", a, b)
	}
	now = now.Add(time.Hour)
	if b := take(1); b != 4 {
		t.Fatalf("after an hour, took %d, want 4", b)
	}
}
