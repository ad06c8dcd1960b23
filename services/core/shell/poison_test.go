package shell_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/test/natstest"
)

// deliverInVain delivers the waiting cause n times without deciding it, like a core whose
// connection breaks repeatedly.
func (s *system) deliverInVain(n int) {
	s.t.Helper()
	consumer, err := s.bus.JetStream().Consumer(s.t.Context(), bus.StreamSessions, "core")
	if err != nil {
		s.t.Fatal(err)
	}
	for range n {
		m, err := consumer.Next(jetstream.FetchMaxWait(natstest.Patience))
		if err != nil {
			s.t.Fatal(err)
		}
		if err := m.Nak(); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := s.bus.Conn().Flush(); err != nil {
		s.t.Fatal(err)
	}
}

func TestDeliveriesWithoutDecisionsAreNoPoison(t *testing.T) {
	s := start(t, core.Config{})
	s.stopCore()
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	seq := s.say(ref, event.Input{Text: "hi"})
	s.deliverInVain(3 * decide.PoisonAt)
	c := s.startCore(core.Config{})
	var rec event.Recorded
	if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
		t.Fatal(err)
	}
	if rec.Sequence != seq || c.Counters()["poison"] != 0 {
		t.Errorf("%+v, %d causes were taken for poison", rec, c.Counters()["poison"])
	}
}

// Decisions that begin and never commit are counted in the log, so that they count for
// every core.
func TestWhatCoresBeginInVainIsPoison(t *testing.T) {
	s := start(t, core.Config{})
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "healthy"})
	s.await(ch, event.TypeRecorded)
	s.stopCore()
	seq := s.say(ref, event.Input{Text: "deadly"})
	for range decide.PoisonAt {
		s.beginAndDie(ref, seq)
	}
	s.deliverInVain(1)
	c := s.startCore(core.Config{})
	failed := s.failure(ch)
	if failed.Sequence != seq || failed.Code != event.FailPoison || !strings.Contains(failed.Reason, "began to decide") {
		t.Errorf("%+v", failed)
	}
	if n := c.Counters()["poison"]; n != 1 {
		t.Errorf("%d causes were taken for poison, want 1", n)
	}
	s.say(ref, event.Input{Text: "healthy again"})
	s.await(ch, event.TypeRecorded)
}

// beginAndDie acts as a core that stores that it begins to decide, and then dies.
func (s *system) beginAndDie(ref subject.Ref, seq uint64) {
	s.t.Helper()
	state, err := (&loader.Loader{Bus: s.bus, Log: natstest.Logger(s.t)}).Rebuild(s.t.Context(), ref)
	if err != nil {
		s.t.Fatal(err)
	}
	d := decide.OnBegin(state, seq, seq, &decide.Env{Now: time.Now(), Nonce: func() string { return "begun" }})
	body, err := d.Commit.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.bus.AppendCommit(s.t.Context(), ref, body, state.Rev); err != nil {
		s.t.Fatal(err)
	}
}

// failure returns the next terminal event, which must be a failure.
func (s *system) failure(ch <-chan event.Event) event.TurnFailed {
	s.t.Helper()
	for {
		e := s.next(ch)
		if !e.Type.Terminal() {
			continue
		}
		var p event.TurnFailed
		if err := e.DataAs(&p); err != nil {
			s.t.Fatalf("%s: %v", e.Type, err)
		}
		return p
	}
}

type panicking struct{ decide.Policy }

func (panicking) Evaluate(decide.Access) decide.Ruling { panic("of the policy") }

// A panic proves that deciding fails, however often the cause was delivered.
func TestATurnWhoseDecisionsPanicIsPoison(t *testing.T) {
	s := start(t, core.Config{})
	s.stopCore()
	s.model = func(m provider.Message) provider.Response {
		if m.Text == "deadly" {
			return calls(provider.ToolCall{ID: "1", Tool: "test:do", Args: json.RawMessage(`{}`)})
		}
		return provider.Response{TextContent: "done"}
	}
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	c, err := shell.New(shell.Config{
		Agents: map[subject.Agent]*decide.Agent{"main": {Name: "main", Limits: decide.DefaultLimits()}},
		Policy: panicking{}, Drain: 100 * time.Millisecond,
	}, natstest.Connect(t, s.srv), s.store(), natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	s.background("core", func(ctx context.Context) error { return c.Run(ctx) })
	seq := s.say(ref, event.Input{Text: "deadly"})
	if failed := s.failure(ch); failed.Sequence != seq || failed.Code != event.FailPoison {
		t.Errorf("%+v", failed)
	}
	s.say(ref, event.Input{Text: "healthy"})
	s.await(ch, event.TypeRecorded)
}
