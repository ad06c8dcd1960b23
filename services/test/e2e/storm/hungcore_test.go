package storm_test

import (
	"strings"
	"testing"
	"time"

	. "skandha.dev/services/test/e2e/e2etest"
)

// One core of two hangs, with all its connections open. No plugin's lease ends, no
// session is locked, and turns go on at the other core.
func TestHungCore(t *testing.T) {
	size, r := scaleOf(t), seeded(t)
	hang := 15 * time.Second
	if size.long {
		hang = 90 * time.Second
	}
	s := deployment(t, Options{Providers: 2, Runners: 2})
	l := startLoad(t, s, r, 10)
	s.Tail.Await(t, "30 inputs end", func(l *Log) bool { return len(l.Terminals) >= 30 })
	w := window{from: time.Now()}
	s.Cores[0].Stall()
	time.Sleep(hang)
	w.to = time.Now()
	s.Cores[0].Resume()
	l.stop()

	log := judge(t, s)
	l.check(log)
	n, rate := w.rate(endsOf(log))
	t.Logf("while one core of two hung for %v: %d inputs ended, %.1f a second, with at most %v between two",
		hang, n, rate, longest(endsOf(log), w))
	if n == 0 {
		t.Error("no input ended while a core hung")
	}
	for _, p := range s.Procs() {
		switch text := p.Log(); {
		case p.Role.Kind == Core && strings.Contains(text, "lease of a plugin's replica has ended"):
			t.Errorf("%s ended the lease of a plugin that was well", p.Role.Name)
		case p.Role.Kind == Plugin && strings.Count(text, "msg=lease state=active") != 1:
			t.Errorf("the plugin's lease was lost and taken again:\n%s", p.Tail(20))
		}
	}
}

// longest is the longest time in the window in which no input ended.
func longest(ends []end, w window) (gap time.Duration) {
	last := w.from
	for _, e := range ends {
		if w.has(e.at) {
			gap, last = max(gap, e.at.Sub(last)), e.at
		}
	}
	return max(gap, w.to.Sub(last)).Round(10 * time.Millisecond)
}
