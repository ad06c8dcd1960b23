package hub

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/uibridge/contract"
)

var (
	ref  = subject.Ref{Agent: "main", Session: "one"}
	when = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

const about = `"agent":"main","session":"one","turn":"t3","time":"2026-11-21T12:00:00Z","cause":"3"`

// payloads has one of each type, with its notification.
var payloads = []struct {
	payload event.Payload
	method  string
	params  string // beside [about]
}{
	{
		event.Perceived{Sequence: 3, InputID: "i", Writer: "ui-ann", Source: "web", Text: "hi", Disposition: event.Started},
		contract.OnInput, `"sequence":3,"input_id":"i","writer":"ui-ann","source":"web","text":"hi","disposition":"started"`,
	},
	{
		event.PlanConsidered{
			Plan: "t3-p1", Mode: guide.Native, Method: event.MethodLexical, Offered: 1, Of: 9,
			Candidates: []event.Candidate{{Tool: "x:y", Score: 0.5, Fit: 0.5}},
		},
		contract.OnPlanConsidered,
		`"plan":"t3-p1","mode":"native","method":"lexical","candidates":[{"tool":"x:y","score":0.5,"fit":0.5,"success":0,` +
			`"latency":0,"risk":0,"preference":0}],"offered":1,"of":9`,
	},
	{
		event.PlanRequested{
			Plan: "t3-p1", Round: 1, Attempt: "a", Attempts: 1, Provider: "p", Chain: "secret of core", Tools: []string{"x:y"},
		},
		contract.OnPlanRequested, `"plan":"t3-p1","round":1,"attempt":"a","attempts":1,"provider":"p"`,
	},
	{
		event.PlanCompleted{
			Plan:     "t3-p1",
			Response: &provider.Response{TextContent: "yes", Usage: provider.Usage{InputTokens: 1, OutputTokens: 2}},
			Steps:    []event.Step{{Call: "c", CallID: "1", Tool: "x:y", Args: json.RawMessage(`{}`)}}, DurationMS: 5,
		},
		contract.OnPlanCompleted,
		`"plan":"t3-p1","text":"yes","steps":[{"call":"c","call_id":"1","tool":"x:y","args":{}}],"usage":{"input_tokens":1,"output_tokens":2},"duration_ms":5`,
	},
	{
		event.PlanCompleted{
			Plan: "t3-p1", Error: &provider.Error{Code: provider.ErrAuth, Message: "no"}, Spent: provider.Usage{InputTokens: 7},
		},
		contract.OnPlanCompleted,
		`"plan":"t3-p1","usage":{"input_tokens":7,"output_tokens":0},"error":{"code":"auth","message":"no","retryable":false}`,
	},
	{
		event.ActRequested{
			Call: "c", Tool: "x:y", Args: json.RawMessage(`{"a":1}`), Hash: "h", Attempts: 2, Runner: "r", ApprovedBy: "ui-ann",
		},
		contract.OnToolCall, `"call":"c","toolName":"x:y","args":{"a":1},"runner":"r","attempts":2,"approvedBy":"ui-ann"`,
	},
	{
		event.ActApproved{Call: "c", Hash: "h", By: "ui-ann", Person: "ann", For: "bob", Source: "web", Left: 1},
		contract.OnPartialApproval, `"confirmationId":"c","by":"ui-ann","person":"ann","for":"bob","source":"web","left":1`,
	},
	{
		event.ActConfirmed{
			Call: "c", Hash: "h", Outcome: event.Approved, By: "ui-ann", Reason: "ok", Source: "web",
			Always: &event.Grant{Tool: "x:y", Args: map[string]string{"path": "a/*"}},
		},
		contract.OnConfirmationResolved,
		`"confirmationId":"c","outcome":"approved","by":"ui-ann","source":"web","reason":"ok","always":{"tool":"x:y","args":{"path":"a/*"}}`,
	},
	{
		event.ActCompleted{Call: "c", Tool: "x:y", Hash: "h", Result: tool.OK("r"), DurationMS: 4, Note: "n"},
		contract.OnToolResult, `"call":"c","toolName":"x:y","result":{"success":true,"data":"r"},"duration_ms":4,"note":"n"`,
	},
	{
		event.Audited{
			Principal: "ui-ann", Action: "tool.call", Resource: "x:y", Call: "c", Hash: "h", Effect: event.EffectDeny,
			Reason: "no", Rule: "policy[0]",
		},
		contract.OnAudit,
		`"principal":"ui-ann","action":"tool.call","resource":"x:y","call":"c","hash":"h","effect":"deny","reason":"no","rule":"policy[0]"`,
	},
	{
		event.Recorded{Sequence: 3, Input: "hi", Answer: "yes", Rounds: 1, DurationMS: 9},
		contract.OnTurnEnd,
		`"recorded":{"sequence":3,"input":"hi","answer":"yes","rounds":1,"usage":{"input_tokens":0,"output_tokens":0},"duration_ms":9}`,
	},
	{
		event.TurnFailed{Sequence: 3, Code: event.FailCancelled, Reason: "stop"},
		contract.OnTurnEnd, `"failed":{"sequence":3,"code":"cancelled","reason":"stop"}`,
	},
	{event.SessionLocked{Reason: "too much"}, contract.OnSessionLocked, `"reason":"too much"`},
	{event.SessionReset{By: "ui-ann"}, contract.OnSessionReset, `"by":"ui-ann"`},
	{
		event.UIMessage{Content: "**yes**", Format: event.Markdown},
		contract.OnNewMessage,
		`"content":"**yes**","format":"markdown"`,
	},
	{
		event.ToolCallRequest{
			ToolName: "x:y", Args: json.RawMessage(`{"b":2}`), ConfirmationID: "c", Hash: "h", ExpiresAt: when,
			SecurityWarning: &hook.Warning{Level: hook.LevelWarn, Message: "look"},
			Always:          []event.Grant{{Tool: "x:y", Hash: "h"}},
		},
		contract.OnToolCallRequest,
		`"toolName":"x:y","args":{"b":2},"confirmationId":"c","security_warning":{"level":"warn","message":"look"},` +
			`"hash":"h","expiresAt":"2026-11-21T12:00:00Z","always":[{"tool":"x:y","hash":"h"}]`,
	},
	{event.UIReady{}, contract.OnReadyForInput, ``},
	{event.UIState{State: event.StateThinking}, contract.OnAgentStateChange, `"state":"thinking"`},
	{event.SessionPaused{By: "ui-ann", Paused: true}, "", ``}, // onAgentStateChange and a message say so
	{event.Recalled{Plan: "t3-p1"}, "", ``},
	{event.Summarized{Plan: "t3-p1"}, "", ``},
	{event.Checkpoint{State: json.RawMessage(`{"big":1}`), Reason: "every 100"}, "", ``},
}

func eventOf(p event.Payload) event.Event {
	e := event.New(ref, "id", "test", p)
	e.Turn, e.Time, e.Cause = "t3", when, "3"
	return e
}

// notifications returns the notifications for an item: one, or none for a checkpoint.
func notifications(ref subject.Ref, i follow.Item) ([]contract.Notification, error) {
	n, err := newNotification(ref, i, nil)
	if err != nil || n == nil {
		return nil, err
	}
	return []contract.Notification{n.note}, nil
}

func TestEveryEventIsTold(t *testing.T) {
	seen := map[event.Type]bool{}
	for _, c := range payloads {
		e := eventOf(c.payload)
		seen[e.Type] = true
		got, err := notifications(ref, follow.Item{Commit: 7, Index: 2, Event: e})
		if err != nil {
			t.Errorf("%s: %v", e.Type, err)
			continue
		}
		if c.method == "" {
			if len(got) != 0 {
				t.Errorf("%s: got %v, want nothing", e.Type, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Method != c.method || got[0].ID != "7.2" {
			t.Errorf("%s: got %+v, want %s with the id 7.2", e.Type, got, c.method)
			continue
		}
		same(t, string(e.Type), got[0].Params, c.params)
	}
	for _, typ := range event.CommitTypes() {
		if !seen[typ] {
			t.Errorf("%s: there is no example of it here", typ)
		}
	}
}

func same(t *testing.T, what string, got json.RawMessage, params string) {
	t.Helper()
	want := "{" + strings.TrimSuffix(about+","+params, ",") + "}"
	var a, b any
	if err := json.Unmarshal(got, &a); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatalf("%s: the test's own %s: %v", what, want, err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%s: got\n%s\nwant\n%s", what, got, want)
	}
}

func TestWhatIsLossyHasNoID(t *testing.T) {
	for method, i := range map[string]follow.Item{
		contract.OnDelta:      {Delta: &provider.Delta{Plan: "t3-p1", Attempt: "a", N: 1, Text: "x"}, Turn: "t3"},
		contract.OnToolOutput: {Output: &tool.Output{Call: "c", Attempt: "a", Stream: "stdout", Text: "x"}, Turn: "t3"},
	} {
		got, err := notifications(ref, i)
		if err != nil || len(got) != 1 || got[0].Method != method || got[0].ID != "" {
			t.Errorf("%s: got %+v, %v", method, got, err)
		}
		if !strings.Contains(string(got[0].Params), `"turn":"t3"`) || !strings.Contains(string(got[0].Params), `"text":"x"`) {
			t.Errorf("%s: got %s", method, got[0].Params)
		}
	}
}

func TestACommitIsToldWithoutCheckpoint(t *testing.T) {
	c := event.Commit{
		Ref: ref, Header: event.Header{
			CommitID: "x", Now: when, Trigger: event.Trigger{Kind: event.ByCause, Sequence: 3, Writer: "ui-ann"},
			Hooks: []hook.Verdict{{Point: hook.BeforeAct, Plugin: "police", Verb: hook.DenyVerb, Reason: "no", LatencyUS: 12}},
		},
	}
	for _, p := range payloads {
		c.Events = append(c.Events, eventOf(p.payload))
	}
	got, err := notifications(ref, follow.Item{Commit: 7, Index: -1, Whole: &c})
	if err != nil || len(got) != 1 || got[0].ID != "7.h" || got[0].Method != contract.OnCommit {
		t.Fatalf("got %+v, %v", got, err)
	}
	var back contract.Commit
	if err := json.Unmarshal(got[0].Params, &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Events) != len(c.Events) || back.Commit != 7 || back.Trigger != c.Header.Trigger ||
		!reflect.DeepEqual(back.Hooks, c.Header.Hooks) {
		t.Errorf("got %+v", back)
	}
	if s := string(got[0].Params); strings.Contains(s, "big") || !strings.Contains(s, `{"reason":"every 100"}`) {
		t.Errorf("the checkpoint's state is sent, or its reason is not: %s", s)
	}
	if !strings.Contains(string(c.Events[len(c.Events)-1].Data), "big") {
		t.Error("the commit itself was changed")
	}
}

func TestWhatCannotBeToldIsAnError(t *testing.T) {
	for about, e := range map[string]event.Event{
		"garbage":         {Type: event.TypeUIMessage, Data: json.RawMessage(`"no object"`)},
		"an unknown type": {Type: "skandha.future.thing.v1", Data: json.RawMessage(`{}`)},
	} {
		if got, err := notifications(ref, follow.Item{Commit: 1, Event: e}); err == nil || len(got) > 0 {
			t.Errorf("%s: got %v, %v, want an error", about, got, err)
		}
	}
}

func TestPlaces(t *testing.T) {
	for id, want := range map[string]place{
		"0": {0, follow.All}, "7.h": {7, -1}, "7.0": {7, 0}, "18446744073709551615.12": {1<<64 - 1, 12},
	} {
		if got, err := parsePlace(id); err != nil || got != want || got.id() != id {
			t.Errorf("%q is %v (%s), %v; want %v", id, got, got.id(), err, want)
		}
	}
	for _, id := range []string{
		"7", "7.", ".1", "7.-1", "7.+1", "07.1", "7.01", "7.x", "x.1", "-7.1", "7.1.1", " 7.1", "7.H", "0.0", "0.h",
		"18446744073709551616.1", "7.1073741824", "7.99999999999999999999",
	} {
		if got, err := parsePlace(id); err == nil {
			t.Errorf("%q is read as %v, want an error", id, got)
		} else if e := contract.ErrorOf(err); e.Code != contract.CodeInvalid || e.Field != "after" {
			t.Errorf("%q: got %+v", id, e)
		}
	}
	order := []place{{0, follow.All}, {1, -1}, {1, 0}, {1, 1}, {1, follow.All}, {2, -1}}
	for i, p := range order {
		for j, q := range order {
			if p.before(q) != (i < j) {
				t.Errorf("%v before %v is %t", p, q, p.before(q))
			}
		}
	}
}
