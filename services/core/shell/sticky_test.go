package shell_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// keeper is a runner with a sticky tool.
type keeper struct {
	bus  *journal.Journal
	stop func()

	mu   sync.Mutex
	seen []contract.ToolCall
}

func (s *system) keeper() *keeper {
	k := &keeper{bus: natstest.Connect(s.t, s.srv)}
	spec := tool.Spec{
		Name: "test:keep", Description: "keeps", Args: json.RawMessage(`{"type":"object"}`), Pool: "kept", Sticky: true,
	}
	k.stop = s.background("keeper", func(ctx context.Context) error {
		return engine.Serve(ctx, k.bus, engine.Config{
			Kind: subject.Runner, Service: "keeper", Offer: engine.Offer{Tools: []tool.Spec{spec}},
			DrainTimeout: 100 * time.Millisecond,
			Pools:        []contract.Pool{{Name: "kept", Slots: 8}},
			Work: func(_ context.Context, r contract.Request, _ func(string)) contract.Answer {
				k.mu.Lock()
				defer k.mu.Unlock()
				k.seen = append(k.seen, *r.Tool)
				res := tool.OK("kept")
				return contract.Answer{State: contract.Finished, Result: &res}
			},
		})
	})
	if err := s.core.AwaitExecutors(natstest.Context(s.t), k.bus.Instance()); err != nil {
		s.t.Fatal(err)
	}
	return k
}

func (k *keeper) calls() []contract.ToolCall {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]contract.ToolCall(nil), k.seen...)
}

// While a runner lives, its session returns to what the runner keeps for it. The next
// runner learns that this was lost.
func TestASessionStaysWithTheRunnerThatKeepsSomethingForIt(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.model = once(
		provider.ToolCall{ID: "1", Tool: "test:keep", Args: json.RawMessage(`{}`)},
		provider.ToolCall{ID: "2", Tool: "test:keep", Args: json.RawMessage(`{}`)},
	)
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	turn := func() {
		t.Helper()
		s.say(ref, event.Input{Text: "go"})
		var rec event.Recorded
		if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil || len(rec.Actions) != 2 ||
			!rec.Actions[0].Success || !rec.Actions[1].Success {
			t.Fatalf("%+v, %v", rec, err)
		}
	}
	a, b := s.keeper(), s.keeper()
	for range 3 {
		turn()
	}
	holder, other := a, b
	if len(a.calls()) == 0 {
		holder, other = b, a
	}
	got := holder.calls()
	if len(got) != 6 || len(other.calls()) != 0 {
		t.Fatalf("the calls went to both: %d and %d", len(got), len(other.calls()))
	}
	for i, c := range got {
		want := holder.bus.Instance()
		if i < 2 { // the first two are assigned together
			want = ""
		}
		if c.Lease == "" || c.Lease != got[0].Lease || c.Before != want && i != 1 {
			t.Errorf("call %d has lease %q and names %q as the runner before", i, c.Lease, c.Before)
		}
		if c.Principal != "test" {
			t.Errorf("call %d has the principal %q", i, c.Principal)
		}
	}
	holder.stop()
	natstest.Eventually(t, "the holder is gone", func() bool { return len(s.core.Directory().Executors()) == 3 })
	turn()
	after := other.calls()
	if len(after) != 2 || after[0].Lease != got[0].Lease || after[0].Before != holder.bus.Instance() {
		t.Errorf("its successor got %+v", after)
	}
}
