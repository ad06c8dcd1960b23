package bustest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// killing kills the server and starts it again, until stop is called.
func killing(t *testing.T, p *natstest.Process, times int) (wait func()) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		for range times {
			<-time.After(120 * time.Millisecond) // some work in between
			p.Kill()
			p.Restart()
		}
	})
	return wg.Wait
}

func TestKillingTheBusNeitherLosesNorDoublesAnInput(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	first := natstest.ConnectURL(t, p.URL())
	seen := newCollector()
	consume(t, first, journal.ConsumeConfig{}, func(d journal.Delivery) { seen.take(d); _ = d.Ack() })
	acked := make([]map[string]uint64, 3)
	buses := make([]*journal.Journal, len(acked))
	for i := range buses {
		buses[i] = natstest.Dial(t, bus.Config{URL: p.URL()})
	}
	over := killing(t, p, 5)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i, b := range buses {
		acked[i] = map[string]uint64{}
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprint(i, "-", n)
				seq, err := b.PublishCause(natstest.Context(t), ref("one"), subject.Input, "w", id, []byte(id))
				if err != nil {
					t.Errorf("cause %s: %v", id, err)
					return
				}
				acked[i][id] = seq
			}
		})
	}
	over()
	close(stop)
	wg.Wait()

	stored := map[string]uint64{}
	after := natstest.ConnectURL(t, p.URL()) // the others may not have seen yet that they are cut off
	for _, m := range messages(t, after, ref("one")) {
		id := string(m.Data)
		if stored[id] != 0 {
			t.Errorf("cause %s is stored at %d and %d", id, stored[id], m.Seq)
		}
		stored[id] = m.Seq
	}
	total := 0
	for _, a := range acked {
		for id, seq := range a {
			total++
			if stored[id] != seq {
				t.Errorf("cause %s was acknowledged at %d and is stored at %d", id, seq, stored[id])
			}
			natstest.Eventually(t, "the delivery of "+id, func() bool { return seen.times(seq) > 0 })
		}
	}
	t.Logf("%d inputs, %d stored", total, len(stored))
}

func TestKillingTheBusForksNoSession(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	cores := []*journal.Journal{natstest.ConnectURL(t, p.URL()), natstest.ConnectURL(t, p.URL())} // on one session
	over := killing(t, p, 5)
	stop := make(chan struct{})
	var mu sync.Mutex
	committed := map[uint64]string{}
	var wg sync.WaitGroup
	for i, b := range cores {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprint(i, "-", n)
				if seq, ok := commitLikeACore(t, b, id); ok {
					mu.Lock()
					if other := committed[seq]; other != "" {
						t.Errorf("commits %s and %s both believe to be at %d", other, id, seq)
					}
					committed[seq] = id
					mu.Unlock()
				}
			}
		})
	}
	over()
	close(stop)
	wg.Wait()
	b := natstest.ConnectURL(t, p.URL())
	var prev uint64
	n := 0
	for m, err := range b.Commits(natstest.Context(t), ref("one"), 0) {
		if err != nil {
			t.Fatal(err)
		}
		id, after, _ := bytes.Cut(m.Data, []byte(" "))
		if string(after) != fmt.Sprint(prev) {
			t.Errorf("commit %d follows %s, but the one before it is %d", m.Seq, after, prev)
		}
		if want, ok := committed[m.Seq]; ok && want != string(id) {
			t.Errorf("commit %d is %s, want %s", m.Seq, id, want)
		}
		delete(committed, m.Seq)
		prev = m.Seq
		n++
	}
	if len(committed) != 0 {
		t.Errorf("acknowledged commits are not there: %v", committed)
	}
	t.Logf("%d commits", n)
}

// commitLikeACore appends to the last commit and finds out what became of it, as
// the turn protocol says: read the last commit; own id means stored.
func commitLikeACore(t *testing.T, b *journal.Journal, id string) (uint64, bool) {
	prev, err := b.LastCommitSeq(natstest.Context(t), ref("one"))
	if err != nil {
		return 0, false // the bus is away
	}
	seq, err := b.AppendCommit(natstest.Context(t), ref("one"), fmt.Appendf(nil, "%s %d", id, prev), prev)
	switch {
	case err == nil:
		return seq, true
	case errors.Is(err, bus.ErrFenceLost):
		return 0, false
	case !errors.Is(err, bus.ErrAmbiguous):
		t.Errorf("commit %s: %v", id, err)
		return 0, false
	}
	for m, err := range b.Commits(natstest.Context(t), ref("one"), prev) {
		if err == nil && bytes.HasPrefix(m.Data, []byte(id+" ")) {
			return m.Seq, true
		}
	}
	return 0, false
}
