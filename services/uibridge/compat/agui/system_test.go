package agui_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/test/turntest"
	"skandha.dev/services/uibridge/compat/agui"
	"skandha.dev/services/uibridge/contract"
)

const asked = `call ` + turntest.Asked + ` {}`

// Whatever a turn does, its events arrive in an order that clients accept, and the text of
// its last message is the answer.
func TestTurnsAreTold(t *testing.T) {
	c := newClient(t, turntest.Start(t), agui.Config{})
	for i, x := range []struct {
		text, want string // the answer
		fails      string // or its code
		has        string // an event that is among them
	}{
		{text: "hello", want: "echo: hello", has: "TEXT_MESSAGE_CONTENT"},
		{text: "stream 50 words", want: "word50"},
		{text: `call math:evaluate {"expression":"6*7"}`, want: "42", has: "TOOL_CALL_RESULT"},
		{text: `comment let me see :: math:evaluate {"expression":"1+1"}`, want: "2", has: "TOOL_CALL_START"},
		{text: `call2 math:evaluate {"expression":"1+1"} ; math:evaluate {"expression":"2+2"}`, want: "4"},
		{text: `then math:evaluate {"expression":"1+1"} ; math:evaluate {"expression":"2+2"}`, want: "4"},
		{text: `chain math:evaluate {"expression":"1+1"} ; math:evaluate {"expression":"${a.result}*3"}`, want: "6"},
		{text: "unknown tool", want: "no:such_tool failed", has: "TOOL_CALL_RESULT"},
		{text: `call math:evaluate {"nonsense":`, want: "failed"},
		{text: "spend 10 tokens", want: "spent 10 tokens"},
		{text: "text 100000 bytes", want: "xxxx"},
		{text: "/help", want: "/reset", has: "TEXT_MESSAGE_END"},
		{text: "/nonsense", fails: "unknown_command"},
		{text: "fail bad_request", fails: "provider_failed", has: "STEP_FINISHED"},
		{text: "garbage", fails: "provider_failed"},
	} {
		t.Run(x.text, func(t *testing.T) {
			c := *c
			c.t = t
			s := c.ask(ctx(t), input("events", fmt.Sprint("run", i), x.text))
			last := s.last()
			if x.has != "" && !slices.Contains(types(s.events), x.has) {
				t.Errorf("no %s in %s", x.has, s.types())
			}
			if x.fails != "" {
				if last.Type != "RUN_ERROR" || last.Code != x.fails {
					t.Errorf("got %+v", last)
				}
				return
			}
			ids, text := texts(s.events)
			if last.Type != "RUN_FINISHED" || last.RunID != fmt.Sprint("run", i) || !strings.Contains(last.Result.Text, x.want) {
				t.Fatalf("got %+v", last)
			}
			if got := text[ids[len(ids)-1]]; got != last.Result.Text {
				t.Errorf("the last text is %q, the answer %q", got, last.Result.Text)
			}
		})
	}
}

// A run that is sent again is not accepted again, and has the same events.
func TestARunIsTakenOnce(t *testing.T) {
	b := turntest.Start(t)
	c := newClient(t, b, agui.Config{})
	first := c.ask(ctx(t), input("once", "r1", `call math:evaluate {"expression":"6*7"}`)).last()
	for range 2 {
		s := c.ask(ctx(t), input("once", "r1", `call math:evaluate {"expression":"6*7"}`))
		if again := s.last(); again.Result != first.Result || !slices.Contains(types(s.events), "TOOL_CALL_RESULT") {
			t.Errorf("got %+v, first %+v", again, first)
		}
	}
	if other := c.ask(ctx(t), input("once", "r2", "hello")).last(); other.Result.Turn == first.Result.Turn ||
		other.Result.Text != "echo: hello" {
		t.Errorf("another run is %+v", other)
	}
}

// If the client asks for that, the run stays open while a request is pending; any UI may
// answer. This client answers with a separate run, which also returns the rest.
func TestSomebodyIsAsked(t *testing.T) {
	b := turntest.Start(t)
	c := newClient(t, b, quick)
	for name, answer := range map[string]func(*testing.T, contract.ToolCallRequest){
		"elsewhere": func(t *testing.T, q contract.ToolCallRequest) {
			_, err := b.Confirm(ctx(t), transporttest.Principal(), contract.Answer{
				Ref: subject.Ref{Agent: "main", Session: q.Session}, ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: true,
				Source: "web",
			})
			if err != nil {
				t.Fatal(err)
			}
		},
		"by resume": func(t *testing.T, q contract.ToolCallRequest) {
			c := *c
			c.t = t
			s := c.ask(ctx(t),
				input(string(q.Session), "r2", "", open(), resume(q.ConfirmationID, "resolved", map[string]any{"approved": true})))
			if last := s.last(); last.Type != "RUN_FINISHED" || last.RunID != "r2" {
				t.Errorf("the run that answers ended with %+v, %+v", last, s.Error)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := *c
			c.t = t
			s := c.ask(ctx(t), input("asked-"+strings.ReplaceAll(name, " ", "-"), "r1", asked, open()))
			var q contract.ToolCallRequest
			if err := json.Unmarshal(s.until(agui.CustomConfirmation).Value, &q); err != nil || q.Hash == "" ||
				q.ToolName != turntest.Asked {
				t.Fatalf("asked %+v, %v", q, err)
			}
			answer(t, q)
			if last := s.last(); last.Type != "RUN_FINISHED" || !strings.Contains(last.Result.Text, turntest.Asked+":") {
				t.Errorf("got %+v", last)
			}
			if !slices.Contains(types(s.events), agui.CustomConfirmationResolved) {
				t.Errorf("nobody says who answered: %s", s.types())
			}
		})
	}
}

