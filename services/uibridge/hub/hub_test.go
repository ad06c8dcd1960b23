package hub_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hub"
)

// rest returns what follows an id; "0" is before everything.
func rest(ids []string, after string, commits bool) (out []string) {
	for _, id := range ids[slices.Index(ids, after)+1:] {
		if commits || !strings.HasSuffix(id, ".h") {
			out = append(out, id)
		}
	}
	return out
}

// joined is what a feed that began at some place was sent.
type joined struct {
	after   string
	commits bool
	got     []string
	err     error
}

// reader begins a feed, reads that many ids or until the session is reset, and reports
// whether it was.
func (w *world) reader(ctx context.Context, j *joined, most int) (over bool) {
	f, err := w.Attach(ctx, contract.Attachment{Ref: ref, After: j.after, Commits: j.commits})
	if err != nil {
		j.err = err
		return true
	}
	defer f.Close()
	for len(j.got) < most {
		n, err := f.Next(ctx)
		if err != nil {
			j.err = err
			return true
		}
		if n.ID != "" {
			j.got = append(j.got, n.ID)
		}
		if n.Method == contract.OnSessionReset {
			return true
		}
	}
	return false
}

// While commits are stored and their live copies arrive, are lost, duplicated and delayed,
// feeds begin and end at any place: each gets exactly what follows it.
func TestJoiningIsExact(t *testing.T) {
	w := newWorld(t, hub.Config{Ring: 24, Queue: 64, Idle: time.Millisecond, Stall: time.Hour}, nil)
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any will do
	t.Logf("seed %d", seed)
	w.said("first")
	var mu sync.Mutex
	var all []*joined
	known := slices.Clone(w.ids) // that may be attached after

	ctx, cancel := context.WithTimeout(t.Context(), 5*natstest.Patience) // everything together
	defer cancel()
	var readers sync.WaitGroup
	var done atomic.Bool // all commits are stored
	for i := range 24 {
		dice := rand.New(rand.NewPCG(seed, uint64(i)+2))
		readers.Go(func() {
			for over := false; !over; over = over || i%2 == 0 && done.Load() {
				j := &joined{commits: dice.IntN(2) == 0}
				most := 1 << 30 // half of them stay to the end
				if i%2 == 0 {
					most = 1 + dice.IntN(20)
				}
				mu.Lock()
				if j.after = known[dice.IntN(len(known))]; dice.IntN(6) == 0 {
					j.after = "0"
				}
				all = append(all, j)
				mu.Unlock()
				over = w.reader(ctx, j, most)
			}
		})
	}
	w.babble(rand.New(rand.NewPCG(seed, 1)), func() {
		mu.Lock()
		defer mu.Unlock()
		known = slices.Clone(w.ids)
	})
	w.commit(event.SessionReset{By: "test"})
	done.Store(true)
	readers.Wait()
	t.Logf("%d feeds", len(all))
	for _, j := range all {
		want := rest(w.ids, j.after, j.commits)
		if j.err != nil || len(j.got) > len(want) || !slices.Equal(j.got, want[:len(j.got)]) {
			t.Fatalf("after %s, commits %t: %v, got\n%v\nwant\n%v", j.after, j.commits, j.err, j.got, want)
		}
	}
}

// babble stores many commits, whose live copies arrive in the worst way possible.
func (w *world) babble(dice *rand.Rand, stored func()) {
	w.t.Helper()
	var late []func()
	for i := range 400 {
		payloads := make([]event.Payload, 1+dice.IntN(4))
		for n := range payloads {
			payloads[n] = event.UIMessage{Content: fmt.Sprintf("%d.%d", i, n), Format: event.Text}
		}
		_, live := w.commit(payloads...)
		stored()
		for n := range payloads {
			switch dice.IntN(12) {
			case 0: // lost
			case 1:
				live(n)
				live(n)
			case 2:
				late = append(late, func() { live(n) })
			default:
				live(n)
			}
		}
		if dice.IntN(5) == 0 {
			for _, f := range late {
				f()
			}
			late = nil
		}
	}
}

