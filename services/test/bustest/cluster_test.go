package bustest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

func TestThreeCopies(t *testing.T) {
	c := natstest.StartCluster(t)
	ctx := natstest.Context(t)
	connect := func(node int) *journal.Journal { return natstest.Dial(t, bus.Config{URL: c.Nodes[node].URL()}) }
	b := connect(0)
	t.Run("copies are added, and never taken away", func(t *testing.T) { addCopies(t, c) })

	t.Run("of many racers one wins", func(t *testing.T) {
		buses := []*journal.Journal{b, connect(1), connect(2)}
		var prev uint64
		var unknown int // of all rounds: what was sent may be stored late
		for round := range 20 {
			var won int
			var seq uint64
			var mu sync.Mutex
			var wg sync.WaitGroup
			for i, b := range buses {
				wg.Go(func() {
					got, err := b.AppendCommit(ctx, ref("race"), []byte(fmt.Sprint(round, i)), prev)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						won, seq = won+1, got
					case errors.Is(err, bus.ErrAmbiguous): // a leader is elected: the log knows who won
						unknown++
					case !errors.Is(err, bus.ErrFenceLost):
						t.Errorf("round %d: %v", round, err)
					}
				})
			}
			wg.Wait()
			if won == 0 && unknown > 0 {
				natstest.Eventually(t, "the last commit can be read", func() bool {
					last, err := b.LastCommitSeq(ctx, ref("race"))
					seq = last
					return err == nil
				})
				if seq == prev {
					continue // nobody
				}
				won = 1
			}
			if won != 1 {
				t.Fatalf("round %d: %d won", round, won)
			}
			// Every node answers with what the leader has, at once.
			for i, b := range buses {
				if last, err := b.LastCommitSeq(ctx, ref("race")); err != nil || last != seq {
					t.Fatalf("round %d: node %d says %d, %v, want %d", round, i, last, err, seq)
				}
				if got := readCommits(t, b, ref("race"), prev); !slices.Equal(got, []uint64{seq}) {
					t.Fatalf("round %d: node %d reads %v, want %d", round, i, got, seq)
				}
			}
			prev = seq
		}
	})

	t.Run("of many who change a bucket one wins, and every node follows", func(t *testing.T) {
		raceForABucket(t, []*journal.Journal{b, connect(1), connect(2)})
	})

	t.Run("reading is whole on every node", func(t *testing.T) {
		want := commits(t, b, ref("long"), 1200, 10)
		in := cause(t, b, ref("long"), "a", "x")
		for i := range c.Nodes {
			other := connect(i)
			if got := readCommits(t, other, ref("long"), 0); !slices.Equal(got, want) {
				t.Errorf("node %d reads %d commits, want %d", i, len(got), len(want))
			}
			if m, ok, err := other.NextCause(ctx, ref("long"), 0, in); err != nil || !ok || m.Seq != in || m.Time.IsZero() ||
				string(m.Data) != "x" {
				t.Errorf("node %d: %+v, %v, %v", i, m, ok, err)
			}
			if n := len(messages(t, other, ref("long"))); n != len(want)+1 {
				t.Errorf("node %d reads %d messages, want %d", i, n, len(want)+1)
			}
		}
	})

	t.Run("the same cause twice is stored once", func(t *testing.T) {
		first := cause(t, b, ref("twice"), "id", "x")
		if again := cause(t, connect(2), ref("twice"), "id", "x"); again != first {
			t.Errorf("stored again at %d, want %d", again, first)
		}
	})

	t.Run("consumption and timers survive the loss of a node", func(t *testing.T) {
		got, f := newCollector(), newFirings()
		survivor := connect(1)
		consume(t, survivor, journal.ConsumeConfig{}, func(d journal.Delivery) { got.take(d); _ = d.Ack() })
		consumeFired(t, survivor, f)
		schedule(t, b, ref("timed"), "t", 500*time.Millisecond)
		before := cause(t, b, ref("ha"), "before", "x")
		natstest.Eventually(t, "the first cause", func() bool { return got.times(before) > 0 })
		// A consumer that has just been created may be on one node alone until the others follow.
		natstest.Eventually(t, "every node has the consumers", func() bool {
			return onEveryNode(t, survivor, bus.StreamSessions, "core") &&
				onEveryNode(t, survivor, journal.StreamTimers, "fired")
		})
		c.Nodes[0].Stop()
		seq, err := survivor.PublishCause(natstest.Context(t), ref("ha"), subject.Input, "w", "after", []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, "the cause after the loss", func() bool { return got.times(seq) > 0 })
		natstest.Eventually(t, "the timer", func() bool { return f.times("ada/timed/t") > 0 })
	})
}

// onEveryNode reports whether all copies of a consumer are up to date.
func onEveryNode(t *testing.T, b *journal.Journal, stream, name string) bool {
	c, err := b.JetStream().Consumer(natstest.Context(t), stream, name)
	if err != nil {
		return false
	}
	at := c.CachedInfo().Cluster
	return at != nil && at.Leader != "" && len(at.Replicas) == 2 &&
		!slices.ContainsFunc(at.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline })
}

// raceForABucket has three change one key each, fenced against all keys of the
// kind. What two of them could do at once, two registrars could.
func raceForABucket(t *testing.T, buses []*journal.Journal) {
	var mu sync.Mutex
	followers := make([]follower, len(buses))
	for i, b := range buses {
		defer b.Bucket(journal.BucketPlugins).Watch(followers[i].take).Stop()
	}
	ctx := natstest.Context(t)
	var last uint64
	for round := range 20 {
		var won []uint64
		var g sync.WaitGroup
		for i, b := range buses {
			g.Go(func() {
				seq, err := b.Bucket(journal.BucketPlugins).Put(ctx, fmt.Sprintf("manifest.p%d", i), nil, journal.Fence{
					Filter: subject.AllManifests, Revision: last,
				})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, seq)
				} else if !errors.Is(err, bus.ErrFenceLost) {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		g.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d: %d won", round, len(won))
		}
		last = won[0]
		// A fence on another key than the one that is changed holds as well.
		k := buses[round%3].Bucket(journal.BucketPlugins)
		if _, err := k.Put(ctx, fmt.Sprintf("lease.p.r%d", round), nil,
			journal.Fence{Filter: subject.AllManifests, Revision: last - 1}); !errors.Is(err, bus.ErrFenceLost) {
			t.Fatalf("round %d: a stale fence: %v", round, err)
		}
		if _, err := k.Put(ctx, fmt.Sprintf("lease.p.r%d", round), nil,
			journal.Fence{Filter: subject.AllManifests, Revision: last}); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	end, err := buses[0].Bucket(journal.BucketPlugins).Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range followers {
		natstest.Eventually(t, fmt.Sprintf("node %d to have followed", i), func() bool { return followers[i].saw(end) })
		if all := followers[i].entries(); !slices.IsSortedFunc(all,
			func(a, b journal.Entry) int { return cmp.Compare(a.Revision, b.Revision) }) {
			t.Errorf("node %d has followed out of order: %+v", i, all)
		}
	}
}
