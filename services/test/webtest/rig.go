package webtest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"skandha.dev/services/internal/journal"
	"skandha.dev/services/provider"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/scripted"
	"skandha.dev/services/uibridge"
)

// Options of a rig.
type Options struct {
	Config  string           // the configuration file's content (YAML): agents, policy, ui
	Model   provider.Adapter // nil: one that obeys package scripted
	Process bool             // the bridge is a separate process
	Sandbox bool             // there is a sandbox for code
}

// Rig is a running system with a bridge.
type Rig struct {
	System *system.System
	Bus    *journal.Journal // of the test's own
	URL    string           // of the page, without the last slash
	Token  string           // the owner's

	t      testing.TB
	dir    string
	config string
	log    *slog.Logger
	canary *canary          // is every host below .example, which nobody is to ask
	links  *journal.Journal // a separate connection for requesting links
	stop   func()           // the bridge
	binary string
}

// patience is how long anything may take before it counts as wrong. It is long
// because browsers and builds share a small machine.
const patience = natstest.Patience

// Start brings a system up, and a bridge on a free port.
func Start(t testing.TB, o Options) *Rig {
	t.Helper()
	browserPath(t) // skips before anything is started
	r := &Rig{t: t, dir: t.TempDir(), Token: "webtest-owner-0123456789abcdefghijklmnop"}
	r.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r.canary = listen(t)
	if o.Model == nil {
		o.Model = scripted.New()
	}
	cfg := system.Config{
		Data: filepath.Join(r.dir, "data"), Sync: "relaxed", Models: []provider.Adapter{o.Model}, Log: r.log,
	}
	if o.Config != "" {
		r.config = r.write("config.yaml", o.Config)
		cfg.ConfigFile = r.config
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if o.Sandbox {
		cfg.Sandbox = r.sandbox(ctx)
	}
	var err error
	if r.System, err = system.Start(ctx, cfg); err != nil {
		t.Fatalf("starting the system: %v", err)
	}
	t.Cleanup(r.System.Stop)
	if r.Bus, err = r.System.Connect(ctx, "webtest"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Bus.Close)
	if r.links, err = r.System.Connect(ctx, "webtest-links"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.links.Close)
	t.Setenv(uibridge.TokenVar, r.Token)
	if o.Sandbox {
		r.awaitSandbox()
	}
	if o.Process {
		r.build()
	}
	r.run(fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))) // which is there when the bridge comes back
	t.Cleanup(func() { r.end() })
	return r
}

func (r *Rig) write(name, content string) string {
	r.t.Helper()
	p := filepath.Join(r.dir, name)
	if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// run starts the bridge, in this process or as a separate one.
func (r *Rig) run(addr string) {
	r.t.Helper()
	r.URL = "http://" + addr
	if r.binary != "" {
		r.spawn(addr)
		return
	}
	cfg, err := uibridge.Flags{File: r.config, Listen: addr}.Config()
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := r.System.Connect(context.Background(), "uibridge")
	if err != nil {
		r.t.Fatal(err)
	}
	ui, err := uibridge.New(cfg, uibridge.Options{Drain: 2 * time.Second},
		uibridge.Deps{Bus: b, Log: r.log, DataDir: r.dir})
	if err == nil {
		err = ui.Listen(context.Background())
	}
	if err != nil {
		r.t.Fatalf("starting the bridge: %v", err)
	}
	r.URL = ui.URL()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ui.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("the bridge ended: %v", err)
		}
		b.Close()
	}
	r.await()
}

// end stops the bridge.
func (r *Rig) end() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

// Kill ends the bridge at once: kill -9 if it is a process.
func (r *Rig) Kill() {
	r.t.Helper()
	r.end()
}

// Restart starts the bridge again where it was.
func (r *Rig) Restart() {
	r.t.Helper()
	r.end()
	r.run(r.URL[len("http://"):])
}

// await waits until the bridge answers on the bus, which it does when it serves.
func (r *Rig) await() {
	r.t.Helper()
	r.eventually("the bridge answers", func(ctx context.Context) bool {
		// One that was asked when it was killed does not answer: ask again.
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := uibridge.AskLink(ctx, r.links)
		return err == nil
	})
}

// Link is a fresh one-time link to the page.
func (r *Rig) Link() string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := uibridge.AskLink(ctx, r.links)
	if err != nil {
		r.t.Fatal(err)
	}
	return l.URL
}

// eventually polls until ok, or fails the test when its patience is at an end.
func (r *Rig) eventually(what string, ok func(context.Context) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok(ctx) {
		select {
		case <-ctx.Done():
			r.t.Fatalf("waited %s in vain until %s", patience, what)
		case <-tick.C:
		}
	}
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)
