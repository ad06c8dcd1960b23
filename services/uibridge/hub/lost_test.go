package hub_test

import (
	"errors"
	"os"
	"slices"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hub"
)

// An open feed does not stay silent when the log is replaced: it ends with the error of
// attaching after a lost place, whatever the new log contains by then. A client that
// attaches again gets all of the new log, and what follows.
func TestAReplacedLogEndsFeeds(t *testing.T) {
	for about, fresh := range map[string]func(*world){
		"it is empty":               func(*world) {},
		"it is shorter":             func(w *world) { w.said("new") },
		"it has grown past":         func(w *world) { w.stored("a"); w.stored("b"); w.stored("c"); w.said("d") },
		"it is as long":             func(w *world) { w.stored("a"); w.said("b") },
		"another session has begun": func(w *world) { w.otherSaid(); w.otherSaid(); w.said("new") },
	} {
		t.Run(about, func(t *testing.T) {
			w := newWorld(t, hub.Config{}, nil)
			w.said("one")
			feeds := []contract.Feed{w.attach(contract.Attachment{After: "0"}), w.attach(contract.Attachment{Commits: true})}
			w.said("two")
			for _, f := range feeds {
				if _, err := read(natstest.Context(t), f, w.ids[len(w.ids)-1]); err != nil {
					t.Fatal(err)
				}
			}
			w.replaceLog()
			fresh(w)
			for _, f := range feeds {
				w.mustBeLost(f)
			}
			w.mustGoOn()
		})
	}
}

// So does a feed when the server returns with an older copy of its data.
func TestALogRestoredFromAnOlderCopyEndsFeeds(t *testing.T) {
	dir, older := t.TempDir(), t.TempDir()
	srv := startAt(t, dir)
	w := newWorldAt(t, srv, hub.Config{}, nil)
	w.said("one")
	copied, ids := w.prev, slices.Clone(w.ids)
	srv = w.move(srv, func() {
		if err := os.CopyFS(older, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}, dir)
	f := w.attach(contract.Attachment{After: "0"})
	w.said("two", "three")
	if got, err := read(natstest.Context(t), f, w.ids[len(w.ids)-1]); err != nil ||
		!slices.Equal(got, rest(w.ids, "0", false)) {
		t.Fatalf("%v, got %v", err, got)
	}
	w.move(srv, func() {}, older)
	w.prev, w.ids = copied, ids
	w.log++
	w.mustBeLost(f)
	w.mustGoOn()
}

// A feed continues over a restart of the server with the same log.
func TestARestartedServerEndsNoFeed(t *testing.T) {
	dir := t.TempDir()
	srv := startAt(t, dir)
	w := newWorldAt(t, srv, hub.Config{}, nil)
	w.said("one")
	f := w.attach(contract.Attachment{After: "0", Commits: true})
	w.move(srv, func() {}, dir)
	w.said("two")
	if got, err := read(natstest.Context(t), f, w.ids[len(w.ids)-1]); err != nil || !slices.Equal(got, w.ids) {
		t.Fatalf("%v, got %v, want %v", err, got, w.ids)
	}
}

// A feed of a session without history has no place to lose.
func TestANewSessionGoesOnInAReplacedLog(t *testing.T) {
	w := newWorld(t, hub.Config{}, nil)
	f := w.attach(contract.Attachment{})
	w.replaceLog()
	w.said("one")
	if got, err := read(natstest.Context(t), f, w.ids[len(w.ids)-1]); err != nil ||
		!slices.Equal(got, rest(w.ids, "0", false)) {
		t.Fatalf("%v, got %v", err, got)
	}
}

// A session whose log core finds damaged can be read, and is reported as locked.
func TestADamagedSessionCanBeRead(t *testing.T) {
	w := newWorld(t, hub.Config{}, nil)
	w.said("one")
	w.answers(bus.CodeConflict)
	f, err := w.Attach(natstest.Context(t), contract.Attachment{Ref: ref, After: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := decode[contract.Attached](t, next(t, f)); got.State != event.StateLocked {
		t.Errorf("its state is %s", got.State)
	}
	if got, err := read(natstest.Context(t), f, w.ids[len(w.ids)-1]); err != nil ||
		!slices.Equal(got, rest(w.ids, "0", false)) {
		t.Errorf("%v, got %v", err, got)
	}
}

// replaceLog deletes the log and creates a new one.
func (w *world) replaceLog() {
	w.t.Helper()
	if err := w.bus.JetStream().DeleteStream(natstest.Context(w.t), bus.StreamSessions); err != nil {
		w.t.Fatal(err)
	}
	natstest.EnsureStreams(w.t, w.bus)
	w.prev, w.ids = 0, nil
	w.log++
}

// stored stores a message whose live copy is lost.
func (w *world) stored(text string) {
	w.t.Helper()
	w.commit(event.UIMessage{Content: text, Format: event.Text})
}

// otherSaid stores a message of another session.
func (w *world) otherSaid() {
	w.t.Helper()
	last, err := w.bus.LastCommitSeq(natstest.Context(w.t), other)
	if err == nil {
		_, err = w.bus.AppendCommit(natstest.Context(w.t), other, []byte("no commit"), last)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// startAt starts a server in a directory.
func startAt(t *testing.T, dir string) *natsserver.Server {
	t.Helper()
	return natstest.Start(t, natstest.WithConfig(func(c *natsserver.Config) { c.StoreDir = dir }))
}

// move ends the server and starts one in a directory.
func (w *world) move(srv *natsserver.Server, between func(), dir string) *natsserver.Server {
	w.t.Helper()
	w.link.cut()
	w.near.cut()
	srv.Shutdown()
	between()
	back := w.bus.Reconnected()
	srv = startAt(w.t, dir)
	for _, l := range []*link{w.near, w.link} {
		l.use(srv)
		l.mend()
	}
	select {
	case <-back:
	case <-natstest.Context(w.t).Done():
		w.t.Fatal("who writes does not come back")
	}
	natstest.Eventually(w.t, "both are connected",
		func() bool { return w.bus.Connected() && w.client.Journal.Connected() })
	if err := w.bus.Conn().Flush(); err != nil { // core's subscription
		w.t.Fatal(err)
	}
	return srv
}

// mustBeLost reads a feed to its end.
func (w *world) mustBeLost(f contract.Feed) {
	w.t.Helper()
	for {
		n, err := f.Next(natstest.Context(w.t))
		if err == nil && n.ID == "" {
			continue
		}
		var e *contract.Error
		if !errors.As(err, &e) || e.Code != contract.CodeInvalid || e.Field != "after" || e.After != "0" {
			w.t.Fatalf("got %q, %v; want the error of a lost place", n.ID, err)
		}
		return
	}
}

// mustGoOn attaches from the beginning, and must receive everything in the log and new
// notifications.
func (w *world) mustGoOn() {
	w.t.Helper()
	f := w.attach(contract.Attachment{After: "0"})
	w.said("after")
	got, err := read(natstest.Context(w.t), f, w.ids[len(w.ids)-1])
	if err != nil || !slices.Equal(got, rest(w.ids, "0", false)) {
		w.t.Fatalf("%v, got %v, want %v", err, got, rest(w.ids, "0", false))
	}
}