// While a request is pending the run ends, and another one continues.
func TestRunsAreInterrupted(t *testing.T) {
	c := newClient(t, turntest.Start(t), agui.Config{})
	for _, approved := range []bool{true, false} {
		thread := fmt.Sprint("interrupted-", approved)
		first := c.ask(ctx(t), input(thread, "r1", asked))
		last := first.last()
		if last.Outcome.Type != "interrupt" || len(last.Outcome.Interrupts) != 1 ||
			last.Outcome.Interrupts[0].Reason != "tool_call" {
			t.Fatalf("got %+v", last)
		}
		id := last.Outcome.Interrupts[0].ToolCallID
		if s := c.ask(ctx(t), input(thread, "r9", "something else")); s.Code != http.StatusConflict ||
			s.Error.Field != "resume" {
			t.Errorf("a run beside what is asked: %d %+v", s.Code, s.Error)
		}
		second := c.ask(ctx(t), input(thread, "r2", "", resume(id, "resolved", map[string]any{"approved": approved})))
		events := second.events
		for {
			e, ok := second.next()
			if !ok {
				break
			}
			events = append(events, e)
		}
		if i := slices.IndexFunc(events,
			func(e wire) bool { return e.Type == "TOOL_CALL_RESULT" && e.ToolCallID == id }); i < 0 ||
			slices.Contains(types(events[:i]), "TOOL_CALL_START") {
			t.Errorf("the resumed run does not tell the result of what was called before: %s", second.types())
		}
		if end := events[len(events)-1]; end.Outcome.Type != "success" {
			t.Errorf("got %+v", end)
		}
		if s := c.ask(ctx(t),
			input(thread, "r3", "",
				resume(id, "resolved", map[string]any{"approved": approved}))); s.Code != http.StatusConflict {
			t.Errorf("an answer to what is asked no more: %d %+v", s.Code, s.Error)
		}
		if done := c.ask(ctx(t), input(thread, "r1", asked)).last(); done.Outcome.Type != "success" {
			t.Errorf("the first run, when all is over, ended with %+v", done)
		}
	}
}

// An approval is bound to what its principal was shown: the hash that it sends, or was sent.
func TestWhoWasNotShownMustSayTheHash(t *testing.T) {
	b := turntest.Start(t)
	s := newClient(t, b, agui.Config{}).ask(ctx(t), input("shown", "r1", asked))
	var q contract.ToolCallRequest
	if err := json.Unmarshal(s.until(agui.CustomConfirmation).Value, &q); err != nil {
		t.Fatal(err)
	}
	elsewhere := newClient(t, b, agui.Config{})
	yes := map[string]any{"approved": true}
	if s := elsewhere.ask(ctx(t),
		input("shown", "r2", "", open(), resume(q.ConfirmationID, "resolved", yes))); s.Code != http.StatusBadRequest ||
		s.Error.Field != "resume[0].payload.hash" {
		t.Errorf("without a hash: %d %+v", s.Code, s.Error)
	}
	wrong := elsewhere.ask(ctx(t),
		input("shown", "r3", "", resume(q.ConfirmationID, "resolved", map[string]any{"approved": true, "hash": "wrong"})))
	wrong.until(agui.CustomAudit)
	if s := elsewhere.ask(ctx(t),
		input("shown", "r4", "",
			resume(q.ConfirmationID, "resolved",
				map[string]any{"approved": true, "hash": q.Hash}))); s.last().Type != "RUN_FINISHED" {
		t.Errorf("with the hash: %s", s.types())
	}
	if last := s.last(); last.Type != "RUN_FINISHED" {
		t.Errorf("the run ended with %+v", last)
	}
}

// A client that disconnects does not stop the turn.
func TestTheTurnGoesOnWithoutItsClient(t *testing.T) {
	b := turntest.Start(t)
	c := newClient(t, b, agui.Config{})
	s := c.ask(ctx(t), input("gone", "r1", asked))
	var q contract.ToolCallRequest
	if err := json.Unmarshal(s.until(agui.CustomConfirmation).Value, &q); err != nil {
		t.Fatal(err)
	}
	s.body.Close()
	ref := subject.Ref{Agent: "main", Session: "gone"}
	feed, err := b.Attach(ctx(t), transporttest.Principal(), contract.Attachment{Ref: ref})
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	if _, err := b.Confirm(ctx(t), transporttest.Principal(),
		contract.Answer{Ref: ref, ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: true}); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := feed.Next(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if n.Method == contract.OnTurnEnd {
			break
		}
	}
	if last := c.ask(ctx(t), input("gone", "r1", asked)).last(); last.Type != "RUN_FINISHED" {
		t.Errorf("asked again, the run ended with %+v", last)
	}
}

// A run without notifications is kept alive, and ends when it is cancelled.
func TestACancelledRunSaysSo(t *testing.T) {
	b := turntest.Start(t)
	c := newClient(t, b, quick)
	s := c.ask(ctx(t), input("cancelled", "r1", "hang"))
	s.until("STEP_STARTED")
	s.untilKept()
	if _, err := b.Cancel(ctx(t), transporttest.Principal(),
		contract.Cancellation{Ref: subject.Ref{Agent: "main", Session: "cancelled"}, InputID: "r1"}); err != nil {
		t.Fatal(err)
	}
	if last := s.last(); last.Type != "RUN_ERROR" || last.Code != string(event.FailCancelled) {
		t.Errorf("got %+v", last)
	}
}
