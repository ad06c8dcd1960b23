package bustest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

func ref(session string) subject.Ref {
	return subject.Ref{Agent: "ada", Session: subject.Session(session)}
}

func start(t testing.TB) *journal.Journal {
	t.Helper()
	return natstest.Connect(t, natstest.Start(t))
}

func TestCommitsAreFencedBySession(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	first, err := b.AppendCommit(ctx, ref("one"), []byte("1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.AppendCommit(ctx, ref("one"), []byte("again"), 0); !errors.Is(err, bus.ErrFenceLost) ||
		errors.Is(err, bus.ErrAmbiguous) {
		t.Fatalf("a second first commit: %v, want ErrFenceLost", err)
	}
	if _, err := b.AppendCommit(ctx, ref("two"), []byte("1"), 0); err != nil {
		t.Fatalf("another session should have a separate fence: %v", err)
	}
	second, err := b.AppendCommit(ctx, ref("one"), []byte("2"), first)
	if err != nil || second <= first {
		t.Fatalf("second commit: %d, %v", second, err)
	}
	if _, err := b.AppendCommit(ctx, ref("one"), []byte("3"), first); !errors.Is(err, bus.ErrFenceLost) {
		t.Fatalf("a stale fence: %v, want ErrFenceLost", err)
	}
	last, err := b.LastCommit(ctx, ref("one"))
	if err != nil || last.Seq != second || string(last.Data) != "2" || last.Subject != ref("one").Commit() ||
		last.Time.IsZero() {
		t.Fatalf("last commit: %+v, %v", last, err)
	}
}

func TestOfManyRacersOneWins(t *testing.T) {
	ctx, s := natstest.Context(t), natstest.Start(t)
	b := natstest.Connect(t, s)
	var prev uint64
	for round := range 20 {
		var won, lost int
		var seq uint64
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				got, err := b.AppendCommit(ctx, ref("race"), []byte(fmt.Sprint(round, i)), prev)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won, seq = won+1, got
				case errors.Is(err, bus.ErrFenceLost):
					lost++
				default:
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		wg.Wait()
		if won != 1 || lost != 7 {
			t.Fatalf("round %d: %d won, %d lost", round, won, lost)
		}
		prev = seq
	}
}

func TestAsyncCommitLetsTheCallerGoOn(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	var pending []*journal.Appending
	for i := range 50 {
		pending = append(pending, b.AppendCommitAsync(natstest.Context(t), ref(fmt.Sprint("s", i)), []byte("x"), 0, false))
	}
	for i, p := range pending {
		seq, err := p.Wait(ctx)
		if err != nil || seq == 0 {
			t.Fatalf("commit %d: %d, %v", i, seq, err)
		}
		if again, err := p.Wait(ctx); again != seq || err != nil {
			t.Fatalf("waiting again: %d, %v, want the same answer", again, err)
		}
	}
}

func TestCommitThatIsTooLargeIsNotSent(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	body := make([]byte, b.MaxPayload())
	_, err := b.AppendCommit(ctx, ref("big"), body, 0)
	if !errors.Is(err, bus.ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprint(b.MaxPayload())) {
		t.Fatalf("%v, want ErrTooLarge that names the limit %d", err, b.MaxPayload())
	}
	if _, err := b.LastCommit(ctx, ref("big")); !errors.Is(err, bus.ErrNotFound) {
		t.Fatalf("last commit: %v, want ErrNotFound", err)
	}
	if !b.Connected() {
		t.Fatal("the server threw us out")
	}
}

func TestFullLogRefusesDefinitely(t *testing.T) {
	ctx, s := natstest.Context(t), natstest.Start(t)
	b := natstest.Dial(t, bus.Config{InProcess: s})
	if err := b.EnsureStreams(ctx, journal.StreamsConfig{MaxBytes: 64 << 10}); err != nil {
		t.Fatal(err)
	}
	var prev uint64
	var err error
	for range 100 {
		var seq uint64
		if seq, err = b.AppendCommit(ctx, ref("full"), make([]byte, 4<<10), prev); err != nil {
			break
		}
		prev = seq
	}
	if !errors.Is(err, bus.ErrRefused) || errors.Is(err, bus.ErrAmbiguous) ||
		!strings.Contains(err.Error(), "maximum bytes") {
		t.Fatalf("%v, want ErrRefused with the reason", err)
	}
	if last, err := b.LastCommitSeq(ctx, ref("full")); err != nil || last != prev {
		t.Fatalf("last commit %d, %v, want %d", last, err, prev)
	}
	_, err = b.PublishCause(ctx, ref("full"), subject.Input, "w", "id", make([]byte, 4<<10))
	if !errors.Is(err, bus.ErrRefused) {
		t.Fatalf("a cause: %v, want ErrRefused", err)
	}
}

func TestWhatNobodyKnowsIsAmbiguous(t *testing.T) {
	s := natstest.Start(t)
	b := natstest.Connect(t, s)
	cancelled, cancel := context.WithCancel(natstest.Context(t))
	cancel()
	p := b.AppendCommitAsync(natstest.Context(t), ref("amb"), []byte("x"), 0, false)
	// The answer may be there already; then it is taken, whatever the context says.
	if _, err := p.Wait(cancelled); err != nil && !errors.Is(err, bus.ErrAmbiguous) {
		t.Fatalf("%v, want ErrAmbiguous", err)
	}
	s.Shutdown()
	natstest.Eventually(t, "the connection to be lost", func() bool { return !b.Connected() })
	if _, err := b.AppendCommit(natstest.Context(t), ref("amb"), []byte("x"), 0); !errors.Is(err, bus.ErrAmbiguous) {
		t.Fatalf("without a server: %v, want ErrAmbiguous", err)
	}
}

func TestCommitWithoutAStreamIsAmbiguous(t *testing.T) {
	b := natstest.Dial(t, bus.Config{InProcess: natstest.Start(t)})
	_, err := b.AppendCommit(natstest.Context(t), ref("none"), []byte("x"), 0)
	if !errors.Is(err, bus.ErrAmbiguous) || !errors.Is(err, nats.ErrNoResponders) {
		t.Fatalf("%v, want ErrAmbiguous because nobody responds", err)
	}
}
