package shell_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/store"
	"skandha.dev/services/test/natstest"
)

// asks makes each turn ask a person about its only call, and repeat the call's result.
func (s *system) asks() {
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleUser {
			return calls(provider.ToolCall{ID: "1", Tool: "test:risky", Args: json.RawMessage(`{}`)})
		}
		return provider.Response{TextContent: "result: " + m.Text}
	}
}

// park makes sessions wait for a person, each with an input of some size, until none of them is open and the view has
// all of them.
func (s *system) park(agent subject.Agent, from, to, size int) []event.ToolCallRequest {
	s.t.Helper()
	requests := make(chan event.Event, to-from)
	requested := subject.Ref{Agent: agent, Session: "*"}.Live("ui", "tool_call_request")
	sub, err := s.bus.Conn().Subscribe(requested, func(m *nats.Msg) {
		if e, err := event.Decode(m.Data); err == nil {
			requests <- e
		}
	})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for i := from; i < to; i++ {
		s.say(waits(agent, i), event.Input{Text: strings.Repeat("x", size)})
	}
	asked := make([]event.ToolCallRequest, to-from)
	for range asked {
		e := s.next(requests)
		var n int
		_, err := fmt.Sscanf(string(e.Session), "w%d", &n)
		if err = errors.Join(err, e.DataAs(&asked[n-from])); err != nil {
			s.t.Fatal(err)
		}
	}
	natstest.Eventually(s.t, "no session is open, and the view has all", func() bool {
		n := 0
		for after := ""; ; {
			page, next, err := s.view.ListSessions(s.t.Context(), string(agent), store.MaxPage, after)
			if err != nil {
				s.t.Fatal(err)
			}
			for _, w := range page {
				if w.Phase == string(event.StateConfirming) {
					n++
				}
			}
			if after = next; after == "" {
				return n == to && s.core.Counters()["open_sessions"] == 0
			}
		}
	})
	return asked
}

// waits is one of the sessions of park.
func waits(agent subject.Agent, i int) subject.Ref {
	return subject.Ref{Agent: agent, Session: subject.Session(fmt.Sprintf("w%d", i))}
}

