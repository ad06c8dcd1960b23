package shell_test

import (
	"context"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/test/natstest"
)

// Only the provider that an agent names answers it, whichever instance is less busy. Any
// provider answers an agent that names none.
func TestAnAgentNamesItsProvider(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{Agents: map[string]core.AgentConfig{"main": {}, "choosy": {Provider: core.Providers{"second"}}}})
	b := natstest.Connect(t, s.srv)
	offers := engine.NewOffers() // no offer yet
	s.background("another provider", func(ctx context.Context) error {
		return engine.Serve(ctx, b, engine.Config{
			Kind: subject.Provider, Service: "provider",
			Offer:   engine.Offer{Providers: []provider.Info{{Name: "first", Model: "m"}}},
			Updates: offers.Updates(), DrainTimeout: 100 * time.Millisecond,
			Pools: []contract.Pool{{Name: "default", Slots: 128}},
			Work: func(_ context.Context, r contract.Request, _ func(string)) contract.Answer {
				return contract.Answer{Response: &provider.Response{TextContent: "from " + r.Provider}}
			},
		})
	})
	ref := subject.Ref{Agent: "choosy", Session: "s"}
	events := s.follow(ref)
	s.say(ref, event.Input{Text: "hello"})
	for n := range 5 {
		if n == 0 { // the turn waits until a provider of that name is offered
			offers.Put(engine.Offer{Providers: []provider.Info{{Name: "first", Model: "m"}, {Name: "second", Model: "m"}}})
		} else {
			s.say(ref, event.Input{Text: "hello"})
		}
		if said := s.turn(events); said != "from second" {
			t.Fatalf("got %q", said)
		}
	}
	other := subject.Ref{Agent: "main", Session: "s"}
	events = s.follow(other)
	s.say(other, event.Input{Text: "hello"})
	if said := s.turn(events); said != "echo: hello" && said != "from " {
		t.Fatalf("got %q", said)
	}
}

// turn returns the message of the turn that ends now. The first provider that was asked
// must have answered.
func (s *system) turn(events <-chan event.Event) string {
	s.t.Helper()
	var m event.UIMessage
	for {
		e := s.next(events)
		var p event.PlanRequested
		switch {
		case e.Type == event.TypePlanRequested && (e.DataAs(&p) != nil || p.Attempts != 1):
			s.t.Errorf("the model is asked by attempt %d", p.Attempts)
		case e.Type == event.TypeUIMessage && e.DataAs(&m) != nil:
			s.t.Errorf("a message cannot be read: %s", e.Data)
		case e.Type.Terminal():
			return m.Content
		}
	}
}
