package bustest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

const noLog = "the stream SESSIONS does not exist; core creates it again"

func deleteStream(t *testing.T, b *journal.Journal, name string) {
	t.Helper()
	if err := b.JetStream().DeleteStream(natstest.Context(t), name); err != nil {
		t.Fatal(err)
	}
}

// keep runs [journal.Journal.KeepStreams] until the test ends.
func keep(t *testing.T, b *journal.Journal, c journal.StreamsConfig) <-chan journal.Renewal {
	ctx, cancel := context.WithCancel(context.Background())
	done, renewed := make(chan struct{}), make(chan journal.Renewal, 16)
	go func() {
		defer close(done)
		b.KeepStreams(ctx, c, func(r journal.Renewal) { renewed <- r })
	}()
	t.Cleanup(func() { cancel(); <-done })
	return renewed
}

// A process that may not create streams names the cause, whether or not it may ask for
// write errors, or for the stream.
func TestAMissingLogIsNamed(t *testing.T) {
	input := []string{"agent.*.*.sense.input.w", "probe.*"}
	s := startWith(t, &server.Options{Users: []*server.User{
		{Username: "core", Password: "x"},
		{Username: "asks", Password: "x", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: append([]string{"$JS.API.STREAM.INFO.SESSIONS"}, input...)},
		}},
		{
			Username: "blind", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: input}},
		},
	}})
	core := natstest.Dial(t, bus.Config{URL: s.ClientURL(), User: "core", Password: "x"})
	c := journal.StreamsConfig{MaxBytes: 64 << 20}
	if err := core.EnsureStreams(natstest.Context(t), c); err != nil {
		t.Fatal(err)
	}
	before := config(t, core, bus.StreamSessions)
	deleteStream(t, core, bus.StreamSessions)
	all := []*journal.Journal{core}
	for who, says := range map[string]string{
		"core": noLog, "asks": noLog, "blind": "no stream accepts the messages: the stream SESSIONS does not exist",
	} {
		b := natstest.Dial(t, bus.Config{URL: s.ClientURL(), User: who, Password: "x", Logger: slog.New(slog.DiscardHandler)})
		all = append(all, b)
		_, err := b.PublishCause(natstest.Context(t), ref("one"), subject.Input, "w", "", []byte("x"))
		if !isFault(err, says) {
			t.Errorf("%s: %v", who, err)
		}
	}
	if err := core.RestoreStreams(natstest.Context(t), c); err != nil {
		t.Fatal(err)
	}
	if after := config(t, core, bus.StreamSessions); after.MaxBytes != before.MaxBytes ||
		after.Replicas != before.Replicas {
		t.Errorf("created again as %+v, it was %+v", after, before)
	}
	for _, b := range all {
		natstest.Eventually(t, "the fault is over", func() bool { return b.StorageFault() == nil })
	}
}

// Whatever is deleted is created again, reported to every process that keeps streams,
// and consumed again. What exists stays as an operator has changed it.
func TestDeletedStreamsComeBack(t *testing.T) {
	s := natstest.Start(t)
	b, other := natstest.Connect(t, s), natstest.Connect(t, s)
	got, f := newCollector(), newFirings()
	consume(t, b, journal.ConsumeConfig{}, func(d journal.Delivery) { got.take(d); _ = d.Ack() })
	consumeFired(t, b, f)
	changed := config(t, b, journal.StreamDead)
	changed.MaxBytes = 1 << 20
	if _, err := b.JetStream().UpdateStream(natstest.Context(t), changed); err != nil {
		t.Fatal(err)
	}
	reports := []<-chan journal.Renewal{keep(t, b, journal.StreamsConfig{}), keep(t, other, journal.StreamsConfig{})}
	for _, names := range [][]string{
		{"KV_" + journal.BucketPlugins, "OBJ_" + bus.BucketClaims, journal.StreamTimers}, {bus.StreamSessions},
	} {
		for _, name := range names {
			deleteStream(t, b, name)
		}
		for _, report := range reports {
			for missing := slices.Clone(names); len(missing) > 0; {
				select {
				case r := <-report:
					missing = slices.DeleteFunc(missing, func(name string) bool { return slices.Contains(r.Streams, name) })
					if r.Log() != (names[0] == bus.StreamSessions) || r.At.IsZero() {
						t.Errorf("%+v", r)
					}
				case <-time.After(natstest.Patience):
					t.Fatalf("not created again: %v", missing)
				}
			}
		}
	}
	schedule(t, b, ref("one"), "again", 0)
	natstest.Eventually(t, "the timer", func() bool { return f.times("ada/one/again") > 0 })
	seq := cause(t, b, ref("one"), "id", "hello")
	natstest.Eventually(t, "the delivery", func() bool { return got.times(seq) > 0 })
	if dead := config(t, b, journal.StreamDead); dead.MaxBytes != 1<<20 {
		t.Errorf("an operator's change was undone: %+v", dead)
	}
}

// A cluster without a leader has lost no stream. One that was deleted comes back with as
// many copies as it had.
func TestAClusterKeepsItsStreams(t *testing.T) {
	c := natstest.StartCluster(t)
	b := natstest.Dial(t, bus.Config{URL: c.Nodes[0].URL()})
	if err := b.EnsureStreams(natstest.Context(t), journal.StreamsConfig{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	before, err := b.LogState(natstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	renewed := keep(t, b, journal.StreamsConfig{})
	for _, n := range c.Nodes[1:] {
		n.Kill()
	}
	natstest.Eventually(t, "the cluster has no leader", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return b.RestoreStreams(ctx, journal.StreamsConfig{}) != nil
	})
	for _, n := range c.Nodes {
		n.Restart()
	}
	natstest.Eventually(t, "the log is there", func() bool {
		now, err := b.LogState(natstest.Context(t))
		if err == nil && !now.Created.Equal(before.Created) {
			t.Fatalf("the log was created again: %v, it was created at %v", now, before.Created)
		}
		return err == nil
	})
	select {
	case r := <-renewed:
		t.Fatalf("%+v", r)
	default:
	}
	natstest.Eventually(t, "the log is deleted", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := b.JetStream().DeleteStream(ctx, bus.StreamSessions)
		return err == nil || errors.Is(err, jetstream.ErrStreamNotFound)
	})
	select {
	case r := <-renewed:
		if !r.Log() {
			t.Fatalf("%+v", r)
		}
	case <-time.After(natstest.Patience):
		t.Fatal("the log was not created again")
	}
	if n := config(t, b, bus.StreamSessions).Replicas; n != 3 {
		t.Errorf("the log has %d copies, it had 3", n)
	}
}
