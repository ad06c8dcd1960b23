package bustest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// firings remembers which timers fired, and when.
type firings struct {
	mu   sync.Mutex
	at   map[string][]time.Time
	fail map[string]int // how often to fail
}

func newFirings() *firings {
	return &firings{at: map[string][]time.Time{}, fail: map[string]int{}}
}

func (f *firings) take(_ context.Context, r subject.Ref, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := r.String() + "/" + id
	f.at[key] = append(f.at[key], time.Now())
	if f.fail[key] > 0 {
		f.fail[key]--
		return errors.New("not now")
	}
	return nil
}

func (f *firings) times(key string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.at[key])
}

func consumeFired(t testing.TB, b *journal.Journal, f *firings) {
	t.Helper()
	k, err := b.ConsumeFired(natstest.Context(t), nil, f.take)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
}

func schedule(t testing.TB, b *journal.Journal, r subject.Ref, id string, in time.Duration) time.Time {
	t.Helper()
	at := time.Now().Add(in)
	if err := b.ScheduleTimer(natstest.Context(t), r, id, at); err != nil {
		t.Fatal(err)
	}
	return at
}

// timersLeft counts what the stream holds: timers that wait and firings that are not handled.
func timersLeft(t testing.TB, b *journal.Journal) uint64 {
	t.Helper()
	var n uint64
	natstest.Eventually(t, "what the stream of timers holds", func() bool {
		// The question is lost when the server has gone and the client has not seen it yet.
		ctx, cancel := context.WithTimeout(natstest.Context(t), time.Second)
		defer cancel()
		s, err := b.JetStream().Stream(ctx, journal.StreamTimers)
		if err == nil {
			n = s.CachedInfo().State.Msgs
		}
		return err == nil
	})
	return n
}

func TestTimerFiresOnceAtItsTimeAndIsGone(t *testing.T) {
	b, f := start(t), newFirings()
	consumeFired(t, b, f)
	at := schedule(t, b, ref("one"), "t1", 300*time.Millisecond)
	schedule(t, b, ref("one"), "an id: with spaces", -time.Hour)
	natstest.Eventually(t, "a timer whose time is past", func() bool { return f.times("ada/one/an id: with spaces") == 1 })
	natstest.Eventually(t, "the timer", func() bool { return f.times("ada/one/t1") > 0 })
	if early := time.Until(at); early > 0 {
		t.Errorf("fired %v early", early)
	}
	natstest.Eventually(t, "the stream to be empty", func() bool { return timersLeft(t, b) == 0 })
	if n := f.times("ada/one/t1"); n != 1 {
		t.Errorf("fired %d times", n)
	}
}

// Thousands of timers may fire at once. Without room a few come now and then, and the others wait in the stream.
func TestWithoutRoomOnlyAFewFiringsCome(t *testing.T) {
	b, f := start(t), newFirings()
	const n = 120
	for i := range n {
		schedule(t, b, ref("one"), fmt.Sprint(i), -time.Hour)
	}
	came := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.at)
	}
	most := 0 // that had come when there was no room
	k, err := b.ConsumeFired(natstest.Context(t), func() bool {
		if most > 20 {
			return true
		}
		most = came()
		return false
	}, f.take)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	natstest.Eventually(t, "all of them", func() bool { return came() == n })
	if most == 0 || most > 60 {
		t.Errorf("%d of %d firings had come without room, want a few", most, n)
	}
}

func TestSchedulingAgainReplaces(t *testing.T) {
	b, f := start(t), newFirings()
	schedule(t, b, ref("one"), "t", time.Hour)
	schedule(t, b, ref("one"), "t", time.Hour)
	if n := timersLeft(t, b); n != 1 {
		t.Errorf("%d timers, want 1", n)
	}
	schedule(t, b, ref("one"), "t", 50*time.Millisecond)
	consumeFired(t, b, f)
	natstest.Eventually(t, "the timer", func() bool { return f.times("ada/one/t") > 0 })
	natstest.Eventually(t, "the stream to be empty", func() bool { return timersLeft(t, b) == 0 })
	if n := f.times("ada/one/t"); n != 1 {
		t.Errorf("fired %d times", n)
	}
}

