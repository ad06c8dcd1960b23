package mcp_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/test/turntest"
	"skandha.dev/services/uibridge/compat/mcp"
	"skandha.dev/services/uibridge/contract"
)

// task is a task as clients see it.
type task struct {
	ResultType    string `json:"resultType"`
	ID            string `json:"taskId"`
	Status        string
	TTL           int64     `json:"ttlMs"`
	Poll          int64     `json:"pollIntervalMs"`
	Created       time.Time `json:"createdAt"`
	Updated       time.Time `json:"lastUpdatedAt"`
	StatusMessage string
	InputRequests map[string]struct {
		Method string
		Params struct{ Message string }
	}
	Result struct {
		Content           []struct{ Text string }
		StructuredContent mcp.Answer
		IsError           bool
	}
}

func (b *bridge) task(t testing.TB, method, id string, params map[string]any) task {
	t.Helper()
	if params == nil {
		params = map[string]any{}
	}
	name := id
	switch method {
	case "tools/call":
		name = "ask"
	default:
		params["taskId"] = id
	}
	got := b.request(t, method, name, params, tasking)
	var out task
	if got.Error != nil || json.Unmarshal(got.Result, &out) != nil {
		t.Fatalf("%s is answered %d %s", method, got.status, got.body)
	}
	return out
}

func (b *bridge) begin(t testing.TB, text, session string) task {
	t.Helper()
	return b.task(t, "tools/call", "", map[string]any{
		"name": "ask", "arguments": map[string]any{"text": text, "session": session},
	})
}

// until polls a task until it has the state.
func (b *bridge) until(t testing.TB, id, status string) (out task) {
	t.Helper()
	natstest.Eventually(t, "the task is "+status, func() bool {
		out = b.task(t, "tasks/get", id, nil)
		return out.Status == status
	})
	return out
}

// A handle works on another bridge after the death of the one that has made it, and for its creator
// alone.
func TestATaskSurvivesItsBridge(t *testing.T) {
	sys := turntest.New(t)
	first := serve(t, sys.Bridge(t), mcp.Config{})
	made := first.begin(t, needsApproval, "long")
	if made.ResultType != "task" || made.Status != "working" || made.TTL != 24*time.Hour.Milliseconds() ||
		made.Poll <= 0 || made.Created.IsZero() {
		t.Fatalf("created %+v", made)
	}
	first.End(contract.ErrGoingAway)
	first.Server.Server.Close()
	first.handler.Close()
	first.backend.Close()

	b := serve(t, sys.Bridge(t), mcp.Config{})
	now := b.until(t, made.ID, "input_required")
	if len(now.InputRequests) != 1 || now.ResultType != "complete" || !now.Created.Equal(made.Created) {
		t.Fatalf("got %+v", now)
	}
	var key string
	for k, q := range now.InputRequests {
		if key = k; q.Method != "elicitation/create" || !strings.Contains(q.Params.Message, turntest.Asked) {
			t.Errorf("asked %+v", q)
		}
	}
	approval := func(key string) map[string]any {
		return map[string]any{"inputResponses": map[string]any{
			key: map[string]any{"action": "accept", "content": map[string]any{"decision": "approve"}},
		}}
	}
	b.As(bob())
	for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
		params := approval(key)
		params["taskId"] = made.ID
		foreign := b.request(t, method, made.ID, params, tasking)
		unknown := strings.Replace(made.ID, "mcp-", "mcq-", 1)
		params["taskId"] = unknown
		none := b.request(t, method, unknown, params, tasking)
		if foreign.Error == nil || foreign.Error.Code != -32602 || none.Error == nil || !foreign.same(none) {
			t.Errorf("%s of another's task is answered %s, of none %s", method, foreign.body, none.body)
		}
	}
	b.As(transporttest.Principal())
	id, _, _ := strings.Cut(key, ".")
	b.task(t, "tasks/update", made.ID, approval(id+".another-digest")) // does not count
	if still := b.task(t, "tasks/get", made.ID, nil); still.Status != "input_required" {
		t.Fatalf("an answer to what was not shown counts: %+v", still)
	}
	b.task(t, "tasks/update", made.ID, approval("no-such.question"))
	b.task(t, "tasks/update", made.ID, approval(key))
	end := b.until(t, made.ID, "completed")
	if end.Result.IsError || !strings.Contains(end.Result.Content[0].Text, turntest.Asked+":") ||
		end.Result.StructuredContent.Outcome != "answered" || end.Updated.Before(end.Created) {
		t.Errorf("got %+v", end)
	}
	if got := b.task(t, "tasks/get", made.ID, nil); got.Status != "completed" {
		t.Errorf("then: %+v", got)
	}
	b.task(t, "tasks/cancel", made.ID, nil) // has no effect
	if got := b.task(t, "tasks/get", made.ID, nil); got.Status != "completed" {
		t.Errorf("after a cancel: %+v", got)
	}
}

