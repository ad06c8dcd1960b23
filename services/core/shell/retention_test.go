package shell_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/internal/archive"
	"skandha.dev/services/internal/coreapi"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/test/natstest"
)

// retained is a system of which turns leave the log at once, and its archive.
func retained(t *testing.T, c core.Config) (*system, archive.Store) {
	t.Helper()
	dir := t.TempDir()
	a, err := archive.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	c.Retention.Archive, c.Retention.Every = dir, time.Second
	s := start(t, c, func(s *system) { s.compare, s.settle = 100*time.Millisecond, time.Millisecond })
	s.config = c
	return s, a
}

// talk says something, and awaits the answer.
func (s *system) talk(live <-chan event.Event, ref subject.Ref, text string) {
	s.t.Helper()
	s.say(ref, event.Input{ID: text[:min(len(text), 20)], Text: text})
	s.await(live, event.TypeRecorded)
}

// first returns the session's first commit in the log.
func (s *system) first(ref subject.Ref) (at uint64) {
	s.t.Helper()
	for m, err := range s.bus.Commits(s.t.Context(), ref, 0) {
		if err != nil {
			s.t.Fatal(err)
		}
		return m.Seq
	}
	return 0
}

// left waits until all messages of the session before a sequence have left the log, but for processed causes.
func (s *system) left(ref subject.Ref, before uint64) {
	s.t.Helper()
	natstest.Eventually(s.t, "turns have left the log", func() bool {
		s.core.TrimNow()
		return s.first(ref) > before
	})
}

