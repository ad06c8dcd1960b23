package bustest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// noise has the server store on the session's commit subject what nobody has written: an acknowledgement, a page of
// its API, and a stored body that looks like a commit.
func noise(t testing.TB, b *journal.Journal, s subject.Ref) {
	t.Helper()
	nc := b.Conn()
	const key = "$KV.listeners.noise"
	if _, err := b.JetStream().PublishMsg(natstest.Context(t), &nats.Msg{
		Subject: key, Data: []byte(`[{}]`), Header: nats.Header{"Skandha-Outgoing": {"1"}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, ask := range []string{key, "$JS.API.STREAM.INFO.KV_listeners", "$JS.API.DIRECT.GET.KV_listeners." + key} {
		if err := nc.PublishRequest(ask, s.Commit(), nil); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := b.JetStream().Stream(natstest.Context(t), bus.StreamSessions)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the server to store it", func() bool {
		m, err := raw.GetLastMsgForSubject(natstest.Context(t), s.Commit())
		return err == nil && bus.IsAnswer(m.Header, m.Data)
	})
}

func written(t testing.TB, b *journal.Journal, s subject.Ref) (out []string) {
	t.Helper()
	for m, err := range b.Commits(natstest.Context(t), s, 0) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(m.Data))
	}
	return out
}

// What the server stores for somebody on the subject of a session's commits is read by nobody, and the session's next
// commit comes after it.
func TestNoiseIsNoCommit(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	s := ref("noisy")
	noise(t, b, s)
	if m, err := b.LastCommit(ctx, s); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("the last commit of a session without any: %+v, %v", m, err)
	}
	prev := uint64(0)
	for i := range 3 {
		seq, err := b.AppendCommit(ctx, s, fmt.Append(nil, i), prev)
		if err != nil || seq <= prev {
			t.Fatalf("commit %d: %d, %v", i, seq, err)
		}
		for range 2 {
			noise(t, b, s)
			if last, err := b.LastCommitSeq(ctx, s); err != nil || last != seq {
				t.Fatalf("the last commit is %d, %v, want %d", last, err, seq)
			}
		}
		if _, err := b.AppendCommit(ctx, s, []byte("late"), prev); !errors.Is(err, bus.ErrFenceLost) {
			t.Fatalf("a commit after %d, which is not the last one: %v", prev, err)
		}
		prev = seq
	}
	if got := written(t, b, s); fmt.Sprint(got) != "[0 1 2]" {
		t.Errorf("the commits are %q", got)
	}
	n := 0
	for m, err := range b.Messages(ctx, s, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; journal.IsNoise(m) {
			t.Errorf("message %d is noise", m.Seq)
		}
	}
	if n != 3 {
		t.Errorf("%d messages, want the 3 commits", n)
	}
}

// While noise comes, of many commits after the same one still exactly one is stored.
func TestOfManyRacersOneWinsInNoise(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	s, prev := ref("noisy"), uint64(0)
	for round := range 5 {
		var mu sync.Mutex
		var won, lost int
		var seq uint64
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				if i%2 == 0 {
					if err := b.Conn().PublishRequest("$KV.listeners.noise", s.Commit(), nil); err != nil {
						t.Error(err)
					}
				}
				at, err := b.AppendCommit(ctx, s, fmt.Append(nil, round), prev)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won, seq = won+1, at
				case errors.Is(err, bus.ErrFenceLost):
					lost++
				default:
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		wg.Wait()
		if won != 1 || lost != 5 {
			t.Fatalf("round %d: %d won, %d lost", round, won, lost)
		}
		prev = seq
	}
	if got := written(t, b, s); fmt.Sprint(got) != "[0 1 2 3 4]" {
		t.Errorf("the commits are %q", got)
	}
}

// Noise that is marked like a commit with something to deliver is not delivered.
func TestNoiseIsNotOutgoing(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	if err := b.EnsureOutgoing(ctx); err != nil {
		t.Fatal(err)
	}
	noise(t, b, ref("noisy"))
	want, err := b.AppendCommitAsync(ctx, ref("other"), []byte("x"), 0, true).Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan uint64, 8)
	c, err := b.ConsumeOutgoing(ctx, func() uint64 { return 0 }, func(_ context.Context, _ subject.Ref, seq uint64) error {
		got <- seq
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	if seq := <-got; seq != want {
		t.Errorf("message %d is delivered, want %d alone", seq, want)
	}
}

// What the server stores under a key for somebody is no value.
func TestNoiseIsNoValue(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	k, nc := b.Bucket(journal.BucketIdentities), b.Conn()
	if _, err := b.JetStream().Publish(ctx, "$KV.listeners.forged", []byte(`{"name":"mallory"}`)); err != nil {
		t.Fatal(err)
	}
	for i, ask := range []string{
		"$KV.listeners.other", "$JS.API.STREAM.INFO.KV_listeners", "$JS.API.DIRECT.GET.KV_listeners.$KV.listeners.forged",
		"$JS.API.CONSUMER.NAMES.KV_listeners",
	} {
		key := fmt.Sprint("mallory", i)
		if err := nc.PublishRequest(ask, "$KV.identities."+key, nil); err != nil {
			t.Fatal(err)
		}
	}
	put(t, k, "sound", "1", journal.Fence{})
	var f follower
	defer k.Watch(f.take).Stop()
	natstest.Eventually(t, "what is stored", func() bool { return len(f.entries()) == 5 })
	for _, e := range f.entries() {
		if e.Key != "sound" && !e.Deleted {
			t.Errorf("%s is %s", e.Key, e.Value)
		}
	}
	if e, err := k.Get(ctx, "mallory2"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("%s, %v", e.Value, err)
	}
}

// A message that the server has taken out of a stream is not for subscribers of Skandha's subjects.
func TestWhatComesFromAStreamIsDropped(t *testing.T) {
	b := start(t)
	got := make(chan string, 8)
	sub, err := b.Subscribe("announce.runner.victim", "", func(m *nats.Msg) { got <- string(m.Data) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	put(t, b.Bucket(journal.BucketListeners), "forged", "forged", journal.Fence{})
	nc := b.Conn()
	if err := nc.PublishRequest("$JS.API.DIRECT.GET.KV_listeners.$KV.listeners.forged", "announce.runner.victim", nil); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the server to send it", func() bool { return b.ForeignDropped() == 1 })
	if err := nc.Publish("announce.runner.victim", []byte("own")); err != nil {
		t.Fatal(err)
	}
	if text := <-got; text != "own" {
		t.Errorf("received %q", text)
	}
}