// approve answers a request.
func (s *system) approve(ref subject.Ref, q event.ToolCallRequest) {
	s.t.Helper()
	b, err := json.Marshal(event.Confirmation{ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: true})
	if err == nil {
		_, err = s.bus.PublishCause(s.t.Context(), ref, subject.Confirmation, "web", "", b)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// complete waits until a core that has started has compared its view with the log.
func (s *system) complete(sessions int) {
	s.t.Helper()
	natstest.Eventually(s.t, "the view is compared with the log", func() bool {
		v := s.core.Status(s.t.Context()).View
		return v.State == coreapi.ViewComplete && v.Sessions == sessions
	})
}

// answered waits until a turn has ended with the result of its call.
func (s *system) answered(ch <-chan event.Event) {
	s.t.Helper()
	var r event.Recorded
	if err := s.await(ch, event.TypeRecorded).DataAs(&r); err != nil || !strings.Contains(r.Answer, `"done"`) {
		s.t.Errorf("%v, %+v", err, r)
	}
}

// A session that waits for a person has no goroutine, and nothing of it is in the memory of core and the executors
// beyond the cache. A core that starts loads none of them; an answer loads the one that it is for.
func TestWaitingSessionsCostNothing(t *testing.T) {
	const first, size = 20, 64 << 10
	sessions := 220
	if raceEnabled { // each step takes ten times as long
		sessions = 60
	}
	s := start(t, core.Config{}, func(s *system) { s.cache, s.view, s.compare = 4, s.store(), 100*time.Millisecond })
	s.asks()
	s.park("main", 0, first, size)
	goroutines, before := runtime.NumGoroutine(), ownMemory()
	asked := s.park("main", first, sessions, size)
	natstest.Eventually(t, "goroutines are as many as before", func() bool { return runtime.NumGoroutine() <= goroutines+8 })
	// Each would hold more than its input: its conversation, and what the model was asked. The process itself may
	// have got a buffer or two meanwhile.
	most, after := int64((sessions-first)*size/4+1<<20), ownMemory()
	t.Logf("%d more sessions wait: %d KiB, want at most %d KiB", sessions-first, (after-before)>>10, most>>10)
	if after-before > most {
		t.Errorf("%d more sessions that wait take %d bytes, want at most %d", sessions-first, after-before, most)
	}

	s.stopCore()
	s.core = s.startCore(core.Config{})
	s.complete(sessions)
	if c := s.core.Counters(); c["sessions_loaded"] != 0 || c["deliveries"] != 0 || c["commits"] != 0 {
		t.Errorf("a core that starts has loaded %d sessions, for %d deliveries, and stored %d commits", c["sessions_loaded"],
			c["deliveries"], c["commits"])
	}
	ch := s.follow(waits("main", sessions-1))
	s.approve(waits("main", sessions-1), asked[len(asked)-1])
	s.answered(ch)
	if n := s.core.Counters()["sessions_loaded"]; n != 1 {
		t.Errorf("for one answer, %d sessions were loaded", n)
	}

	ref := waits("main", sessions-2)
	ch = s.follow(ref)
	s.say(ref, event.Input{Text: "next"})
	s.await(ch, event.TypePerceived)
	natstest.Eventually(t, "a session with an input in its queue is closed, too", func() bool {
		return s.core.Counters()["open_sessions"] == 0
	})
	s.approve(ref, asked[len(asked)-2])
	s.answered(ch)
	s.await(ch, event.TypeToolCallRequest) // of the next turn
}

// ownMemory returns the bytes in use that were not allocated by the server, which has the log in caches. It is
// estimated from samples, as heap profiles are.
func ownMemory() (bytes int64) {
	for range 3 { // the profile is of the collection before the last, and pools survive one
		runtime.GC()
	}
	var all []runtime.MemProfileRecord
	for n, ok := 0, false; !ok; {
		all = make([]runtime.MemProfileRecord, n+64)
		n, ok = runtime.MemProfile(all, false)
		all = all[:min(n, len(all))]
	}
	for _, r := range all {
		if r.InUseObjects() > 0 && !ofServer(r.Stack()) {
			bytes += sampled(r.InUseBytes(), r.InUseObjects())
		}
	}
	return bytes
}

func ofServer(stack []uintptr) bool {
	for frames := runtime.CallersFrames(stack); ; {
		f, more := frames.Next()
		if strings.Contains(f.Function, "/nats-server/") {
			return true
		}
		if !more {
			return false
		}
	}
}

// sampled returns how many bytes a sample represents: an object of the size was sampled with a probability that
// depends on the rate.
func sampled(bytes, objects int64) int64 {
	size := float64(bytes) / float64(objects)
	return int64(float64(bytes) / -math.Expm1(-size/float64(runtime.MemProfileRate)))
}

// Timers that fire while no core runs end their requests once one does, however few sessions may be open at once.
func TestTimersFireWhileNoCoreRuns(t *testing.T) {
	t.Parallel()
	const sessions, most = 20, 2
	cfg := core.Config{OpenSessions: most, Agents: map[string]core.AgentConfig{"hasty": {Confirm: 2 * time.Second}}}
	s := start(t, cfg, func(s *system) { s.view = s.store() })
	s.asks()
	ch := s.follow(subject.Ref{Agent: "hasty", Session: "*"})
	asked, ended := 0, 0
	take := func() {
		e := s.next(ch)
		var r event.ActCompleted
		switch {
		case e.Type == event.TypeToolCallRequest:
			asked++
		case e.Type == event.TypeActCompleted && (e.DataAs(&r) != nil || r.Result.Success):
			t.Errorf("%s: %s", e.Session, e.Data)
		case e.Type == event.TypeRecorded:
			ended++
		case e.Type.Terminal():
			t.Fatalf("%s: %s", e.Session, e.Data)
		}
	}
	for i := range sessions {
		s.say(waits("hasty", i), event.Input{Text: "go"})
	}
	for asked < sessions {
		take()
	}
	s.stopCore()
	natstest.Eventually(t, "all timers have fired", func() bool {
		timers, err := s.bus.JetStream().Stream(t.Context(), journal.StreamTimers)
		if err != nil {
			t.Fatal(err)
		}
		fired, err := timers.Info(t.Context(), jetstream.WithSubjectFilter(subject.AllFired))
		return err == nil && uint64(len(fired.State.Subjects)) == fired.State.Msgs
	})
	s.core = s.startCore(cfg)
	for ended < sessions {
		take()
	}
	natstest.Eventually(t, "no session is open", func() bool { return s.core.Counters()["open_sessions"] == 0 })
}
