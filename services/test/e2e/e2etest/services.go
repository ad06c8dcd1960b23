package e2etest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"skandha.dev/pkg/plugin"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/toolrunner"
	"skandha.dev/services/uibridge"
)

// The kinds of process that only a whole deployment has.
const (
	Redis      Kind = "redis"
	Toolrunner Kind = "toolrunner" // the real one; it asks plugins
	Plugin     Kind = "plugin"     // offers the tools of [Specs]
	Bridge     Kind = "bridge"
	Listener   Kind = "listener"
)

// redisCommand runs a Redis that keeps its data when it is killed.
func (r Role) redisCommand() (*exec.Cmd, error) {
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return nil, err
	}
	//nolint:noctx // lives until Kill
	return exec.Command("redis-server", "--port", r.Addr, "--bind", "127.0.0.1", "--dir", r.Dir,
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", ""), nil
}

// toolrunner does the same as the main of the tool runner.
func (r Role) toolrunner(ctx context.Context, b *journal.Journal, log *slog.Logger) error {
	cfg := toolrunner.Config{WorkspaceDir: r.Dir, Slots: r.Slots, DrainTimeout: r.Drain}
	return toolrunner.Run(ctx, cfg, toolrunner.Deps{Bus: b, Logger: log})
}

// bridge does the same as the main of the UI bridge.
func (r Role) bridge(ctx context.Context, b *journal.Journal, log *slog.Logger) error {
	cfg, err := uibridge.Flags{File: r.Config, Listen: r.Addr}.Config()
	if err != nil {
		return err
	}
	s, err := uibridge.New(cfg, uibridge.Options{Drain: r.Drain}, uibridge.Deps{Bus: b, Log: log})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// listener does the same as the main of the listeners.
func (r Role) listener(ctx context.Context, b *journal.Journal, log *slog.Logger) error {
	cfg, err := listener.Flags{File: r.Config}.Config()
	if err != nil {
		return err
	}
	l, err := listener.New(cfg, listener.Options{Drain: r.Drain}, listener.Deps{Bus: b, Logger: log})
	if err != nil {
		return err
	}
	return l.Run(ctx)
}

const pluginName = "e2e"

// plugin offers the tools of [Specs], except the one that needs a confirmation. Its
// effects name no runner: it does not know the caller.
func (r Role) plugin(ctx context.Context, b *journal.Journal, log *slog.Logger) error {
	act := func(ctx context.Context, a Args) (map[string]any, error) {
		call, _ := plugin.CallOf(ctx)
		e := Effect{Call: call.Call, Attempt: call.Attempt, Tool: call.Tool, Session: string(call.Session), At: time.Now()}
		if err := e.append(r.Effects); err != nil {
			panic(err) // a result without its effect would invalidate the test
		}
		if pass(ctx, a, r.Effects) {
			return nil, ctx.Err()
		}
		return map[string]any{"n": a.N}, nil
	}
	h := plugin.Handlers{
		plugin.Tool(ToolOnce, "has an effect", act, plugin.Args([]byte(argsSchema))),
		plugin.Tool(ToolAgain, "has an effect that may be repeated", act,
			plugin.Args([]byte(argsSchema)), plugin.Idempotent()),
	}
	return plugin.Serve(ctx, plugin.Manifest{Name: pluginName, Version: "1.0.0"}, h,
		plugin.WithBus(b.Bus), plugin.WithLogger(log),
		plugin.Concurrency(256), plugin.DrainTimeout(r.Drain),
		plugin.OnState(func(state plugin.LeaseState, reason string) { log.Info("lease", "state", state, "reason", reason) }))
}

// supervised restarts a service until ctx ends, like a process supervisor: the service
// may fail because the bus or the view is away while it starts.
func supervised(ctx context.Context, log *slog.Logger, run func() error) error {
	for {
		err := run()
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was stopped
		}
		if err == nil {
			return nil
		}
		log.Warn("the service did not start; trying again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// The secrets of a whole system.
const (
	Token  = "e2e-token-of-the-owner-of-the-page"
	Secret = "whsec_ZTJlLXNlY3JldC1vZi10aGUtbGlzdGVuZXI="
)

// others prepares the other processes of a whole system, and returns the view's URL.
func (s *System) others(proc func(int, Role) []*Proc) (store string) {
	s.T.Helper()
	port := func() string { return strconv.Itoa(natstest.FreePort(s.T)) }
	redis := port()
	s.Page, s.Hooks = "127.0.0.1:"+port(), "127.0.0.1:"+port()
	file := func(name, text string) string {
		name = filepath.Join(s.Dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			s.T.Fatal(err)
		}
		return name
	}
	ui := file("ui.yaml",
		"ui:\n  owner: "+Token+"\n  limits: {requests: 10000, burst: 10000, inputs: 600000, "+
			"connections: 4000, all_connections: 4000}\n")
	hooks := file("listener.yaml", fmt.Sprintf(
		"listeners:\n  http: {listen: %q}\n  webhook:\n"+
			"    hook: {session_field: /session, secrets: [%q]}\n", s.Hooks, Secret))
	for _, r := range []Role{
		{Kind: Redis, Dir: filepath.Join(s.Dir, "redis"), Addr: redis},
		{Kind: Plugin, Effects: s.Effects},
		{Kind: Bridge, Config: ui, Addr: s.Page},
		{Kind: Listener, Config: hooks},
	} {
		s.Others = append(s.Others, proc(1, r)...)
	}
	return "redis://127.0.0.1:" + redis + "/0"
}
