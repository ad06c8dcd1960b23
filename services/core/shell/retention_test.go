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

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/internal/archive"
	"skandha.dev/services/internal/coreapi"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/workspace"
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
	t.Parallel()
	s, a := retained(t, core.Config{Retention: core.RetentionConfig{Turns: 2}})
	ref := subject.Ref{Agent: "main", Session: "long"}
	live, copies := s.follow(ref), s.follow(ref)
	for i := range 8 {
		s.talk(live, ref, fmt.Sprintf("first %d %s", i, strings.Repeat("x", 4000)))
	}
	before := s.first(ref)
	s.left(ref, before)
	s.replay(ref, a)
	e := s.next(copies)
	for ; e.Type != event.TypeCheckpoint; e = s.next(copies) {
	}
	if !strings.Contains(string(e.Data), `"state":{}`) || len(e.Data) > 500 {
		t.Errorf("the live copy of a checkpoint is %.500s", e.Data)
	}

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
	t.Parallel()
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
	t.Parallel()
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
		Retention: core.RetentionConfig{Fill: &half}, Streams: core.StreamsConfig{MaxBytes: 6 << 20},
	})
	text := strings.Repeat("x", 40_000)
	live := map[subject.Ref]<-chan event.Event{}
	for i := range 3 {
		ref := subject.Ref{Agent: "main", Session: subject.Session(fmt.Sprintf("s%d", i))}
		live[ref] = s.follow(ref)
	}
	rounds := 24 // 72 turns of more than 120 kB
	if raceEnabled {
		rounds = 12
	}
	for i := range rounds {
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

func TestTheContentOfADeletedSessionIsRemoved(t *testing.T) {
	t.Parallel()
	now := time.Duration(0)
	s, a := retained(t, core.Config{Retention: core.RetentionConfig{Turns: 1, Undelete: &now}})
	ref, other := subject.Ref{Agent: "main", Session: "gone"}, subject.Ref{Agent: "main", Session: "gone-2"}
	live := s.follow(ref)
	for i := range 8 {
		s.talk(live, ref, fmt.Sprintf("input %d %s secret", i, strings.Repeat("x", 60_000)))
	}
	s.left(ref, s.first(ref))
	s.talk(s.follow(other), other, "stays")
	for _, name := range []string{ref.String() + "/uploads/a.txt", other.String() + "/uploads/a.txt"} {
		if err := s.bus.PutArtifact(t.Context(), name, []byte("secret")); err != nil {
			t.Fatal(err)
		}
	}
	saved, err := workspace.New(s.bus)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []subject.Ref{ref, other} {
		if _, err := saved.Commit(t.Context(), workspace.Head{Agent: of.Agent, Session: of.Session}); err != nil {
			t.Fatal(err)
		}
	}
	s.order(ref, "delete")
	s.await(live, event.TypeRecorded)
	natstest.Eventually(t, "only the tombstone is left", func() bool {
		s.core.TrimNow()
		for m, err := range s.bus.Messages(t.Context(), ref, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(m.Data), "secret") {
				return false
			}
		}
		return true
	})
	natstest.Eventually(t, "nothing else is left", func() bool {
		segments, err := archive.Segments(t.Context(), a, ref)
		kept, wrong := s.bus.Artifacts(t.Context(), ref.String()+"/")
		_, head := saved.Head(t.Context(), ref)
		return err == nil && wrong == nil && len(segments)+len(kept) == 0 && errors.Is(head, bus.ErrNotFound)
	})
	if _, err := saved.Head(t.Context(), other); err != nil {
		t.Errorf("the files of another session: %v", err)
	}
	if kept, err := s.bus.Artifacts(t.Context(), other.String()+"/"); err != nil || len(kept) != 1 {
		t.Errorf("another session has %v, %v", kept, err)
	}
	for range 2 {
		s.say(ref, event.Input{Text: "hello?"})
		if e := s.terminal(live); !strings.Contains(string(e.Data), "its content was removed") {
			t.Errorf("%s %s", e.Type, e.Data)
		}
		s.stopCore()
		s.core = s.startCore(s.config)
	}
	natstest.Eventually(t, "it is listed among the deleted", func() bool {
		return fmt.Sprint(s.listed(true), s.listed(false)) == "[gone] [gone-2]"
	})
}

