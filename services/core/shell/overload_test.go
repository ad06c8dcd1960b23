package shell_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/test/natstest"
)

// crowd sends several inputs to each of several sessions, while the tool that all of
// them need blocks. It then unblocks the tool and returns the sessions of the inputs in
// the order in which they ended.
func (s *system) crowd(sessions, inputs int, before func()) []subject.Session {
	s.t.Helper()
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleUser {
			return calls(provider.ToolCall{ID: "1", Tool: "test:do", Args: json.RawMessage(`{}`)})
		}
		return provider.Response{TextContent: "done"}
	}
	open := make(chan struct{})
	s.tool = func(context.Context, contract.ToolCall) tool.Result {
		<-open
		return tool.OK("done")
	}
	from, err := s.bus.LastSequence(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for n := range inputs {
		for i := range sessions {
			ref := subject.Ref{Agent: "main", Session: subject.Session(fmt.Sprintf("s%02d", i))}
			s.say(ref, event.Input{Text: fmt.Sprint(n)})
		}
	}
	before()
	close(open)
	var ended []subject.Session
	s.endings(from, sessions*inputs, func(e event.Event) bool {
		if e.Type == event.TypeTurnFailed {
			s.t.Fatalf("%s: %s", e.Session, e.Data)
		}
		var r event.Recorded
		if e.Agent != "main" || e.DataAs(&r) != nil || r.Rounds == 0 { // another agent's, a command's
			return false
		}
		ended = append(ended, e.Session)
		return true
	})
	return ended
}

// endings calls f with the terminal events of all sessions after a sequence, in their order in the log, until it
// has counted n of them: a live copy may be lost with the core that is to publish it.
func (s *system) endings(after uint64, n int, f func(event.Event) (counts bool)) {
	s.t.Helper()
	for n > 0 {
		natstest.Eventually(s.t, "another input ends", func() (more bool) {
			for m, err := range s.bus.AllCommits(s.t.Context(), after) {
				if err != nil {
					s.t.Fatal(err)
				}
				after, more = m.Seq, true
				ref, err := subject.ParseCommit(m.Subject)
				if err != nil {
					s.t.Fatal(err)
				}
				c, err := event.DecodeCommit(ref, m.Data)
				if err != nil {
					s.t.Fatal(err)
				}
				for _, e := range c.Events {
					if (e.Type == event.TypeTurnFailed || e.Type == event.TypeRecorded) && f(e) {
						n--
					}
				}
			}
			return more
		})
	}
}

// With far more work than slots, the session that has waited longest is served first.
func TestEverySessionHasItsTurnBeforeAnyHasItsThird(t *testing.T) {
	t.Parallel()
	const sessions, inputs = 24, 4
	s := start(t, core.Config{}, func(s *system) { s.slots = 2 })
	ended := s.crowd(sessions, inputs, func() {
		natstest.Eventually(t, "all sessions wait for the tool", func() bool {
			return s.core.Counters()["queued_sessions"] >= sessions-2
		})
	})
	answers := map[subject.Session]int{}
	for _, id := range ended {
		if answers[id]++; answers[id] == 3 && len(answers) < sessions {
			t.Fatalf("%s has its third answer, and %d sessions have none: %v", id, sessions-len(answers), ended)
		}
	}
}

// The gauges by which a deployment adds executors: their slots, those in use, and the sessions
// that wait for one.
func TestSlotsAreGauges(t *testing.T) {
	t.Parallel()
	const sessions = 4
	s := start(t, core.Config{}, func(s *system) { s.slots = 2 })
	s.crowd(sessions, 1, func() {
		natstest.Eventually(t, "two sessions have a slot, and two wait for one", func() bool {
			c := s.core.Counters()
			return c["toolrunner_slots"] == 2 && c["toolrunner_slots_busy"] == 2 && c["queued_sessions"] == sessions-2
		})
		if n, there := s.core.Counters()["sandbox_slots"]; n != 0 || !there {
			t.Errorf("without a sandbox there are %d slots of sandboxes, reported: %t", n, there)
		}
	})
	natstest.Eventually(t, "all slots are free", func() bool {
		c := s.core.Counters()
		return c["toolrunner_slots_busy"] == 0 && c["provider_slots"] == 128 && c["provider_slots_busy"] == 0
	})
	s.stopRunner()
	natstest.Eventually(t, "a runner that has stopped has no slots", func() bool {
		return s.core.Counters()["toolrunner_slots"] == 0
	})
}

