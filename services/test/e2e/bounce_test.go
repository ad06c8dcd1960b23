package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	. "skandha.dev/services/test/e2e/e2etest"
	"skandha.dev/services/test/foreigntest"
	"skandha.dev/services/toolrunner"
)

// pythonTool is a plugin that creates a file when it begins, and ends when another
// file exists.
const pythonTool = `
import os, time
from skandha import serve

def tool(name, idempotent):
    return {"name": name, "description": "d", "args": {"type": "object"}, "idempotent": idempotent, "timeout_ms": 1800000}

def run(call):
    with open("began", "a") as f:
        f.write(call["tool"] + "\n")
    while not os.path.exists("end"):
        time.sleep(0.01)
    with open("ended", "a") as f:
        f.write(call["tool"] + "\n")
    return {"success": True, "data": "done"}

serve({"name": "py", "version": "1.0.0", "tools": [tool("py:once", False), tool("py:again", True)]},
      {"tool.py.py--once": run, "tool.py.py--again": run})
`

// gated is a plugin's tool in Go that does the same.
type gated struct {
	mu           sync.Mutex
	began, ended int
	end          chan struct{}
}

func (g *gated) run(context.Context, struct{}) (string, error) {
	g.count(&g.began)
	<-g.end
	defer g.count(&g.ended)
	return "done", nil
}

func (g *gated) count(n *int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*n++
}

func (g *gated) is(n *int, want int) func() bool {
	return func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return *n == want
	}
}

// The bus is killed while plugins work, and their answers are lost with it. Each call
// runs once and gets its result soon after the bus is back, although it has half an
// hour.
func TestAnswersOfPluginsOutliveTheBus(t *testing.T) {
	t.Parallel()
	python := foreigntest.Need(t, "python3")
	s := Start(t, Options{Runners: -1})
	quiet := slog.New(slog.DiscardHandler)
	g, token := &gated{end: make(chan struct{})}, s.Invite("go")
	inBackground(t, func(ctx context.Context) error {
		return plugin.Serve(ctx, plugin.Manifest{Name: "go", Version: "1.0.0"}, plugin.Handlers{
			plugin.Tool("go:once", "d", g.run, plugin.Timeout(30*time.Minute)),
			plugin.Tool("go:again", "d", g.run, plugin.Timeout(30*time.Minute), plugin.Idempotent()),
		}, plugin.WithConfig(bus.Config{URL: s.URL, Token: token}), plugin.WithLogger(quiet), plugin.DrainTimeout(time.Second))
	})
	dir := foreigntest.Copy(t, "../../listener/examples/python")
	if err := os.WriteFile(filepath.Join(dir, "bounce.py"), []byte(pythonTool), 0o600); err != nil {
		t.Fatal(err)
	}
	foreigntest.Spawn(t, dir, []string{"SKANDHA_NATS=nats://" + s.Invite("py") + "@" + strings.TrimPrefix(s.URL, "nats://")}, python, "bounce.py")
	b := s.As("toolrunner", "toolrunner")
	inBackground(t, func(ctx context.Context) error {
		return toolrunner.Run(ctx, toolrunner.Config{WorkspaceDir: t.TempDir(), DrainTimeout: 10 * time.Millisecond},
			toolrunner.Deps{Bus: b, Logger: quiet})
	})
	tools := []string{"go:once", "go:again", "py:once", "py:again"}
	Eventually(t, "the plugins' tools are offered", func() bool {
		known, err := s.Tools()
		live := 0
		for _, k := range known {
			if k.Live && slices.Contains(tools, k.Name) {
				live++
			}
		}
		return err == nil && live == len(tools)
	})

	inputs := make([]uint64, len(tools))
	for i, name := range tools {
		inputs[i] = s.Do(Ref(fmt.Sprintf("s%d", i)), Script{Rounds: []Round{{{ID: "1", Tool: name}}}})
	}
	lines := func(file string, want int) func() bool {
		return func() bool {
			b, _ := os.ReadFile(filepath.Join(dir, file)) // it may not exist yet
			n := 0
			for _, c := range b {
				if c == '\n' {
					n++
				}
			}
			return n == want
		}
	}
	Eventually(t, "all calls run", func() bool { return g.is(&g.began, 2)() && lines("began", 2)() })
	s.NATS.Kill()
	close(g.end)
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "all calls have ended", func() bool { return g.is(&g.ended, 2)() && lines("ended", 2)() })
	back := time.Now()
	s.NATS.Start()
	for i, name := range tools {
		if end := s.Ended(inputs[i]); end.Failed != "" {
			t.Errorf("%s: the turn ended as %+v", name, end)
		}
		if k := awaitCall(t, s, inputs[i], "has a result", done); k.Results[0] != "success" {
			t.Errorf("%s ended as %v", name, k.Results)
		}
	}
	t.Logf("all turns have ended %v after the bus was started", time.Since(back).Round(time.Millisecond))
	if !g.is(&g.began, 2)() || !lines("began", 2)() {
		t.Error("something ran twice")
	}
}

// inBackground runs f until the end of the test.
func inBackground(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = f(ctx) // it ends with the test; the error does not matter
	}()
	t.Cleanup(func() { cancel(); <-ended })
}