func TestTasks(t *testing.T) {
	b := start(t)
	hangs := b.begin(t, "hang", "one")
	queued := b.begin(t, "hello", "one")
	if got := b.task(t, "tasks/get", hangs.ID, nil); got.Status != "working" {
		t.Errorf("got %+v", got)
	}
	again := func() task {
		return b.task(t, "tools/call", "", map[string]any{
			"name": "ask", "arguments": map[string]any{"text": "hello", "session": "same", "id": "once"},
		})
	}
	if first := again(); first.ID == "" || again().ID != first.ID {
		t.Error("a repeated input has another task")
	}
	b.task(t, "tasks/cancel", queued.ID, nil)
	b.until(t, queued.ID, "cancelled")
	b.task(t, "tasks/cancel", hangs.ID, nil)
	b.until(t, hangs.ID, "cancelled")
	failed := b.until(t, b.begin(t, "fail bad_request", "two").ID, "completed")
	if !failed.Result.IsError || failed.Result.StructuredContent.Outcome != "failed" {
		t.Errorf("got %+v", failed)
	}
	if got := b.begin(t, "/help", "two"); got.ResultType != "complete" || got.ID != "" {
		t.Errorf("a command is answered %+v", got)
	}
	// Clients that do not declare the extension know no tasks
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		got := b.request(t, method, hangs.ID, map[string]any{"taskId": hangs.ID}, plain)
		if got.Error == nil || got.Error.Code != -32021 ||
			!strings.Contains(string(got.Error.Data), "io.modelcontextprotocol/tasks") {
			t.Errorf("%s without the capability is answered %s", method, got.body)
		}
	}
	got := b.request(t, "tools/call", "ask",
		map[string]any{"name": "ask", "arguments": map[string]any{"text": "hi"}}, plain)
	if !strings.Contains(string(got.Result), "echo: hi") {
		t.Errorf("without the capability ask is answered %s", got.body)
	}
}

// The result of a turn that has ended can be fetched for a time.
func TestATaskExpires(t *testing.T) {
	b := serve(t, turntest.Start(t), mcp.Config{TaskLife: time.Nanosecond})
	made := b.begin(t, needsApproval, "short")
	b.until(t, made.ID, "input_required") // what runs does not expire
	approve(t, b, "short")
	natstest.Eventually(t, "the task has expired", func() bool {
		got := b.request(t, "tasks/get", made.ID, map[string]any{"taskId": made.ID}, tasking)
		return got.Error != nil && got.Error.Code == -32602
	})
}

// An input that core does not take up at once is no task yet.
func TestATaskIsDurableWhenItIsCreated(t *testing.T) {
	memory := transporttest.New()
	h := mcp.New(mcp.Config{Patience: time.Millisecond}, mcp.Deps{Backend: memory, Log: natstest.Logger(t)})
	b := &bridge{Server: transporttest.Serve(t, h, 0), handler: h}
	got := b.request(t, "tools/call", "ask",
		map[string]any{"name": "ask", "arguments": map[string]any{"text": "x", "session": "s", "id": "mine"}}, tasking)
	if !strings.Contains(string(got.Result), `"isError":true`) || !strings.Contains(string(got.Result), "unavailable") ||
		!strings.Contains(string(got.Result), "mine") {
		t.Errorf("got %s", got.body)
	}
}
