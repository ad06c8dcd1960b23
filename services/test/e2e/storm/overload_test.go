package storm_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	. "skandha.dev/services/test/e2e/e2etest"
)

// Far more inputs than there are slots: every input ends with a true result, and every
// session but for one in twenty gets its first answer before any session gets its third. Throughput per
// window is printed, and asserted in the long form.
func TestOverload(t *testing.T) {
	size, rounds, sessions := scaleOf(t), 4, 60
	if size.long {
		rounds, sessions = 10, 500
	}
	s := deployment(t, Options{Providers: 1, Runners: 1, ProviderSlots: 16, Slots: 8})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	text := Script{Rounds: []Round{{{ID: "once", Tool: ToolOnce, Args: Args{N: 1, MS: 100}}}}}.Text()

	// As many as there are slots, each when the one before has ended.
	usual := window{from: time.Now()}
	n := 64
	if size.long {
		n = 640
	}
	closedLoop(ctx, t, s, n, text)
	usual.to = time.Now()

	// Then all at once, round by round: an input comes after all of the round before.
	clients := make([]*Client, sessions)
	for i := range clients {
		clients[i] = s.Client(fmt.Sprintf("o%d", i))
	}
	over := window{from: time.Now()}
	var seqs sync.Map // acknowledged
	for round := range rounds {
		var all sync.WaitGroup
		for _, c := range clients {
			all.Go(func() {
				seq, err := c.Say(ctx, fmt.Sprintf("in-%d", round), text, false)
				if err != nil {
					t.Error(err)
					return
				}
				seqs.Store(seq, c)
			})
		}
		all.Wait()
	}
	t.Logf("%d inputs in %d sessions were acknowledged within %v",
		rounds*sessions, sessions, time.Since(over.from).Round(10*time.Millisecond))
	var answered sync.WaitGroup
	seqs.Range(func(seq, c any) bool {
		answered.Go(func() {
			if err := c.(*Client).Ended(ctx, seq.(uint64)); err != nil {
				t.Error(err)
			}
		})
		return true
	})
	answered.Wait()
	over.to = time.Now()

	log := judge(t, s)
	refused := map[string]int{}
	for _, c := range clients {
		c.Refusals(refused)
		for _, bad := range c.Check(log) {
			t.Error(bad)
		}
	}
	t.Logf("clients sent again because of: %v", refused)
	ends := endsOf(log)
	_, steady := usual.rate(ends)
	n, all := over.rate(ends)
	t.Logf("steady %.1f inputs a second; overload: %d inputs, %.1f a second", steady, n, all)
	throughput(t, ends, over, steady, size.long)
	fair(t, s, slices.DeleteFunc(ends, func(e end) bool { return !over.has(e.said) }), clients)
}

// closedLoop has n inputs answered, eight at a time.
func closedLoop(ctx context.Context, t *testing.T, s *System, n int, text string) {
	t.Helper()
	var all sync.WaitGroup
	for i := range 8 {
		c := s.Client(fmt.Sprintf("c%d", i))
		all.Go(func() {
			for j := range n / 8 {
				seq, err := c.Say(ctx, fmt.Sprintf("in-%d", j), text, false)
				if err == nil {
					err = c.Ended(ctx, seq)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// throughput prints how many inputs ended in each window of ten seconds, and compares
// it with the steady rate. The last window, which is incomplete, does not count.
func throughput(t *testing.T, ends []end, over window, steady float64, assert bool) {
	t.Helper()
	const length = 10 * time.Second
	var rates []string
	for from := over.from; !from.Add(length).After(over.to); from = from.Add(length) {
		n, rate := (window{from, from.Add(length)}).rate(ends)
		rates = append(rates, fmt.Sprint(n))
		if assert && rate < steady/2 {
			t.Errorf("from %v on %.1f inputs a second ended, which is less than half of %.1f",
				from.Sub(over.from), rate, steady)
		}
	}
	t.Logf("inputs ended in each 10 s: %v", rates)
}

// fair checks that each session has its first answer before any has its third, but for one in twenty: each core serves
// its own sessions in order, and one may have fewer, so that it is ahead for a moment.
func fair(t *testing.T, s *System, ends []end, clients []*Client) {
	t.Helper()
	had, allFirst, anyThird := map[string]int{}, 0, 0
	for i, e := range ends {
		had[e.session]++
		if had[e.session] == 1 && len(had) == len(clients)-len(clients)/20 {
			allFirst = i
		}
		if had[e.session] != 3 || anyThird > 0 {
			continue
		}
		if anyThird = i; allFirst > 0 {
			continue
		}
		t.Errorf("%s has its third answer (commit %d) while %d of %d sessions have none:\n%s",
			e.session, e.commit, len(clients)-len(had), len(clients), s.Tail.SessionStory(e.session, 40))
		for _, c := range clients {
			if name := "main." + c.Session; had[name] == 0 {
				t.Logf("%s:\n%s", name, s.Tail.SessionStory(name, 40))
			}
		}
	}
	t.Logf("of %d answers, number %d was the last first one of 19 in 20 sessions, number %d the first third one", len(ends),
		allFirst+1, anyThird+1)
	if len(had) != len(clients) {
		t.Errorf("%d of %d sessions have an answer", len(had), len(clients))
	}
}