// Garbage on the session's subjects, and deleted commits, are skipped.
func TestGarbageIsPassedOver(t *testing.T) {
	w := newWorld(t, hub.Config{}, nil)
	w.said("one")
	deleted := w.deleted()
	w.said("two")
	live := w.attach(contract.Attachment{After: "0", Commits: true})
	plain := w.attach(contract.Attachment{After: "0"})
	w.garbage()
	w.said("three", "four")
	w.garbage()
	w.said("five")
	last := w.ids[len(w.ids)-1]
	late := w.attach(contract.Attachment{After: "0", Commits: true})
	gone := w.attach(contract.Attachment{After: fmt.Sprintf("%d.0", deleted), Commits: true})
	for about, c := range map[string]struct {
		f    contract.Feed
		want []string
	}{
		"with commits":        {live, rest(w.ids, "0", true)},
		"without":             {plain, rest(w.ids, "0", false)},
		"late":                {late, rest(w.ids, "0", true)},
		"after a deleted one": {gone, rest(w.ids, w.ids[1], true)},
	} {
		got, err := read(natstest.Context(t), c.f, last)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, got %v, want %v", about, err, got, c.want)
		}
	}
	// The last commit is garbage: what comes now has a place nevertheless.
	w.garbage()
	fresh := newHub(w)
	f, err := fresh.Attach(natstest.Context(t), contract.Attachment{Ref: ref})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	after := decode[contract.Attached](t, next(t, f)).After
	again, err := fresh.Attach(natstest.Context(t), contract.Attachment{Ref: ref, After: after})
	if err != nil {
		t.Fatalf("after %q, which was sent: %v", after, err)
	}
	again.Close()
}

// deleted stores a commit and deletes it.
func (w *world) deleted() uint64 {
	w.t.Helper()
	ids, prev := w.ids, w.prev
	seq, _ := w.commit(event.UIMessage{Content: "deleted", Format: event.Text})
	s, err := w.bus.JetStream().Stream(natstest.Context(w.t), bus.StreamSessions)
	if err == nil {
		err = s.DeleteMsg(natstest.Context(w.t), seq)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.ids, w.prev = ids, prev
	return seq
}

// garbage stores and publishes what no core would.
func (w *world) garbage() {
	w.t.Helper()
	seq, err := w.bus.AppendCommit(natstest.Context(w.t), ref, []byte("no commit"), w.prev)
	if err != nil {
		w.t.Fatal(err)
	}
	w.prev = seq
	w.publish(ref.Live("ui", "message"), nil, []byte("no event"))
	w.publish(ref.Stream(), nil, []byte(`{"specversion":"1.0"}`))
	forged := event.New(other, "x", "evil", event.UIMessage{Content: "evil", Format: event.Text})
	w.publish(ref.Live("ui", "message"), nil, forged.AppendJSON(nil))
}

// A history of many pages is read at the reader's pace, while the session continues.
func TestALongHistory(t *testing.T) {
	w := newWorld(t, hub.Config{Queue: 32, Ring: 16, Stall: time.Hour}, nil)
	text := strings.Repeat("x", 4<<10)
	for range 600 { // about 2.4 MB
		w.commit(event.UIMessage{Content: text, Format: event.Text}, event.UIReady{})
	}
	f := w.attach(contract.Attachment{After: "0", Commits: true})
	var got []string
	for i := 0; i < 1900; i++ {
		if n := next(t, f); n.ID != "" {
			got = append(got, n.ID)
		}
		if i%19 == 0 { // more comes than the queue and the memory hold
			w.said("meanwhile")
		}
	}
	w.commit(event.SessionReset{By: "test"})
	more, err := read(natstest.Context(t), f, w.ids[len(w.ids)-1])
	if got = append(got, more...); err != nil || !slices.Equal(got, w.ids) {
		t.Fatalf("%v, got %d ids, want %d", err, len(got), len(w.ids))
	}
}

// A feed that is read more slowly than notifications arrive continues from the log, and
// only misses deltas. One that is not read ends.
func TestSlowButAlive(t *testing.T) {
	w := newWorld(t, hub.Config{Queue: 8, Stall: time.Hour}, nil)
	alive := w.attach(contract.Attachment{})
	for i := range 40 {
		w.delta(provider.Delta{Plan: "t1-p1", Attempt: "a", N: i, Text: "x"})
	}
	for range 30 {
		w.said("much", "more")
	}
	got, err := read(natstest.Context(t), alive, w.ids[len(w.ids)-1])
	if err != nil || !slices.Equal(got, rest(w.ids, "0", false)) {
		t.Errorf("%v, got %v", err, got)
	}

	w = newWorld(t, hub.Config{Queue: 8, Stall: time.Nanosecond}, nil)
	dead := w.attach(contract.Attachment{})
	w.said("one")
	seen := next(t, dead)
	for range 30 {
		w.said("much", "more")
	}
	natstest.Eventually(t, "it is dropped", func() bool { return w.Stats().Slow == 1 })
	_, err = dead.Next(natstest.Context(t))
	var e *contract.Error
	if !errors.As(err, &e) || e.Code != contract.CodeSlow || e.After != seen.ID || !strings.Contains(e.Message, seen.ID) {
		t.Errorf("got %v, want too_slow after %s", err, seen.ID)
	}
}
