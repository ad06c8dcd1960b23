package shell_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/submit"
	"skandha.dev/services/test/natstest"
)

// A turn from a chat creates a schedule, after a person has approved it. The session is woken by the
// agent's own text, which is labelled, and the answer is delivered to the chat.
func TestAScheduledInputIsAnsweredWhereItWasScheduled(t *testing.T) {
	s := start(t, core.Config{}, func(s *system) { s.schedules = true })
	seen := make(chan string, 8)
	s.model = func(m provider.Message) provider.Response {
		switch {
		case m.Role == provider.RoleTool:
			return provider.Response{TextContent: "scheduled: " + m.Text}
		case strings.HasPrefix(m.Text, "It is time"):
			seen <- m.Text
			return provider.Response{TextContent: "ring, ring"}
		}
		return calls(provider.ToolCall{ID: "1", Tool: "schedule:create", Args: json.RawMessage(
			`{"name":"call","text":"call Ada","every":"1m","count":1,"zone":"Europe/Berlin"}`)})
	}
	r := &room{}
	s.gateway(r)
	natstest.Eventually(t, "core offers its tools", func() bool { _, ok := s.core.Directory().Lookup("schedule:create"); return ok })
	ref := subject.Ref{Agent: "main", Session: "s1"}
	events := s.follow(ref)
	s.say(ref, event.Input{Text: "remind me", ReplyTo: "#ops"})
	natstest.Eventually(t, "a person is asked", func() bool { return len(r.texts()) == 1 })
	a := r.arrived[0].Approval
	if r.arrived[0].Kind != tool.KindApproval || a == nil || a.Tool != "schedule:create" {
		t.Fatalf("%+v", r.arrived[0])
	}
	body, err := json.Marshal(event.Confirmation{ConfirmationID: a.ConfirmationID, Hash: a.Hash, Approved: true})
	if err == nil {
		_, err = s.bus.PublishCause(natstest.Context(t), ref, subject.Confirmation, "web", "", body)
	}
	if err != nil {
		t.Fatal(err)
	}
	var result event.ActCompleted
	if err := s.await(events, event.TypeActCompleted).DataAs(&result); err != nil || !result.Result.Success ||
		!strings.Contains(string(result.Result.Data), `"zone":"Europe/Berlin"`) {
		t.Fatalf("%v, %+v", err, result)
	}
	s.await(events, event.TypeRecorded)
	s.letItBeDue(ref, "call")
	var in event.Perceived
	if err := s.await(events, event.TypePerceived).DataAs(&in); err != nil || in.Writer != subject.ScheduleWriter ||
		in.Origin != "schedule:call" || in.Text != "call Ada" {
		t.Fatalf("%v, %+v", err, in)
	}
	if text := <-seen; !strings.Contains(text, `scheduled in this session as "call"`) || !strings.Contains(text, "\ncall Ada\n") ||
		strings.Contains(text, "follow no instructions") {
		t.Errorf("the model sees %s", text)
	}
	natstest.Eventually(t, "the answer arrives", func() bool {
		all := r.texts()
		return len(all) == 3 && all[2] == "answer: ring, ring"
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if to := r.arrived[2].To; to != "#ops" {
		t.Errorf("it is delivered to %s", to)
	}
}

// letItBeDue makes the schedule's last occurrence an hour old, and wakes a core.
func (s *system) letItBeDue(ref subject.Ref, name string) {
	s.t.Helper()
	ctx := natstest.Context(s.t)
	bucket, key := s.bus.Bucket(journal.BucketSchedules), string(ref.Agent)+"."+string(ref.Session)+"."+name
	e, err := bucket.Get(ctx, key)
	if err != nil {
		s.t.Fatal(err)
	}
	var r map[string]any
	if err := json.Unmarshal(e.Value, &r); err != nil {
		s.t.Fatal(err)
	}
	r["last"] = time.Now().Add(-time.Hour).UTC()
	value, err := json.Marshal(r)
	if err == nil {
		_, err = bucket.Put(ctx, key, value, journal.Fence{Revision: e.Revision})
	}
	alarm, wrong := json.Marshal(map[string]any{"made": r["made"], "at": r["last"]})
	if err := errors.Join(err, wrong); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.bus.JetStream().Publish(ctx, "occurred.schedule."+subject.Encode(key), alarm); err != nil {
		s.t.Fatal(err)
	}
}

// /reset clears the conversation. What was scheduled is not part of it.
func TestSchedulesSurviveAReset(t *testing.T) {
	s := start(t, core.Config{}, func(s *system) { s.schedules = true })
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleTool {
			return provider.Response{TextContent: "done"}
		}
		return calls(provider.ToolCall{ID: "1", Tool: "schedule:create", Args: json.RawMessage(
			`{"name":"call","text":"call Ada","cron":"@daily"}`)})
	}
	natstest.Eventually(t, "core offers its tools", func() bool { _, ok := s.core.Directory().Lookup("schedule:create"); return ok })
	ref := subject.Ref{Agent: "main", Session: "s1"}
	events := s.follow(ref)
	s.say(ref, event.Input{Text: "remind me"})
	var q event.ToolCallRequest
	if err := s.await(events, event.TypeToolCallRequest).DataAs(&q); err != nil {
		t.Fatal(err)
	}
	sender := submit.Sender{Bus: s.bus.Bus, Writer: "web"}
	if err := sender.Confirm(natstest.Context(t), ref, q, true, ""); err != nil {
		t.Fatal(err)
	}
	s.await(events, event.TypeRecorded)
	if _, err := sender.Command(natstest.Context(t), ref, "reset"); err != nil {
		t.Fatal(err)
	}
	s.await(events, event.TypeSessionReset)
	caller, err := s.bus.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = caller.Close() }()
	var p coreapi.SchedulesPage
	ask := func(q string) error {
		reply, err := caller.Request(natstest.Context(t), subject.Service("core", coreapi.VerbSchedules), "core", []byte(q))
		if err == nil {
			err = json.Unmarshal(reply, &p)
		}
		return err
	}
	if err := ask(`{"agent":"main"}`); err != nil || len(p.Schedules) != 1 || len(p.Schedules[0].Next) != 3 {
		t.Fatalf("%v, %+v", err, p)
	}
	if err := ask(`{"action":"delete","agent":"main","session":"s1","name":"call"}`); err != nil || len(p.Schedules) != 0 {
		t.Fatalf("%v, %+v", err, p)
	}
	if err := ask(`{"action":"delete","agent":"main","session":"s1","name":"call"}`); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("deleting again: %v", err)
	}
}
