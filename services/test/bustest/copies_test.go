package bustest

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// fakeLog answers for the servers of a cluster: for one copy, for the leader, and for
// the description of the stream.
type fakeLog struct {
	mu       sync.Mutex
	replicas int
	copy     uint64   // last sequence of the copy that answers direct gets
	leader   uint64   // last sequence of the leader
	last     uint64   // last sequence in the description of the stream
	cause    uint64   // sequence of the only cause
	deleted  []uint64 // of the stream
	lookups  atomic.Int64
}

func (f *fakeLog) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// startFakeLog runs a server without JetStream, and the fake in its stead.
func startFakeLog(t *testing.T, f *fakeLog) *journal.Journal {
	t.Helper()
	s, err := server.NewServer(&server.Options{ServerName: "fake", Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(natstest.Patience) {
		t.Fatal("the server is not ready")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	for subj, answer := range map[string]func(*nats.Msg) *nats.Msg{
		"$JS.API.STREAM.INFO.SESSIONS":    f.info,
		"$JS.API.STREAM.MSG.GET.SESSIONS": f.fromLeader,
		"$JS.API.DIRECT.GET.SESSIONS":     f.direct,
		"$JS.API.DIRECT.GET.SESSIONS.>":   f.direct,
	} {
		if _, err := nc.Subscribe(subj, func(m *nats.Msg) {
			f.mu.Lock()
			defer f.mu.Unlock()
			_ = m.RespondMsg(answer(m))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return natstest.Dial(t, bus.Config{URL: s.ClientURL()})
}

func (f *fakeLog) info(*nats.Msg) *nats.Msg {
	f.lookups.Add(1)
	b, _ := json.Marshal(map[string]any{
		"config": map[string]any{"name": "SESSIONS", "num_replicas": f.replicas},
		"state":  map[string]any{"first_seq": 1, "last_seq": f.last, "deleted": f.deleted},
	})
	return &nats.Msg{Data: b}
}

func (f *fakeLog) fromLeader(*nats.Msg) *nats.Msg {
	if f.leader < f.cause || f.cause == 0 {
		return &nats.Msg{Data: []byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`)}
	}
	return &nats.Msg{Data: fmt.Appendf(nil,
		`{"message":{"subject":%q,"seq":%d,"data":"eA==","time":"2026-01-01T00:00:00Z"}}`,
		ref("one").Cause("input", "w"), f.cause)}
}

func (f *fakeLog) direct(*nats.Msg) *nats.Msg {
	if f.copy < f.cause || f.cause == 0 {
		return &nats.Msg{Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}}}
	}
	return &nats.Msg{Data: []byte("x"), Header: nats.Header{
		"Nats-Stream": {"SESSIONS"}, "Nats-Subject": {ref("one").Cause("input", "w")},
		"Nats-Sequence": {fmt.Sprint(f.cause)}, "Nats-Time-Stamp": {"2026-01-01T00:00:00Z"},
	}}
}

// A delivered cause is in the log. A copy that does not have it lags, and its answer
// must not lead to an acknowledgement.
func TestALaggingCopyDoesNotHideACause(t *testing.T) {
	for what, c := range map[string]struct {
		believed, replicas int
		copy, leader, last uint64
		deleted            []uint64
		found              bool
		err                error
	}{
		"copies were added a moment ago, and one lags": {
			believed: 1, replicas: 3, copy: 4, leader: 5, last: 5, found: true,
		},
		"and so does the leader, which is new": {
			believed: 1, replicas: 3, copy: 4, leader: 4, last: 5, err: bus.ErrUnavailable,
		},
		"and so does the server that describes the stream": {
			believed: 1, replicas: 3, copy: 4, leader: 4, last: 4, err: bus.ErrUnavailable,
		},
		"three copies, and the leader lags, which is new": {
			believed: 3, replicas: 3, copy: 4, leader: 4, last: 5, err: bus.ErrUnavailable,
		},
		"three copies, and the leader of long ago still answers": {
			believed: 3, replicas: 3, copy: 4, leader: 4, last: 4, err: bus.ErrUnavailable,
		},
		"three copies, and it was deleted": {
			believed: 3, replicas: 3, copy: 4, leader: 4, last: 9, deleted: []uint64{3, 5},
		},
		"three copies, and it is there": {
			believed: 3, replicas: 3, copy: 4, leader: 5, last: 5, found: true,
		},
		"one copy, and it was deleted": {believed: 1, replicas: 1, copy: 4, leader: 4, last: 9},
		"one copy, and it is there": {
			believed: 1, replicas: 1, copy: 5, leader: 5, last: 5, found: true,
		},
		"copies were added a moment ago, and the answer was right": {
			believed: 1, replicas: 3, copy: 5, leader: 5, last: 5, found: true,
		},
	} {
		t.Run(what, func(t *testing.T) {
			f := &fakeLog{replicas: c.believed}
			b, ctx := startFakeLog(t, f), natstest.Context(t)
			if _, err := b.LastCommitSeq(ctx, ref("one")); err != nil { // looks up the number of copies
				t.Fatal(err)
			}
			f.set(func() {
				f.replicas, f.copy, f.leader, f.last, f.deleted, f.cause = c.replicas, c.copy, c.leader, c.last, c.deleted, 5
			})
			m, found, err := b.NextCause(ctx, ref("one"), 2, 5)
			if found != c.found || !errors.Is(err, c.err) || found && m.Seq != 5 {
				t.Errorf("%+v, %v, %v, want %v, %v", m, found, err, c.found, c.err)
			}
		})
	}
}

// Sessions that all read right after a reconnect share one lookup.
func TestAReconnectMakesOneLookup(t *testing.T) {
	const readers = 500
	f := &fakeLog{replicas: 1}
	b, ctx := startFakeLog(t, f), natstest.Context(t)
	read := func() {
		var all sync.WaitGroup
		for range readers {
			all.Go(func() {
				if _, err := b.LastCommitSeq(ctx, ref("one")); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	read()
	if n := f.lookups.Load(); n != 1 {
		t.Errorf("%d lookups at first, want 1", n)
	}
	if err := b.Conn().ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the connection", func() bool { return b.Conn().Stats().Reconnects == 1 && b.Connected() })
	read()
	if n := f.lookups.Load(); n != 2 {
		t.Errorf("%d lookups after a reconnect, want one more", n-1)
	}
}

// addCopies begins with one copy and ends with three. Readers notice when the server
// reports the change.
func addCopies(t *testing.T, c *natstest.Cluster) {
	ctx := natstest.Context(t)
	b := natstest.Dial(t, bus.Config{URL: c.URL()})
	if err := b.EnsureStreams(ctx, journal.StreamsConfig{}); err != nil {
		t.Fatal(err)
	}
	consume(t, b, journal.ConsumeConfig{}, func(d journal.Delivery) { _ = d.Ack() })
	watcher := natstest.Dial(t, bus.Config{URL: c.URL()})
	var fromLeader atomic.Int64
	if _, err := watcher.Conn().Subscribe("$JS.API.STREAM.MSG.GET.SESSIONS",
		func(*nats.Msg) { fromLeader.Add(1) }); err != nil {
		t.Fatal(err)
	}
	if err := watcher.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if err := watcher.EnsureStreams(ctx, journal.StreamsConfig{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "reads to go to the leader", func() bool {
		if _, err := b.LastCommitSeq(ctx, ref("one")); err != nil {
			t.Fatal(err)
		}
		return fromLeader.Load() > 0
	})

	// A process that starts now does not remove copies, whatever its configuration.
	var said lines
	for _, conf := range []journal.StreamsConfig{{}, {Replicas: 1}} {
		starter := natstest.Dial(t, bus.Config{URL: c.URL(), Logger: slog.New(slog.NewTextHandler(&said, nil))})
		if err := starter.EnsureStreams(ctx, conf); err != nil {
			t.Fatal(err)
		}
		if err := starter.EnsurePlugins(ctx, conf); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		bus.StreamSessions, journal.StreamTimers, journal.StreamDead, journal.StreamAudit, "KV_plugins", "OBJ_claims", "OBJ_artifacts",
	} {
		if n := config(t, b, name).Replicas; n != 3 {
			t.Errorf("%s has %d copies after a start, want 3", name, n)
		}
	}
	if !strings.Contains(said.String(), "level=WARN") ||
		!strings.Contains(said.String(), "field=num_replicas configured=1 is=3") {
		t.Errorf("a configuration that is ignored is to be named; it said %q", said.String())
	}
}
