package plugintest

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// rig is a server, a registry and someone who asks plugins.
type rig struct {
	*testing.T
	desk *desk
	ask  *bus.Caller
	bus  *journal.Journal // of the asker
	dial func() *journal.Journal
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s := natstest.Start(t)
	r := &rig{T: t, dial: func() *journal.Journal { return natstest.Dial(t, bus.Config{InProcess: s, Token: s.Token()}) }}
	natstest.EnsureStreams(t, r.dial())
	r.desk, r.bus = newDesk(t, r.dial()), r.dial()
	r.ask = caller(t, r.bus)
	return r
}

func caller(t *testing.T, b *journal.Journal) *bus.Caller {
	t.Helper()
	c, err := b.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// served is a plugin that is served.
type served struct {
	t      *testing.T
	name   subject.Plugin
	log    *lines
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // when ended is closed

	mu     sync.Mutex
	states []string // state, or state: reason
}

func manifest(name subject.Plugin) plugin.Manifest {
	return plugin.Manifest{Name: name, Version: "1.0.0"}
}

// start serves a plugin on a separate connection until the test ends.
func (r *rig) start(m plugin.Manifest, h plugin.Handlers, opts ...plugin.Option) *served {
	r.Helper()
	return r.startOn(r.dial(), m, h, opts...)
}

func (r *rig) startOn(b *journal.Journal, m plugin.Manifest, h plugin.Handlers, opts ...plugin.Option) *served {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &served{t: r.T, name: m.Name, log: &lines{}, cancel: cancel, ended: make(chan struct{})}
	all := append([]plugin.Option{
		plugin.WithBus(b.Bus), plugin.WithLogger(slog.New(slog.NewTextHandler(s.log, nil))), plugin.OnState(s.onState),
	}, opts...)
	go func() {
		defer close(s.ended)
		s.err = plugin.Serve(ctx, m, h, all...)
	}()
	r.Cleanup(func() {
		cancel()
		<-s.ended
		if r.Failed() {
			r.Logf("%s logged:\n%s", m.Name, s.log)
		}
	})
	return s
}

// active serves a plugin and waits until it is active.
func (r *rig) active(m plugin.Manifest, h plugin.Handlers, opts ...plugin.Option) *served {
	r.Helper()
	s := r.start(m, h, opts...)
	s.await("active")
	return s
}

func (s *served) onState(state plugin.LeaseState, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := string(state)
	if reason != "" {
		text += ": " + reason
	}
	s.states = append(s.states, text)
}

func (s *served) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.states, " | ")
}

// await waits until the plugin's state is that.
func (s *served) await(state string) {
	s.t.Helper()
	natstest.Eventually(s.t, string(s.name)+" is "+state, func() bool {
		return s.seen() == state || strings.HasSuffix(s.seen(), " | "+state)
	})
}

// stop ends the plugin and gives Serve's error.
func (s *served) stop() error {
	s.t.Helper()
	s.cancel()
	return s.end()
}

func (s *served) end() error {
	s.t.Helper()
	select {
	case <-s.ended:
		return s.err
	case <-time.After(natstest.Patience):
		s.t.Fatalf("Serve of %s does not return; its log:\n%s", s.name, s.log)
		return nil
	}
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// count is how many lines hold the text.
func (l *lines) count(text string) (n int) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// hook asks the plugin policy about a tool call.
func (r *rig) hook(ctx context.Context, invocation string) (hook.Reply, error) {
	const name = "policy"
	data, err := json.Marshal(hook.ActData{Call: "t1-p1-c0", Tool: "x", Args: json.RawMessage(`{}`)})
	if err != nil {
		return hook.Reply{}, err
	}
	body, err := json.Marshal(hook.Envelope{
		InvocationID: invocation, Point: hook.BeforeAct, Plugin: name, Agent: "demo", Session: "s1", Turn: "t1", Data: data,
		Deadline: time.Now().Add(time.Minute),
	})
	if err != nil {
		return hook.Reply{}, err
	}
	answer, err := r.ask.Request(ctx, subject.Hook("before_act", name), name, body)
	if err != nil {
		return hook.Reply{}, err
	}
	var reply hook.Reply
	return reply, json.Unmarshal(answer, &reply)
}

// call runs a tool called <plugin>:it.
func (r *rig) call(ctx context.Context, name subject.Plugin, call, args string) (tool.Result, error) {
	it := string(name) + ":it"
	body, err := json.Marshal(tool.Call{
		Call: call, Attempt: "a1", Agent: "demo", Session: "s1", Turn: "t1", Tool: it, Args: json.RawMessage(args),
		Deadline: time.Now().Add(time.Minute),
	})
	if err != nil {
		return tool.Result{}, err
	}
	answer, err := r.ask.Request(ctx, subject.Tool(name, it), string(name), body)
	if err != nil {
		return tool.Result{}, err
	}
	var result tool.Result
	return result, json.Unmarshal(answer, &result)
}

// deny is a hook that denies for a reason.
func deny(reason string) plugin.Handler {
	return plugin.BeforeAct(func(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
		return plugin.Deny(reason), nil
	})
}
