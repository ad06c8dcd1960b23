package bustest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// commits appends n commits, many at a time, and returns their sequences.
func commits(t testing.TB, b *journal.Journal, r subject.Ref, n, size int) []uint64 {
	t.Helper()
	seqs := make([]uint64, 0, n)
	body := make([]byte, size)
	var prev uint64
	for range n {
		seq, err := b.AppendCommit(natstest.Context(t), r, body, prev)
		if err != nil {
			t.Fatal(err)
		}
		seqs, prev = append(seqs, seq), seq
	}
	return seqs
}

func readCommits(t testing.TB, b *journal.Journal, r subject.Ref, after uint64) []uint64 {
	t.Helper()
	var got []uint64
	for m, err := range b.Commits(natstest.Context(t), r, after) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Seq)
	}
	return got
}

func TestCommitsOfASessionComeInOrderAndWhole(t *testing.T) {
	b := start(t)
	for _, n := range []int{0, 1, 2, 999, 1000, 1001, 2500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := ref(fmt.Sprint("s", n))
			want := commits(t, b, r, n, 10)
			cause(t, b, r, "between", "x")
			if got := readCommits(t, b, r, 0); !slices.Equal(got, want) {
				t.Errorf("%d commits, want %d", len(got), len(want))
			}
			for _, after := range []int{0, n / 2, n - 2, n - 1} {
				if after < 0 || after >= n {
					continue
				}
				if got := readCommits(t, b, r, want[after]); !slices.Equal(got, want[after+1:]) {
					t.Errorf("after number %d: %d commits, want %d", after, len(got), n-after-1)
				}
			}
		})
	}
}

func TestLargeCommitsComeInSeveralBatches(t *testing.T) {
	b := start(t)
	want := commits(t, b, ref("large"), 40, 1<<20)
	if got := readCommits(t, b, ref("large"), 0); !slices.Equal(got, want) {
		t.Errorf("%d commits, want %d", len(got), len(want))
	}
}

func TestReadingMayStopInTheMiddle(t *testing.T) {
	b := start(t)
	want := commits(t, b, ref("one"), 1500, 10)
	for i := range 20 {
		n := 0
		for m, err := range b.Commits(natstest.Context(t), ref("one"), 0) {
			if err != nil || m.Seq != want[n] {
				t.Fatalf("commit %d: %d, %v", n, m.Seq, err)
			}
			if n++; n > i*70 {
				break
			}
		}
	}
}

func TestReadingWhileCommitsAreAppended(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	stop, done := make(chan struct{}), make(chan []uint64)
	go func() {
		var seqs []uint64
		var prev uint64
		for {
			select {
			case <-stop:
				done <- seqs
				return
			default:
			}
			seq, err := b.AppendCommit(ctx, ref("one"), []byte("x"), prev)
			if err != nil {
				t.Error(err)
				done <- seqs
				return
			}
			seqs, prev = append(seqs, seq), seq
		}
	}()
	var reads [][]uint64
	for range 50 {
		before, err := b.LastCommitSeq(ctx, ref("one"))
		if err != nil {
			t.Fatal(err)
		}
		got := readCommits(t, b, ref("one"), 0)
		if len(got) == 0 && before != 0 || len(got) > 0 && got[len(got)-1] < before {
			t.Fatalf("read up to %v, but %d was stored before", got, before)
		}
		reads = append(reads, got)
	}
	close(stop)
	all := <-done
	for i, got := range reads {
		if !slices.Equal(got, all[:len(got)]) {
			t.Errorf("read %d has a gap", i)
		}
	}
}

func TestMessagesHoldBothKindsAndNoOtherSession(t *testing.T) {
	b := start(t)
	var want []uint64
	var prev uint64
	for i := range 30 {
		want = append(want, cause(t, b, ref("one"), fmt.Sprint(i), "x"))
		cause(t, b, ref("one-2"), fmt.Sprint(i), "x")
		seq, err := b.AppendCommit(natstest.Context(t), ref("one"), []byte("c"), prev)
		if err != nil {
			t.Fatal(err)
		}
		want, prev = append(want, seq), seq
	}
	var got []uint64
	for _, m := range messages(t, b, ref("one")) {
		got = append(got, m.Seq)
	}
	if !slices.Equal(got, want) {
		t.Errorf("messages %v, want %v", got, want)
	}
}

