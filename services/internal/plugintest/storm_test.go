package plugintest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/natstest"
	"skandha.dev/services/skandha/client"
	"skandha.dev/services/skandha/system"
)

// The storm's size.
const (
	stormPlugins  = 200
	stormSessions = 6
	// What a turn may take: the hooks' budget twice, the tool's time, and the slack of
	// a machine that does other things too. The wall time of a turn is ten minutes.
	stormPatience = time.Minute
)

// stormTime is how long it blows.
func stormTime() time.Duration {
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		return time.Minute
	}
	return 5 * time.Second
}

// Plugins come and go, some without a word, while turns run. Each brings a tool
// and the hook that guards it: no call is given out unguarded, every turn ends,
// and in the end nothing is left of anybody.
func TestStorm(t *testing.T) {
	s := startStorm(t)
	before := runtime.NumGoroutine()
	ctx, stop := context.WithTimeout(t.Context(), stormTime())
	defer stop()
	var g sync.WaitGroup
	for i := range stormPlugins {
		g.Go(func() { s.comeAndGo(ctx, i) })
	}
	for i := range stormSessions {
		g.Go(func() { s.talk(ctx, subject.Session(fmt.Sprintf("s%d", i))) })
	}
	g.Wait()
	t.Logf("%d plugins came, %d turns, %d calls of plugins' tools were given out", s.came.Load(), s.turns.Load(), s.calls.Load())
	if s.came.Load() < stormPlugins || s.turns.Load() == 0 || s.calls.Load() == 0 {
		t.Error("that was no storm")
	}

	natstest.Eventually(t, "nothing is left in the registry", func() bool {
		for _, p := range s.sys.Core().Plugins().Plugins() {
			if p.State != plugin.Gone {
				return false
			}
		}
		return true
	})
	natstest.Eventually(t, "nothing is left in the catalogue", func() bool {
		for _, tool := range s.sys.Core().Directory().Public() {
			if tool.Plugin != "" {
				return false
			}
		}
		return true
	})
	natstest.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before+20 })
}

type storm struct {
	*testing.T
	sys                *system.System
	came, turns, calls atomic.Int64
}

func startStorm(t *testing.T) *storm {
	t.Helper()
	var rules strings.Builder
	rules.WriteString("rules:\n")
	for i := range stormPlugins {
		fmt.Fprintf(&rules, "  - {name: use%d, match: ['^use %d$'], calls: [{tool: 'p%d:do', args: {}}]}\n", i, i, i)
	}
	rules.WriteString("results:\n  default: {success: done, failure: failed}\nmissing: missing\nfallback: what\n")
	dir := t.TempDir()
	file, config := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "skandha.yaml")
	for name, body := range map[string]string{file: rules.String(), config: "plugins: {lease: 1s}\n"} {
		if err := os.WriteFile(name, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sys, err := system.Start(natstest.Context(t), system.Config{
		Data: filepath.Join(dir, "data"), Sync: "relaxed", Provider: "offline", OfflineRules: file, ConfigFile: config, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sys.Stop)
	return &storm{T: t, sys: sys}
}

// comeAndGo registers the plugin, for a while, again and again. Every third time
// its connection just ends.
func (s *storm) comeAndGo(ctx context.Context, i int) {
	name := fmt.Sprintf("p%d", i)
	for ctx.Err() == nil {
		b, err := s.sys.Connect(ctx, name)
		if err != nil {
			if ctx.Err() == nil {
				s.Errorf("%s: %v", name, err)
			}
			return
		}
		life, end := context.WithTimeout(ctx, time.Duration(rand.IntN(3000))*time.Millisecond)
		if rand.IntN(3) == 0 {
			context.AfterFunc(life, b.Close)
		}
		err = plugin.Serve(life, plugin.Manifest{Name: subject.Plugin(name), Version: "1.0.0"}, plugin.Handlers{
			plugin.BeforeAct(func(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
				return plugin.Continue(), nil
			}, plugin.WhenFailing(hook.Allow), plugin.Deadline(200*time.Millisecond)),
			plugin.Tool(name+":do", "Does nothing.", func(context.Context, struct{}) (string, error) { return "done", nil },
				plugin.Timeout(5*time.Second)),
		}, plugin.WithBus(b), plugin.WithLogger(slog.New(slog.DiscardHandler)), plugin.DrainTimeout(time.Second))
		end()
		b.Close()
		s.came.Add(1)
		if err != nil && !strings.Contains(err.Error(), "closed") {
			s.Logf("%s: %v", name, err)
		}
	}
}

// talk uses tools of plugins that may be there, and looks at what became of it.
func (s *storm) talk(ctx context.Context, session subject.Session) {
	ref := subject.Ref{Agent: core.DefaultAgent, Session: session}
	b, err := s.sys.Connect(s.Context(), "person-"+string(session))
	if err != nil {
		s.Error(err)
		return
	}
	defer b.Close()
	c, err := client.New(b, "person", slog.New(slog.DiscardHandler))
	if err != nil {
		s.Error(err)
		return
	}
	events, err := c.FollowFrom(s.Context(), ref, follow.Position{Index: -1})
	if err != nil {
		s.Error(err)
		return
	}
	for ctx.Err() == nil {
		if _, err := c.Say(s.Context(), ref, event.Input{Text: fmt.Sprintf("use %d", rand.IntN(stormPlugins))}); err != nil {
			s.Errorf("%s: %v", session, err)
			return
		}
		if !s.end(events) {
			s.Errorf("%s: wedged", session)
			return
		}
		s.turns.Add(1)
	}
	for m, err := range b.Commits(s.Context(), ref, 0) {
		if err != nil {
			s.Error(err)
			return
		}
		commit, err := event.DecodeCommit(ref, m.Data)
		if err != nil {
			s.Error(err)
			return
		}
		s.guarded(commit)
	}
}

func (s *storm) end(events <-chan follow.Item) bool {
	patience := time.After(stormPatience)
	for {
		select {
		case i := <-events:
			if i.Event.Type.Terminal() {
				return true
			}
		case <-patience:
			return false
		}
	}
}

// guarded: whoever's tool is called was asked before, in the same decision.
func (s *storm) guarded(c event.Commit) {
	for _, e := range c.Events {
		var a event.ActRequested
		if e.Type != event.TypeActRequested || e.DataAs(&a) != nil || !strings.HasSuffix(a.Tool, ":do") {
			continue
		}
		s.calls.Add(1)
		owner, asked := subject.Plugin(strings.TrimSuffix(a.Tool, ":do")), false
		for _, v := range c.Header.Hooks {
			asked = asked || v.Plugin == owner && v.Point == hook.BeforeAct && v.Step == a.Call
		}
		if !asked && a.Attempts == 1 {
			s.Errorf("%s: %s was given out, but %s was not asked: %+v", c.Ref, a.Call, owner, c.Header.Hooks)
		}
	}
}