func TestFiringComesUntilItIsTaken(t *testing.T) {
	b, f := start(t), newFirings()
	f.fail["ada/one/t"] = 2
	consumeFired(t, b, f)
	schedule(t, b, ref("one"), "t", 0)
	natstest.Eventually(t, "the third attempt", func() bool { return f.times("ada/one/t") == 3 })
	natstest.Eventually(t, "the stream to be empty", func() bool { return timersLeft(t, b) == 0 })
}

func TestCancelledTimerDoesNotFire(t *testing.T) {
	ctx, b, f := natstest.Context(t), start(t), newFirings()
	if err := b.CancelTimer(ctx, ref("one"), "never was"); err != nil {
		t.Errorf("cancelling nothing: %v", err)
	}
	consumeFired(t, b, f)
	for in := 200 * time.Millisecond; ; in *= 2 {
		id := in.String()
		at := schedule(t, b, ref("one"), id, in)
		schedule(t, b, ref("one"), "later than "+id, in+50*time.Millisecond)
		if err := b.CancelTimer(ctx, ref("one"), id); err != nil {
			t.Fatal(err)
		}
		if !time.Now().Before(at) && in < natstest.Patience {
			continue // it was cancelled too late: this machine needs more time
		}
		natstest.Eventually(t, "the stream to be empty", func() bool { return timersLeft(t, b) == 0 })
		if f.times("ada/one/later than "+id) != 1 || f.times("ada/one/"+id) != 0 {
			t.Errorf("the other timer fired %d times, the cancelled one %d times", f.times("ada/one/later than "+id),
				f.times("ada/one/"+id))
		}
		return
	}
}

func TestTimersSurviveTheBus(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b, f := natstest.ConnectURL(t, p.URL()), newFirings()
	consumeFired(t, b, f)
	schedule(t, b, ref("one"), "meanwhile", 100*time.Millisecond)
	at := schedule(t, b, ref("one"), "later", 1500*time.Millisecond)
	p.Kill()
	<-time.After(150 * time.Millisecond) // the first timer's time passes while nobody is there
	p.Restart()
	natstest.Eventually(t, "the timer whose time came while the bus was away",
		func() bool { return f.times("ada/one/meanwhile") > 0 })
	natstest.Eventually(t, "the timer whose time came later", func() bool { return f.times("ada/one/later") > 0 })
	if early := time.Until(at); early > 0 {
		t.Errorf("fired %v early", early)
	}
	natstest.Eventually(t, "the stream to be empty", func() bool { return timersLeft(t, b) == 0 })
}

func TestFiringThatWasNotTakenSurvivesTheBus(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b, f := natstest.ConnectURL(t, p.URL()), newFirings()
	f.fail["ada/one/t"] = 1 << 20
	consumeFired(t, b, f)
	schedule(t, b, ref("one"), "t", 0)
	natstest.Eventually(t, "an attempt", func() bool { return f.times("ada/one/t") > 0 })
	p.Restart()
	f.mu.Lock()
	f.fail["ada/one/t"] = 0
	f.mu.Unlock()
	natstest.Eventually(t, "the stream to be empty", func() bool { return timersLeft(t, b) == 0 })
}

func TestReplicasShareFirings(t *testing.T) {
	s, f := natstest.Start(t), newFirings()
	b := natstest.Connect(t, s)
	consumeFired(t, b, f)
	consumeFired(t, natstest.Connect(t, s), f)
	for i := range 20 {
		schedule(t, b, ref("one"), string(rune('a'+i)), 0)
	}
	natstest.Eventually(t, "the stream to be empty", func() bool { return timersLeft(t, b) == 0 })
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, at := range f.at {
		if len(at) != 1 {
			t.Errorf("%s was handled %d times", key, len(at))
		}
	}
}

func TestTimerWithoutAnIDIsRefused(t *testing.T) {
	err := start(t).ScheduleTimer(natstest.Context(t), ref("one"), "", time.Now())
	if !errors.Is(err, bus.ErrInvalidArgument) || !strings.Contains(err.Error(), "id") {
		t.Errorf("%v", err)
	}
}
