package shell_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// fullProvider announces a free slot and refuses attempts for want of one: the first ones,
// then it fails.
type fullProvider struct {
	t        *testing.T
	bus      *journal.Journal
	refusals int32
	runs     atomic.Int32
}

// announce announces the provider until ctx ends.
func (p *fullProvider) announce(ctx context.Context) error {
	me := p.bus.Instance()
	body, err := json.Marshal(contract.Announcement{
		Instance: me, Kind: subject.Provider, Service: "provider", Started: time.Now(),
		Providers: []provider.Info{{Name: "full", Model: "m"}},
		Pools:     []contract.Pool{{Name: contract.DefaultPool, Slots: 4}},
	})
	for every := time.NewTicker(20 * time.Millisecond); err == nil && ctx.Err() == nil; {
		err = p.bus.Publish(ctx, subject.Announce(subject.Provider, me), nil, body)
		select {
		case <-ctx.Done():
			every.Stop()
		case <-every.C:
		}
	}
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func (p *fullProvider) answer(q *bus.Request) {
	var d contract.Decoder
	r, err := d.Decode(q.Data)
	if err != nil {
		p.t.Errorf("a request cannot be read: %v", err)
		return
	}
	if r.Op != contract.OpRun {
		return
	}
	a := contract.Answer{Call: r.Call, Attempt: r.Attempt, Instance: p.bus.Instance()}
	if a.State, a.Reason = contract.Refused, contract.RefusedFull; p.runs.Add(1) > p.refusals {
		a.State, a.Reason = contract.Finished, ""
		a.Error = &provider.Error{Code: provider.ErrUnavailable, Message: "overloaded", Retryable: true}
	}
	body, err := json.Marshal(a)
	if err == nil {
		err = q.Reply(body)
	}
	if err != nil {
		p.t.Errorf("answering: %v", err)
	}
}

// A provider that refuses a plan more often than it may fail, and then fails, leaves it to the
// next one of the agent's list.
func TestAFullProviderThatFailsLeavesThePlanToTheNext(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{Agents: map[string]core.AgentConfig{"main": {Provider: core.Providers{"full", "scripted"}}}})
	p := &fullProvider{t: t, bus: natstest.Connect(t, s.srv), refusals: 20}
	r, err := p.bus.Respond(subject.Executor(subject.Provider, p.bus.Instance()), "", string(p.bus.Instance()), p.answer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	s.background("the full provider", p.announce)
	if err := s.core.AwaitExecutors(natstest.Context(t), p.bus.Instance()); err != nil {
		t.Fatal(err)
	}
	ref := subject.Ref{Agent: "main", Session: "s"}
	events := s.follow(ref)
	s.say(ref, event.Input{Text: "hello"})
	var last event.PlanRequested
	for e := s.next(events); e.Type != event.TypeUIMessage; e = s.next(events) {
		if e.Type.Terminal() {
			t.Fatalf("the turn ended with %s %s", e.Type, e.Data)
		}
		if e.Type == event.TypePlanRequested {
			if err := e.DataAs(&last); err != nil {
				t.Fatal(err)
			}
		}
	}
	if last.Use != "scripted" || last.Attempts != 22 || last.Refused != 20 || p.runs.Load() != 21 {
		t.Errorf("the last attempt is %+v; the full provider was asked %d times", last, p.runs.Load())
	}
}