func TestOnlySoManySessionsAreOpen(t *testing.T) {
	t.Parallel()
	const sessions, inputs, most = 12, 3, 4
	s := start(t, core.Config{OpenSessions: most})
	ended := s.crowd(sessions, inputs, func() {
		natstest.Eventually(t, "the others wait", func() bool {
			c := s.core.Counters()
			return c["open_sessions"] == most && c["waiting_sessions"] >= sessions-most
		})
		// A command need not wait: it opens its session.
		ref := subject.Ref{Agent: "main", Session: "s11"}
		ch := s.follow(ref)
		body, err := json.Marshal(event.Command{Name: "help"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.bus.PublishCause(t.Context(), ref, subject.Command, "test", "", body); err != nil {
			t.Fatal(err)
		}
		for s.next(ch).Type != event.TypeUIMessage {
		}
	})
	answers := map[subject.Session]int{}
	for _, id := range ended {
		answers[id]++
	}
	for id, n := range answers {
		if n != inputs {
			t.Errorf("%s has %d answers, want %d", id, n, inputs)
		}
	}
	natstest.Eventually(t, "nothing waits any more", func() bool {
		c := s.core.Counters()
		return c["open_sessions"] == 0 && c["waiting_sessions"] == 0 && c["queued_sessions"] == 0
	})
}

// Sessions wait for the limit of their agent, everything ends, in the order of its session, and
// an agent without a limit does not wait.
func TestOnlySoManyTurnsOfAnAgentRun(t *testing.T) {
	t.Parallel()
	const sessions, inputs, most = 12, 3, 2
	turns := most
	s := start(t, core.Config{Agents: map[string]core.AgentConfig{
		"main": {Limits: core.LimitsConfig{Turns: &turns}}, "free": {},
	}})
	ended := s.crowd(sessions, inputs, func() {
		natstest.Eventually(t, "the others wait for the limit", func() bool {
			c := s.core.Counters()
			return c["limited_sessions"] >= sessions-most && c["open_sessions"] == sessions
		})
		free := subject.Ref{Agent: "free", Session: "f"}
		ch := s.follow(free)
		s.say(free, event.Input{Text: "free"})
		s.await(ch, event.TypePlanRequested) // its turn begins
	})
	answers := map[subject.Session]int{}
	for _, id := range ended {
		answers[id]++
	}
	for id, n := range answers {
		if n != inputs {
			t.Errorf("%s has %d answers, want %d", id, n, inputs)
		}
	}
	natstest.Eventually(t, "nothing waits any more", func() bool { return s.core.Counters()["limited_sessions"] == 0 })
}

// 5,000 inputs in 500 sessions at one slow runner: all end, in the order of their session, nothing is
// poison, and memory does not grow with the inputs. SKANDHA_E2E=long runs it at full size.
func TestAFloodAtOneSlowRunnerEndsInOrder(t *testing.T) {
	sessions := 100
	switch {
	case raceEnabled: // each step takes ten times as long
		sessions = 10
	case os.Getenv("SKANDHA_E2E") == "long":
		sessions = 500
	}
	const inputs = 10
	s := start(t, core.Config{OpenSessions: sessions / 2}, func(s *system) { s.slots = 4 })
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleUser {
			return calls(do(`{}`))
		}
		return provider.Response{TextContent: "done"}
	}
	s.tool = func(ctx context.Context, _ contract.ToolCall) tool.Result { // it is slow
		ctx, cancel := context.WithTimeout(ctx, 2*time.Millisecond)
		defer cancel()
		<-ctx.Done()
		return tool.OK("done")
	}
	want, got := map[subject.Session][]uint64{}, map[subject.Session][]uint64{}
	ended, failed := make(chan struct{}), make(chan string, 1)
	n, half := 0, make(chan struct{})
	if _, err := s.bus.Conn().Subscribe(subject.Ref{Agent: "main", Session: "*"}.All(), func(m *nats.Msg) {
		e, err := event.Decode(m.Data)
		if err != nil || !e.Type.Terminal() {
			return
		}
		var r event.Recorded
		if e.Type != event.TypeRecorded || e.DataAs(&r) != nil {
			select {
			case failed <- fmt.Sprintf("%s: %s", e.Session, e.Data):
			default:
			}
			return
		}
		got[e.Session] = append(got[e.Session], r.Sequence)
		switch n++; n {
		case sessions * inputs / 2:
			close(half)
		case sessions * inputs:
			close(ended)
		}
	}); err != nil {
		t.Fatal(err)
	}
	before := heap()
	for range inputs {
		for i := range sessions {
			ref := subject.Ref{Agent: "main", Session: subject.Session(fmt.Sprintf("s%03d", i))}
			want[ref.Session] = append(want[ref.Session], s.say(ref, event.Input{Text: strings.Repeat("x", 1000)}))
		}
	}
	var middle uint64
	for middle == 0 {
		select {
		case <-half:
			middle = heap()
		case f := <-failed:
			t.Fatal(f)
		case <-time.After(2 * natstest.Patience):
			t.Fatalf("the flood does not move: %v", s.core.Counters())
		}
	}
	select {
	case <-ended:
	case f := <-failed:
		t.Fatal(f)
	case <-time.After(4 * natstest.Patience):
		t.Fatalf("the flood does not end: %v", s.core.Counters())
	}
	if err := s.bus.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("inputs did not end in the order of their session")
	}
	c := s.core.Counters()
	if c["poison"] != 0 || c["panics"] != 0 || c["dead_letters"] != 0 {
		t.Errorf("%v", c)
	}
	// The server and caches keep something, and each session its conversation; what waits adds little.
	after, most := heap(), before+64<<20+uint64(sessions)*128<<10
	t.Logf("%d inputs in %d sessions; heap before %d KiB, in the middle %d KiB, after %d KiB; %d commits", sessions*inputs,
		sessions, before>>10, middle>>10, after>>10, c["commits"])
	if middle > most || after > most {
		t.Errorf("heap before %d, in the middle %d, after %d bytes", before, middle, after)
	}
}

// heap returns what is in use after a collection.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// A core and its runner start together, and the core is faster: the model must not be
// asked without tools.
func TestACoreThatStartsWaitsForToolsThatWereThere(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{}, func(s *system) { s.view = s.store() })
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleUser {
			return calls(provider.ToolCall{ID: "1", Tool: "test:do", Args: json.RawMessage(`{}`)})
		}
		return provider.Response{TextContent: "done"}
	}
	natstest.Eventually(t, "the offer is remembered", func() bool {
		n, err := s.view.Mark(t.Context(), "tools_offered")
		return err == nil && n > 0
	})
	s.stopCore()
	s.stopRunner()
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	s.startCore(core.Config{})
	s.await(ch, event.TypePerceived)
	s.runner(natstest.Connect(t, s.srv))
	var p event.PlanRequested
	if err := s.await(ch, event.TypePlanRequested).DataAs(&p); err != nil {
		t.Fatal(err)
	}
	if len(p.Tools) == 0 {
		t.Fatal("the model was asked without tools")
	}
	s.await(ch, event.TypeRecorded)
}
