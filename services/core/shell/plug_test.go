package shell_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// plugged is a plugin that uses plain NATS, like one in any language.
type plugged struct {
	t      testing.TB
	log    *slog.Logger
	m      plugin.Manifest
	bus    *journal.Journal
	caller *bus.Caller
	stop   func()

	mu     sync.Mutex
	asked  []hook.Envelope
	traces map[string]bool // of the questions about turns
	answer func(hook.Envelope) string
}

// plug registers a plugin and waits until it is active. It answers every hook with the
// result of answer; nil: continue.
func (s *system) plug(m plugin.Manifest, answer func(hook.Envelope) string) *plugged {
	s.t.Helper()
	p := s.connectPlugin(m, answer)
	s.t.Cleanup(func() {
		p.leave()
		// Before its connection ends: core would wait long for a plugin that cannot answer.
		natstest.Eventually(s.t, "core knows that "+string(m.Name)+" has left",
			func() bool { return !s.core.Plugins().Active(m.Name) })
	})
	if l := p.register(); l.State != plugin.Active {
		s.t.Fatalf("%s: %s %s", m.Name, l.State, l.Reason)
	}
	natstest.Eventually(s.t, "core knows "+string(m.Name), func() bool { return s.core.Plugins().Active(m.Name) })
	return p
}

func (s *system) connectPlugin(m plugin.Manifest, answer func(hook.Envelope) string) *plugged {
	s.t.Helper()
	p := &plugged{
		t: s.t, log: natstest.Logger(s.t), m: m, bus: natstest.Connect(s.t, s.srv), answer: answer, traces: map[string]bool{},
	}
	p.m.Instance, p.m.Hooks = p.bus.Instance(), slices.Clone(m.Hooks)
	for i := range p.m.Hooks {
		if h := &p.m.Hooks[i]; h.DeadlineMS == 0 { // on a busy machine a plugin that answers must not be late
			h.DeadlineMS = plugin.MaxDeadlineMS
		}
	}
	if p.m.Version == "" {
		p.m.Version = "1.0.0"
	}
	var err error
	if p.caller, err = p.bus.NewCaller(); err != nil {
		s.t.Fatal(err)
	}
	if _, err := p.bus.Conn().QueueSubscribe("hook.*."+string(m.Name), string(m.Name), p.hook); err != nil {
		s.t.Fatal(err)
	}
	if err := p.bus.Conn().Flush(); err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (p *plugged) hook(m *nats.Msg) {
	var e hook.Envelope
	if err := json.Unmarshal(m.Data, &e); err != nil {
		p.t.Errorf("an envelope: %v", err)
	}
	p.mu.Lock()
	p.asked = append(p.asked, e)
	if e.Turn != "" {
		p.traces[telemetry.TraceID(telemetry.Extract(context.Background(), m.Header))] = true
	}
	answer := p.answer
	p.mu.Unlock()
	var body string
	if answer != nil {
		body = answer(e)
	}
	if err := m.Respond([]byte(body)); err != nil {
		p.log.Info("answering", "plugin", p.m.Name, "error", err) // perhaps the test is over
	}
}

// says changes the plugin's answers.
func (p *plugged) says(answer func(hook.Envelope) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

// take returns what the plugin was asked in the session since the last take; "" for
// questions outside of sessions.
func (p *plugged) take(session subject.Session) []hook.Envelope {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out, rest []hook.Envelope
	for _, e := range p.asked {
		if e.Session == session {
			out = append(out, e)
		} else {
			rest = append(rest, e)
		}
	}
	p.asked = rest
	return out
}

func (p *plugged) ask(v subject.PluginVerb, body any) (plugin.Lease, error) {
	b, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), natstest.Patience)
	defer cancel()
	var l plugin.Lease
	if b, err = p.caller.Request(ctx, subject.Registry(v, p.m.Name), "core", b); err == nil {
		err = json.Unmarshal(b, &l)
	}
	return l, err
}

// register registers the plugin and keeps its lease until leave.
func (p *plugged) register() plugin.Lease {
	p.t.Helper()
	l, err := p.ask(subject.Register, p.m)
	if err != nil {
		p.t.Fatalf("registering %s: %v", p.m.Name, err)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	p.stop = sync.OnceFunc(func() { close(done); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Duration(l.TTLMS) * time.Millisecond / 3)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if _, err := p.ask(subject.Heartbeat, plugin.Heartbeat{Instance: p.m.Instance, Hash: l.Hash}); err != nil {
					p.log.Info("heartbeat", "plugin", p.m.Name, "error", err)
				}
			}
		}
	}()
	return l
}

// leave gives up the lease, like a plugin that ends.
func (p *plugged) leave() {
	if p.stop == nil {
		return
	}
	p.stop()
	p.stop = nil
	for range 2 { // the first request drains the replica, the second ends its lease
		l, err := p.ask(subject.Unregister, plugin.Unregister{Instance: p.m.Instance, Force: true})
		if err != nil || l.State == plugin.Gone {
			break
		}
	}
	_ = p.caller.Close()
}

// vanish ends the plugin without a word, like kill -9.
func (p *plugged) vanish() {
	p.stop()
	p.stop = nil
	p.bus.Conn().Close()
}

// points lists the points of the questions, with the end of the step.
func points(asked []hook.Envelope) string {
	var out []string
	for _, e := range asked {
		p := string(e.Point)
		if e.Step != "" {
			p += ":" + e.Step[strings.LastIndex(e.Step, "-")+1:]
		}
		out = append(out, p)
	}
	return strings.Join(out, " ")
}

func everyPoint() []plugin.Hook {
	var out []plugin.Hook
	for _, p := range hook.Points() {
		out = append(out, plugin.Hook{Point: p})
	}
	return out
}