func TestNextCauseIsTheFirstInTheRange(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	a := cause(t, b, ref("one"), "a", "a")
	cause(t, b, ref("two"), "x", "x")
	if _, err := b.AppendCommit(ctx, ref("one"), []byte("c"), 0); err != nil {
		t.Fatal(err)
	}
	c := cause(t, b, ref("one"), "c", "c")
	for _, q := range []struct {
		after, upTo, want uint64
	}{
		{0, c, a},
		{0, a, a},
		{a, c, c},
		{a, c - 1, 0},
		{a, a, 0},
		{c, c, 0},
		{c, c + 100, 0},
		{c + 5, c, 0},
		{0, 0, 0},
	} {
		m, ok, err := b.NextCause(ctx, ref("one"), q.after, q.upTo)
		if err != nil || ok != (q.want != 0) || m.Seq != q.want {
			t.Errorf("after %d up to %d: %d, %v, %v, want %d", q.after, q.upTo, m.Seq, ok, err, q.want)
		}
	}
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	if _, err := b.LastCommit(ctx, ref("none")); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("last commit: %v", err)
	}
	if seq, err := b.LastCommitSeq(ctx, ref("none")); seq != 0 || err != nil {
		t.Errorf("last sequence: %d, %v, want 0", seq, err)
	}
	for _, seq := range []uint64{0, 1, 99} {
		if _, err := b.Message(ctx, seq); !errors.Is(err, bus.ErrNotFound) {
			t.Errorf("message %d: %v", seq, err)
		}
	}
}

func TestSessionsAreListedPerAgent(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	commits(t, b, ref("one"), 3, 1)
	commits(t, b, ref("two"), 1, 1)
	commits(t, b, subject.Ref{Agent: "bob", Session: "one"}, 2, 1)
	cause(t, b, ref("waiting"), "a", "x") // no commit yet
	list := func(agent subject.Agent) []string {
		all, err := b.Sessions(ctx, agent)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range all {
			names = append(names, fmt.Sprintf("%s %d", s.Ref, s.Commits))
		}
		slices.Sort(names)
		return names
	}
	if got := list("ada"); !slices.Equal(got, []string{"ada/one 3", "ada/two 1"}) {
		t.Errorf("sessions of ada: %v", got)
	}
	if got := list(""); !slices.Equal(got, []string{"ada/one 3", "ada/two 1", "bob/one 2"}) {
		t.Errorf("all sessions: %v", got)
	}
	if got := list("nobody"); len(got) != 0 {
		t.Errorf("sessions of nobody: %v", got)
	}
	if _, err := b.Sessions(ctx, "a.*"); !errors.Is(err, bus.ErrInvalidArgument) {
		t.Errorf("a wildcard: %v", err)
	}
}

func TestReadingFailsWhenTheServerDoes(t *testing.T) {
	s := natstest.Start(t)
	b := natstest.Connect(t, s)
	commits(t, b, ref("one"), 3, 1)
	s.Shutdown()
	natstest.Eventually(t, "the connection to be lost", func() bool { return !b.Connected() })
	n := 0
	for _, err := range b.Commits(natstest.Context(t), ref("one"), 0) {
		if n++; err == nil || !bus.Retryable(err) {
			t.Fatalf("%v, want an error that may pass", err)
		}
	}
	if n != 1 {
		t.Errorf("%d results, want one error", n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.LastCommit(ctx, ref("one")); err == nil {
		t.Error("no error")
	}
}

func TestReadingStepsOverPurgedCommits(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	want := commits(t, b, ref("one"), 10, 1)
	st, err := b.JetStream().Stream(ctx, bus.StreamSessions)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Purge(ctx, jetstream.WithPurgeSubject(ref("one").Commit()),
		jetstream.WithPurgeSequence(want[4])); err != nil {
		t.Fatal(err)
	}
	if got := readCommits(t, b, ref("one"), 0); !slices.Equal(got, want[4:]) {
		t.Errorf("%v, want %v", got, want[4:])
	}
	if err := st.DeleteMsg(ctx, want[6]); err != nil {
		t.Fatal(err)
	}
	if got := readCommits(t, b, ref("one"), want[4]); !slices.Equal(got, append([]uint64{want[5]}, want[7:]...)) {
		t.Errorf("%v", got)
	}
}

func TestReadingWithoutAStreamSaysSo(t *testing.T) {
	b := natstest.Dial(t, bus.Config{InProcess: natstest.Start(t)})
	_, err := b.LastCommit(natstest.Context(t), ref("one"))
	if err == nil || errors.Is(err, bus.ErrNotFound) || !strings.Contains(err.Error(), "stream") {
		t.Errorf("%v, want an error about the stream, not ErrNotFound", err)
	}
}
