package backend_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/provider"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/scripted"
	"skandha.dev/services/uibridge/backend"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hub"
	"skandha.dev/services/uibridge/markdown"
)

// policy requires approval for writes.
const policy = "policy: [{tool: 'file_system:write_file', effect: confirm, reason: it is a test}]\n"

// rig is a complete system in this process, and a backend on it. Its model follows the
// offline provider's rules for tests.
type rig struct {
	*backend.Backend
	t   *testing.T
	sys *system.System
	bus *journal.Journal
	ann contract.Principal // who may do everything
}

func startSystem(t *testing.T) *system.System {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sys, err := system.Start(natstest.Context(t), system.Config{
		Data: filepath.Join(dir, "data"), Sync: "relaxed", Log: natstest.Logger(t), Slots: 512,
		ConfigFile: write("config.yaml", []byte(policy)),
		Models:     []provider.Adapter{scripted.New()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sys.Stop)
	return sys
}

func start(t *testing.T, cfg hub.Config) *rig {
	t.Helper()
	return newRig(t, startSystem(t), cfg)
}

// newRig makes one more backend on a system.
func newRig(t *testing.T, sys *system.System, cfg hub.Config) *rig {
	t.Helper()
	b, err := sys.Connect(natstest.Context(t), "uibridge")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	k, err := backend.New(backend.Config{Hub: cfg}, backend.Deps{
		Bus: b, Log: natstest.Logger(t), Markdown: hub.Rendering(markdown.New()),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return &rig{k, t, sys, b, contract.Principal{Name: "ann", Writer: "ui-ann", Rights: contract.AllRights()}}
}

func session(name string) subject.Ref {
	return subject.Ref{Agent: "main", Session: subject.Session(name)}
}

func (r *rig) say(ref subject.Ref, text string) contract.Receipt {
	r.t.Helper()
	got, err := r.Submit(natstest.Context(r.t), r.ann, contract.Submission{Ref: ref, Text: text, Source: "test"})
	if err != nil {
		r.t.Fatalf("saying %q: %v", text, err)
	}
	return got
}

// feed reads a feed in the background, until it ends.
type feed struct {
	contract.Feed
	t testing.TB

	mu    sync.Mutex
	got   []contract.Notification
	err   error
	asked map[string]bool // what [feed.answer] has answered
}

func (r *rig) attach(a contract.Attachment) *feed {
	r.t.Helper()
	f := &feed{Feed: r.open(a), t: r.t, asked: map[string]bool{}}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			n, err := f.Next(context.Background())
			f.mu.Lock()
			if err != nil {
				f.err = err
				f.mu.Unlock()
				return
			}
			f.got = append(f.got, n)
			f.mu.Unlock()
		}
	})
	r.t.Cleanup(func() { f.Close(); done.Wait() })
	return f
}

// open begins a feed that is not read.
func (r *rig) open(a contract.Attachment) contract.Feed {
	r.t.Helper()
	f, err := r.Attach(context.Background(), r.ann, a)
	if err != nil {
		r.t.Fatalf("attaching to %s after %q: %v", a.Ref, a.After, err)
	}
	r.t.Cleanup(f.Close)
	return f
}

func (f *feed) all() []contract.Notification {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

func (f *feed) ended() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// placed returns the notifications that have an id, except the first, onAttached.
func (f *feed) placed() []contract.Notification { return placed(f.all()) }

func placed(all []contract.Notification) (out []contract.Notification) {
	for _, n := range all {
		if n.ID != "" {
			out = append(out, n)
		}
	}
	return out
}

// count returns how often a method has arrived. An onReadyForInput without a place is about
// the beginning, not the end of a turn.
func (f *feed) count(method string) (n int) {
	for _, g := range f.all() {
		if g.Method == method && (method != contract.OnReadyForInput || g.ID != "") {
			n++
		}
	}
	return n
}

// await waits until a method has arrived so often.
func (f *feed) await(method string, times int) {
	f.t.Helper()
	natstest.Eventually(f.t, method+" has arrived", func() bool {
		if err := f.ended(); err != nil {
			f.t.Fatalf("waiting for %s: the feed has ended: %v", method, err)
		}
		return f.count(method) >= times
	})
}

// last decodes the last notification of a method.
func last[P any](f *feed, method string) (p P) {
	f.t.Helper()
	all := f.all()
	for _, n := range slices.Backward(all) {
		if n.Method == method {
			if err := json.Unmarshal(n.Params, &p); err != nil {
				f.t.Fatal(err)
			}
			return p
		}
	}
	f.t.Fatalf("%s did not arrive", method)
	return p
}

// sameNotifications compares the notifications of two feeds, and reports where they differ.
func sameNotifications(t testing.TB, about string, got, want []contract.Notification) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		g, w := got[i], want[i]
		if g.ID != w.ID || g.Method != w.Method || string(g.Params) != string(w.Params) {
			t.Fatalf("%s: at %d got %s %s %s\nwant %s %s %s", about, i, g.ID, g.Method, g.Params, w.ID, w.Method, w.Params)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: got %d notifications, want %d", about, len(got), len(want))
	}
}

// refused returns the code and the field of an error for callers.
func refused(err error) (contract.Code, string) {
	var e *contract.Error
	if !errors.As(err, &e) {
		return "", ""
	}
	return e.Code, e.Field
}
