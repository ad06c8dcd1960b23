package shell_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

const parallel = 8 // calls in one answer: as many as would lock the session

func eight(name string) []provider.ToolCall {
	out := make([]provider.ToolCall, parallel)
	for i := range out {
		out[i] = provider.ToolCall{ID: fmt.Sprint(i), Tool: name, Args: json.RawMessage(`{}`)}
	}
	return out
}

// offer serves one tool until its connection ends.
func (s *system) offer(b *journal.Journal, spec tool.Spec, work func(context.Context) contract.Answer) {
	s.t.Helper()
	spec.Description, spec.Args = "a test's", json.RawMessage(`{"type":"object"}`)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := engine.Serve(ctx, b, engine.Config{
			Kind: subject.Runner, Service: "other", Offer: engine.Offer{Tools: []tool.Spec{spec}},
			DrainTimeout: 100 * time.Millisecond, Pools: []contract.Pool{{Name: "default", Slots: 128}},
			Work: func(ctx context.Context, _ contract.Request, _ func(string)) contract.Answer { return work(ctx) },
		})
		s.t.Logf("serving %s: %v", spec.Name, err) // an error if its connection was cut
	}()
	s.t.Cleanup(func() { cancel(); <-ended })
	if err := s.core.AwaitExecutors(natstest.Context(s.t), b.Instance()); err != nil {
		s.t.Fatal(err)
	}
}

// ends returns how the turn ends, and how many of its calls ended with each code.
func (s *system) ends(ch <-chan event.Event) (event.Recorded, map[tool.Code]int) {
	s.t.Helper()
	var rec event.Recorded
	if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
		s.t.Fatal(err)
	}
	codes := map[tool.Code]int{}
	for _, a := range rec.Actions {
		codes[a.Code]++
	}
	return rec, codes
}

// The only runner is killed with eight calls that may not be repeated. Whether they ran
// is unknown, which is not a failure of the tool: the session continues without asking
// the user.
func TestAKilledRunnerLocksNoSession(t *testing.T) {
	t.Parallel() // it takes the twelve seconds in which a call might still begin
	s := start(t, core.Config{})
	s.model = once(eight("test:fragile")...)
	began := make(chan struct{}, parallel)
	victim := natstest.Connect(t, s.srv)
	s.offer(victim, tool.Spec{Name: "test:fragile"}, func(ctx context.Context) contract.Answer {
		began <- struct{}{}
		<-ctx.Done()
		return contract.Answer{}
	})
	ref := subject.Ref{Agent: "main", Session: "killed"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	for range parallel {
		<-began
	}
	victim.Conn().Close()
	if _, codes := s.ends(ch); codes[tool.CodeOutcomeUnknown] != parallel {
		t.Fatalf("the calls ended as %v", codes)
	}
	s.offer(natstest.Connect(t, s.srv), tool.Spec{Name: "test:fragile"}, func(context.Context) contract.Answer {
		res := tool.OK("done")
		return contract.Answer{Result: &res}
	})
	s.say(ref, event.Input{Text: "again"})
	if _, codes := s.ends(ch); codes[""] != parallel { // neither locked nor asked about
		t.Fatalf("then they ended as %v", codes)
	}
}

// A plugin leaves during the model call and comes back: the calls wait for it.
func TestCallsWaitForAPluginThatComesBack(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	m := plugin.Manifest{Name: "dur", Tools: []tool.Spec{
		{Name: "dur:once", Description: "a test's", Args: json.RawMessage(`{"type":"object"}`)},
	}}
	p := s.plug(m, nil)
	thinks, left := make(chan struct{}), make(chan struct{})
	said := once(eight("dur:once")...)
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleUser {
			close(thinks)
			<-left
		}
		return said(m)
	}
	s.offer(natstest.Connect(t, s.srv), tool.Spec{Name: "dur:once", Plugin: "dur"}, func(context.Context) contract.Answer {
		if !s.core.Plugins().Active("dur") {
			return engine.DidNotRun("plugin dur is gone")
		}
		res := tool.OK("done")
		return contract.Answer{Result: &res}
	})
	natstest.Eventually(t, "the tool is offered", func() bool {
		return slices.ContainsFunc(s.core.Directory().Public(), func(t tool.Spec) bool { return t.Name == "dur:once" })
	})
	ref := subject.Ref{Agent: "main", Session: "rolling"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	<-thinks
	p.leave()
	natstest.Eventually(t, "core knows that it has left", func() bool { return !s.core.Plugins().Active("dur") })
	close(left)
	s.await(ch, event.TypePlanCompleted)
	s.plug(m, nil)
	if rec, codes := s.ends(ch); codes[""] != parallel {
		t.Fatalf("the calls ended as %v: %+v", codes, rec)
	}
}

// A plugin is killed: its lease lasts, it has no responders, and it is back two seconds
// later. The calls are retried with a growing backoff until they run.
func TestCallsWaitForAPluginThatWasKilled(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.model = once(eight("test:refused")...)
	back := make(chan struct{})
	time.AfterFunc(2*time.Second, func() { close(back) })
	s.offer(natstest.Connect(t, s.srv), tool.Spec{Name: "test:refused"}, func(context.Context) contract.Answer {
		select {
		case <-back:
			res := tool.OK("done")
			return contract.Answer{Result: &res}
		default:
			return engine.DidNotRun("nobody listens on tool.dur.once")
		}
	})
	ref := subject.Ref{Agent: "main", Session: "refused"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	if _, codes := s.ends(ch); codes[""] != parallel {
		t.Fatalf("the calls ended as %v", codes)
	}
}
