package plugintest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
)

// The storm's size.
const (
	stormPlugins  = 60 // two processors can hardly connect more at once, under the race detector
	stormSessions = 6
	// What a turn may take: the hooks' budget twice, the tool's time, and the slack of
	// a machine that does other things too. The wall time of a turn is ten minutes.
	stormPatience = time.Minute
)

// stormTime is how long it blows at least.
func stormTime() time.Duration {
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		return 30 * time.Second
	}
	return 5 * time.Second
}

// Plugins come and go, some without a word, while turns run. Each brings a tool
// and the hook that guards it: no call is given out unguarded, every turn ends,
// and in the end nothing is left of anybody.
func TestStorm(t *testing.T) {
	s := startStorm(t)
	before := runtime.NumGoroutine()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var g sync.WaitGroup
	for i := range stormPlugins {
		g.Go(func() { s.comeAndGo(ctx, i) })
	}
	for i := range stormSessions {
		g.Go(func() { s.talk(ctx, subject.Session(fmt.Sprintf("s%d", i))) })
	}
	<-time.After(stormTime())
	eventually(t, "many plugins came, and a call of a plugin's tool was given out", func() bool {
		return s.came.Load() >= stormPlugins && s.given.Load() > 0
	})
	stop()
	g.Wait()
	t.Logf("%d plugins came, %d turns, %d calls of plugins' tools were given out", s.came.Load(), s.turns.Load(),
		s.calls.Load())
	if s.came.Load() < stormPlugins || s.turns.Load() == 0 || s.calls.Load() == 0 {
		t.Error("that was no storm")
	}

	eventually(t, "nothing is left in the registry", func() bool {
		for _, p := range s.sys.Core().Plugins().Plugins() {
			if p.State != plugin.Gone {
				return false
			}
		}
		return true
	})
	eventually(t, "nothing is left in the catalogue", func() bool {
		for _, tool := range s.sys.Core().Directory().Public() {
			if tool.Plugin != "" {
				return false
			}
		}
		return true
	})
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before+20 })
}

// eventually has the patience of the storm.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(stormPatience); !ok(); {
		if time.Now().After(end) {
			t.Errorf("waited %v in vain: %s", stormPatience, what)
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}

type storm struct {
	*testing.T
	sys                       *system.System
	came, turns, calls, given atomic.Int64
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
		Data: filepath.Join(dir, "data"), Sync: "relaxed", Provider: "offline", OfflineRules: file, ConfigFile: config,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sys.Stop)
	for i := range stormPlugins {
		if _, err := sys.Invite(natstest.Context(t), rights.Local(subject.Identity(fmt.Sprintf("p%d", i)))); err != nil {
			t.Fatal(err)
		}
	}
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
		life, end := context.WithTimeout(ctx, upTo(8*time.Second))
		if rand.IntN(3) == 0 {
			context.AfterFunc(life, b.Close)
		}
		err = plugin.Serve(life, plugin.Manifest{Name: subject.Plugin(name), Version: "1.0.0"}, plugin.Handlers{
			plugin.BeforeAct(func(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
				return plugin.Continue(), nil
			}, plugin.WhenFailing(hook.Allow), plugin.Deadline(200*time.Millisecond)),
			plugin.Tool(name+":do", "Does nothing.", func(context.Context, struct{}) (string, error) { return "done", nil },
				plugin.Timeout(5*time.Second)),
		}, plugin.WithBus(b.Bus), plugin.WithLogger(slog.New(slog.DiscardHandler)), plugin.DrainTimeout(time.Second))
		end()
		b.Close()
		s.came.Add(1)
		select { // it is away for a while
		case <-ctx.Done():
		case <-time.After(upTo(4 * time.Second)):
		}
		if err != nil && !strings.Contains(err.Error(), "closed") {
			s.Logf("%s: %v", name, err)
		}
	}
}

func upTo(d time.Duration) time.Duration { return rand.N(d) }

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
		if !s.end(c, ref, events) {
			s.explain(b, ref)
			return
		}
		s.turns.Add(1)
	}
	asked := map[question]bool{}
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
		s.guarded(commit, asked)
	}
}

// question is that a plugin was asked before the call was acted on.
type question struct {
	plugin subject.Plugin
	call   string
}

// explain reports the state of a turn that does not end.
func (s *storm) explain(b *journal.Journal, ref subject.Ref) {
	s.Errorf("%s: wedged at %s", ref.Session, time.Now().UTC().Format(time.RFC3339Nano))
	var last []string
	for m, err := range b.Commits(s.Context(), ref, 0) {
		c, bad := event.DecodeCommit(ref, m.Data)
		if err = errors.Join(err, bad); err != nil {
			s.Error(err)
			return
		}
		var asked int64
		for _, v := range c.Header.Hooks {
			asked += v.LatencyUS
		}
		line := fmt.Sprintf("%s %s, %d hooks in %d ms:", c.Header.Now.Format(time.RFC3339Nano), c.Header.Trigger.Kind,
			len(c.Header.Hooks), asked/1000)
		for _, e := range c.Events {
			line += fmt.Sprintf(" %s %.300s", e.Type, e.Data)
		}
		if last = append(last, line); len(last) > 4 {
			last = last[1:]
		}
	}
	s.Logf("its last commits:\n%s", strings.Join(last, "\n"))
}

// end waits for the end of the turn. When so many calls have failed that a person
// is asked, the person says: go on.
func (s *storm) end(c *client.Client, ref subject.Ref, events <-chan follow.Item) bool {
	patience := time.After(stormPatience)
	for {
		select {
		case i := <-events:
			if i.Event.Type == event.TypeActRequested {
				s.given.Add(1)
			}
			if i.Event.Type.Terminal() {
				return true
			}
			var q event.ToolCallRequest
			if i.Event.Type != event.TypeToolCallRequest {
				continue
			}
			if err := i.Event.DataAs(&q); err != nil {
				s.Error(err)
			} else if err := c.Confirm(s.Context(), ref, q, true, ""); err != nil {
				s.Error(err)
			}
		case <-patience:
			return false
		}
	}
}

// guarded: the plugin whose tool is called was asked before, in the same decision. Where
// a person had to approve the call, that was in the one that asked the person.
func (s *storm) guarded(c event.Commit, approved map[question]bool) {
	now := map[question]bool{}
	for _, v := range c.Header.Hooks {
		if v.Point == hook.BeforeAct {
			now[question{v.Plugin, v.Step}] = true
		}
	}
	for _, e := range c.Events {
		var a event.ActRequested
		if e.Type != event.TypeActRequested || e.DataAs(&a) != nil || !strings.HasSuffix(a.Tool, ":do") {
			continue
		}
		s.calls.Add(1)
		asked := question{subject.Plugin(strings.TrimSuffix(a.Tool, ":do")), a.Call}
		if !now[asked] && a.Attempts == 1 && (a.ApprovedBy == "" || !approved[asked]) {
			s.Errorf("%s: %s was given out, but %s was not asked: %+v, approved by %q", c.Ref, a.Call, asked.plugin,
				c.Header.Hooks, a.ApprovedBy)
		}
	}
	maps.Copy(approved, now)
}