// Somebody deletes a session whose tool runs.
func TestDeletingASessionStopsItsCalls(t *testing.T) {
	t.Parallel()
	s, _ := retained(t, core.Config{})
	runs, stopped := make(chan struct{}), make(chan struct{})
	s.model = func(provider.Message) provider.Response {
		return provider.Response{ToolCalls: []provider.ToolCall{{ID: "1", Tool: "test:once", Args: []byte(`{}`)}}}
	}
	s.tool = func(ctx context.Context, _ contract.ToolCall) tool.Result {
		close(runs)
		<-ctx.Done()
		close(stopped)
		return tool.Failure(tool.CodeCancelled, "stopped")
	}
	ref := subject.Ref{Agent: "main", Session: "busy"}
	live := s.follow(ref)
	open := s.say(ref, event.Input{Text: "work"})
	natstest.Closed(t, "the call runs", runs) // a call that is stopped earlier never runs
	s.order(ref, "delete")
	e := s.terminal(live)
	if e.Type != event.TypeTurnFailed || !strings.Contains(string(e.Data), fmt.Sprintf(`"sequence":%d,`, open)) {
		t.Errorf("%s %s", e.Type, e.Data)
	}
	natstest.Closed(t, "the call is stopped", stopped)
	s.await(live, event.TypeRecorded)
	s.order(ref, "undelete")
	s.await(live, event.TypeRecorded)
	s.model = func(provider.Message) provider.Response { return provider.Response{TextContent: "back"} }
	s.talk(live, ref, "again")
}

func (s *system) order(ref subject.Ref, name string) {
	s.t.Helper()
	body, err := json.Marshal(event.Command{Name: name})
	if err == nil {
		_, err = s.bus.PublishCause(s.t.Context(), ref, subject.Command, "test", "", body)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// listed returns the sessions that core lists.
func (s *system) listed(deleted bool) (out []subject.Session) {
	s.t.Helper()
	body, err := json.Marshal(coreapi.SessionsQuery{Deleted: deleted})
	if err != nil {
		s.t.Fatal(err)
	}
	caller, err := s.bus.NewCaller()
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = caller.Close() }()
	ctx := natstest.Context(s.t)
	var page coreapi.SessionsPage
	b, err := caller.Request(ctx, subject.Service(coreapi.ServiceName, coreapi.VerbSessions), coreapi.ServiceName, body)
	if err == nil {
		err = json.Unmarshal(b, &page)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range page.Sessions {
		out = append(out, r.Session)
	}
	return out
}

// The log has a checkpoint that does not fold: what was folded before it is not given up.
func TestACheckpointThatDoesNotFoldLosesNothing(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	ref := subject.Ref{Agent: "main", Session: "forged"}
	live := s.follow(ref)
	for i := range 3 {
		s.talk(live, ref, fmt.Sprint("input ", i))
	}
	st, err := (&loader.Loader{Bus: s.bus, Log: natstest.Logger(t)}).Load(t.Context(), ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := decide.OnRetention(st, &decide.Env{Now: time.Now(), Nonce: func() string { return "forged" }})
	d.Commit.Header.Digest = strings.Repeat("0", 32)
	body, err := d.Commit.Encode()
	if err == nil {
		_, err = s.bus.AppendCommit(t.Context(), ref, body, st.Rev)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.say(ref, event.Input{Text: "hello?"})
	if e := s.terminal(live); e.Type != event.TypeTurnFailed {
		t.Errorf("%s %s", e.Type, e.Data)
	}
	if answer := s.command(ref, live, "repair"); !strings.Contains(answer, "3 turns") {
		t.Error(answer)
	}
	s.talk(live, ref, "and on")
}
