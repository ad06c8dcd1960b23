package plugincall_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/plugincall"
	"skandha.dev/services/internal/registry"
	"skandha.dev/services/test/natstest"
)

// fixed is a view that never changes.
type fixed struct{ now *registry.Snapshot }

func (f fixed) Snapshot() *registry.Snapshot { return f.now }

// viewOf is a registry of one plugin with one replica.
func viewOf(m plugin.Manifest) fixed {
	const replica = "one"
	c := registry.NewContent()
	c.Records[m.Name] = &registry.StoredRecord{Record: registry.Record{Manifest: m, Hash: m.Hash()}}
	c.Leases[m.Name] = map[subject.Instance]*registry.StoredLease{
		replica: {LeaseRecord: registry.LeaseRecord{Instance: replica, Hash: m.Hash()}, Plugin: m.Name},
	}
	return fixed{registry.Compute(c)}
}

// The server reports separately that a message was not allowed, with its subject. So a
// request was certainly denied only if it is the only one to the subject.
func TestAPublishThatIsNotAllowed(t *testing.T) {
	srv, err := server.NewServer(&server.Options{
		DontListen: true, NoSigs: true, NoLog: true, AuthTimeout: natstest.Patience.Seconds(),
		Users: []*server.User{
			{Username: "runner", Password: "x", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{"tool.p.allowed"}},
			}},
			{Username: "plugin", Password: "x"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(srv.Shutdown)
	if !srv.ReadyForConnections(natstest.Patience) {
		t.Fatal("the server does not start")
	}
	got := make(chan *nats.Msg, 16)
	nc, err := nats.Connect("", nats.InProcessServer(srv), nats.UserInfo("plugin", "x"), nats.Timeout(natstest.Patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := nc.QueueSubscribe("tool.p.>", "p", func(m *nats.Msg) { got <- m }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	m := plugin.Manifest{Name: "p", Version: "1.0.0"}
	b := natstest.Dial(t, bus.Config{InProcess: srv, User: "runner", Password: "x", Logger: slog.New(slog.DiscardHandler)})
	asker, err := plugincall.New(b, viewOf(m))
	if err != nil {
		t.Fatal(err)
	}
	r := plugincall.Request{Plugin: "p", Hash: m.Hash(), Subject: "tool.p.forbidden"}
	for range 3 {
		if _, err := asker.Ask(natstest.Context(t), r); !errors.Is(err, plugincall.ErrNotAsked) ||
			!errors.Is(err, bus.ErrDenied) {
			t.Fatalf("got %v", err)
		}
	}
	if n := len(got); n > 0 {
		t.Errorf("the plugin got %d requests", n)
	}
}