// replay folds the whole past of the session, from the archive and the log, and compares it with what the log alone
// leads to.
func (s *system) replay(ref subject.Ref, a archive.Store) {
	s.t.Helper()
	log, err := s.bus.LogState(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	natstest.Eventually(s.t, "no commit is stored meanwhile", func() bool {
		whole := loader.NewReplay(ref)
		for m, err := range archive.Past(s.t.Context(), s.bus, archive.Origin{Created: log.Created}, a, ref, 0) {
			if err == nil {
				err = whole.Add(m)
			}
			if err != nil {
				s.t.Fatal(err)
			}
		}
		live, err := (&loader.Loader{Bus: s.bus, Log: natstest.Logger(s.t)}).Load(s.t.Context(), ref, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		if live.Rev != whole.State().Rev {
			return false
		}
		got, err := whole.State().Snapshot()
		want, wrong := live.Snapshot()
		if err = errors.Join(err, wrong); err != nil || !bytes.Equal(got, want) {
			s.t.Errorf("from the archive and the log: %.1000s\nfrom the log: %.1000s, %v", got, want, err)
		}
		return true
	})
}

func TestTurnsLeaveTheLogForTheArchive(t *testing.T) {
	s, a := retained(t, core.Config{Retention: core.RetentionConfig{Turns: 2}})
	ref := subject.Ref{Agent: "main", Session: "long"}
	live := s.follow(ref)
	for i := range 8 {
		s.talk(live, ref, fmt.Sprintf("first %d %s", i, strings.Repeat("x", 4000)))
	}
	before := s.first(ref)
	s.left(ref, before)
	s.replay(ref, a)

	var asked []provider.Message
	s.asked = func(r provider.Request) { asked = messagesOf(t, r) }
	s.talk(live, ref, "and now?")
	if n := len(asked); n != 17 || !strings.HasPrefix(asked[0].Text, "first 0 ") {
		t.Errorf("the model saw %d messages, the first is %.20s", n, asked[0].Text)
	}
	s.say(ref, event.Input{ID: "and now?", Text: "again"})
	if e := s.terminal(live); e.Type != event.TypeTurnFailed || !strings.Contains(string(e.Data), "duplicate") {
		t.Errorf("a repeated input ended as %s %s", e.Type, e.Data)
	}

	// Another core knows only the log.
	s.stopCore()
	s.core = s.startCore(s.config)
	s.talk(live, ref, "and then?")
	if n := len(asked); n != 19 {
		t.Errorf("the model saw %d messages", n)
	}
	s.replay(ref, a)
	if n := s.core.Stats().Mismatches.Load() + s.core.Stats().Poison.Load(); n > 0 {
		t.Errorf("%d sessions were locked, or causes poison", n)
	}
}

func TestNothingLeavesTheLogWithoutItsArchive(t *testing.T) {
	s, a := retained(t, core.Config{Retention: core.RetentionConfig{Turns: 1}})
	obstacle := filepath.Join(a.String(), "main") // where a directory has to be
	if err := os.WriteFile(obstacle, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ref := subject.Ref{Agent: "main", Session: "kept"}
	live := s.follow(ref)
	for i := range 8 { // more than the state holds
		s.talk(live, ref, fmt.Sprintf("%d %s", i, strings.Repeat("x", 60_000)))
	}
	before := s.first(ref)
	natstest.Eventually(t, "status says what is wrong", func() bool {
		s.core.TrimNow()
		for _, f := range s.core.Status(t.Context()).Faults {
			if f.What == coreapi.FaultRetention && strings.Contains(f.Message, a.String()) {
				return true
			}
		}
		return false
	})
	if s.first(ref) != before {
		t.Errorf("the first commit is %d, was %d", s.first(ref), before)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	s.left(ref, before)
	s.replay(ref, a)
	natstest.Eventually(t, "the fault is over", func() bool { return len(s.core.Status(t.Context()).Faults) == 0 })
}

func TestWhatIsOpenStaysInTheLog(t *testing.T) {
	hold := make(chan struct{})
	s, _ := retained(t, core.Config{Retention: core.RetentionConfig{Age: time.Millisecond}})
	ref := subject.Ref{Agent: "main", Session: "open"}
	live := s.follow(ref)
	for i := range 8 { // more than the state holds
		s.talk(live, ref, fmt.Sprintf("%d %s", i, strings.Repeat("x", 60_000)))
	}
	s.left(ref, s.first(ref))
	stays := s.first(ref)
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleTool {
			return provider.Response{TextContent: "done"}
		}
		return provider.Response{ToolCalls: []provider.ToolCall{{ID: "1", Tool: "test:once", Args: []byte(`{}`)}}}
	}
	s.tool = func(ctx context.Context, _ contract.ToolCall) tool.Result {
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return tool.OK("held")
	}
	opened := s.say(ref, event.Input{ID: "open", Text: "work"})
	queued := s.say(ref, event.Input{ID: "queued", Text: "later"})
	s.await(live, event.TypeActRequested)
	s.core.TrimNow()
	natstest.Eventually(t, "the other turns have left", func() bool { return s.first(ref) >= stays })
	for _, seq := range []uint64{opened, queued} {
		if _, err := s.bus.Message(t.Context(), seq); err != nil {
			t.Errorf("input %d: %v", seq, err)
		}
	}
	close(hold)
	s.await(live, event.TypeRecorded)
	s.await(live, event.TypeActRequested)
	s.await(live, event.TypeRecorded)
}

// The log is small: what is said in all is more than it can hold.
func TestAFullLogMakesRoom(t *testing.T) {
	half := 50
	s, a := retained(t, core.Config{
		Retention: core.RetentionConfig{Fill: &half}, Streams: core.StreamsConfig{MaxBytes: 4 << 20},
	})
	text := strings.Repeat("x", 40_000)
	live := map[subject.Ref]<-chan event.Event{}
	for i := range 3 {
		ref := subject.Ref{Agent: "main", Session: subject.Session(fmt.Sprintf("s%d", i))}
		live[ref] = s.follow(ref)
	}
	for i := range 20 { // 60 turns of more than 120 kB
		for ref, l := range live {
			s.talk(l, ref, fmt.Sprintf("%d %s", i, text))
		}
		natstest.Eventually(t, "there is room again", func() bool {
			s.core.TrimNow()
			log, err := s.bus.LogInfo(t.Context(), "")
			return err == nil && log.State.Bytes < 3<<20
		})
	}
	for ref := range live {
		s.replay(ref, a)
	}
}

// terminal returns the next event that ends an input.
func (s *system) terminal(live <-chan event.Event) event.Event {
	s.t.Helper()
	for {
		if e := s.next(live); e.Type.Terminal() {
			return e
		}
	}
}

func messagesOf(t *testing.T, r provider.Request) (out []provider.Message) {
	t.Helper()
	for _, raw := range r.Messages {
		var m provider.Message
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Error(err)
		}
		out = append(out, m)
	}
	return out
}
