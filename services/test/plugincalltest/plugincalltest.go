// Package plugincalltest provides plugins on a test's bus: plain NATS clients that do not
// use this code, and the records that a core would write about them into the registry. So
// the test decides when a lease ends, and whether a core is running.
package plugincalltest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/registry"
	"skandha.dev/services/test/natstest"
)

// Registry is the registry's bucket.
type Registry struct {
	t  testing.TB
	kv jetstream.KeyValue
}

// New opens the bucket, which [journal.Journal.EnsureStreams] has created.
func New(t testing.TB, b *journal.Journal) *Registry {
	t.Helper()
	kv, err := b.JetStream().KeyValue(natstest.Context(t), journal.BucketPlugins)
	if err != nil {
		t.Fatalf("opening the registry's bucket: %v", err)
	}
	return &Registry{t, kv}
}

// Register writes the manifest, replacing the previous one, and leases for it.
func (r *Registry) Register(m plugin.Manifest, replicas ...subject.Instance) {
	r.t.Helper()
	r.record(m, nil)
	for _, i := range replicas {
		r.put(subject.LeaseKey(m.Name, i), registry.LeaseRecord{Instance: i, Hash: m.Hash(), Since: time.Now().UTC()})
	}
}

// Suspend suspends the plugin.
func (r *Registry) Suspend(m plugin.Manifest, reason string) {
	r.t.Helper()
	r.record(m,
		&registry.SuspendRecord{
			Suspension: registry.Suspension{By: registry.ByOperator, Reason: reason, At: time.Now().UTC()},
		})
}

func (r *Registry) record(m plugin.Manifest, s *registry.SuspendRecord) {
	r.t.Helper()
	m.Instance = ""
	r.put(subject.ManifestKey(m.Name),
		registry.Record{Manifest: m, Hash: m.Hash(), Registered: time.Now().UTC(), Suspended: s})
}

// End ends leases.
func (r *Registry) End(p subject.Plugin, replicas ...subject.Instance) {
	r.t.Helper()
	for _, i := range replicas {
		if err := r.kv.Delete(natstest.Context(r.t), subject.LeaseKey(p, i)); err != nil {
			r.t.Fatalf("ending the lease of %s: %v", p, err)
		}
	}
}

func (r *Registry) put(key string, v any) {
	r.t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		_, err = r.kv.Put(natstest.Context(r.t), key, b)
	}
	if err != nil {
		r.t.Fatalf("writing %s: %v", key, err)
	}
}

// Core answers service.core.status as a core does, until stop is called or the
// test ends.
func Core(t testing.TB, s *natsserver.Server) (stop func()) {
	t.Helper()
	b, log := natstest.Dial(t, bus.Config{InProcess: s, Token: s.Token(), Name: "core"}), natstest.Logger(t)
	r, err := b.Respond(subject.Service("core", "status"), "core", "core", func(q *bus.Request) {
		if err := q.Reply([]byte(`{}`)); err != nil {
			log.Warn("answering for core", "error", err) // perhaps after the test's end
		}
	})
	if err == nil {
		err = b.Conn().Flush()
	}
	if err != nil {
		t.Fatalf("answering as core: %v", err)
	}
	return func() {
		r.Stop()
		if err := b.Conn().Flush(); err != nil {
			t.Errorf("stopping to answer as core: %v", err)
		}
	}
}

// Client returns a plugin's connection, which is a plain NATS client.
func Client(t testing.TB, s *natsserver.Server) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Token(s.Token()), nats.Name("plugin"),
		nats.Timeout(natstest.Patience))
	if err != nil {
		t.Fatalf("connecting a plugin: %v", err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Answer makes the plugin answer requests on the subject by calling f. Its queue group is
// the plugin's name.
func Answer(t testing.TB, nc *nats.Conn, p subject.Plugin, subj string, f func(*nats.Msg)) *nats.Subscription {
	t.Helper()
	sub, err := nc.QueueSubscribe(subj, string(p), f)
	if err == nil {
		err = flush(t, nc)
	}
	if err != nil {
		t.Fatalf("answering on %s: %v", subj, err)
	}
	return sub
}

func flush(t testing.TB, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(natstest.Context(t), natstest.Patience)
	defer cancel()
	return nc.FlushWithContext(ctx)
}
