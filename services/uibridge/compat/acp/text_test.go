package acp_test

import (
	"fmt"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/test/turntest"
	"skandha.dev/services/uibridge/contract"
)

// A text that the model begins again is shown once; only another text is shown after it.
func TestATextIsNotShownTwice(t *testing.T) {
	for _, x := range []struct{ second, want string }{
		{"one two three", "one two three"},
		{"uno due", "one \n\nuno due"},
	} {
		b := transporttest.New()
		c := connect(t, b)
		s := c.session()
		ref := transporttest.Main(s)
		c.prompt("p", s, "x")
		natstest.Eventually(t, "it is stored", func() bool { return len(b.Log()) == 1 })
		about := contract.About{Agent: ref.Agent, Session: ref.Session, Turn: event.TurnID(1)}
		delta := func(attempt string, n int, text string) {
			b.Tell(ref, contract.OnDelta, contract.Delta{
				About: about, Delta: provider.Delta{Plan: "t1-p1", Attempt: attempt, N: n, Text: text},
			})
		}
		for _, attempt := range []string{"a", "b"} {
			b.Tell(ref, contract.OnPlanRequested, contract.PlanRequested{About: about, Plan: "t1-p1", Attempt: attempt})
			delta(attempt, 0, "one ")
			delta(attempt, 2, "three") // after a gap
		}
		delta("a", 1, "late")
		b.Tell(ref, contract.OnPlanCompleted, contract.PlanCompleted{About: about, Plan: "t1-p1", Text: x.second})
		end(b, s, 0, "")
		c.answer("p")
		if got := c.shown(); got != x.want {
			t.Errorf("the client sees %q, want %q", got, x.want)
		}
	}
}

// What a person has seen of a session is what is loaded later, and what is loaded asks for what
// is pending alone.
func TestALoadedSessionIsTheSame(t *testing.T) {
	b := turntest.Start(t)
	c := connect(t, b)
	s := c.session()
	for i, text := range []string{"hello", `call math:evaluate {"expression":"6*7"}`, "/help"} {
		c.prompt(fmt.Sprint(i), s, text)
		if m := c.answer(fmt.Sprint(i)); m.Error != nil {
			t.Fatal(m.line)
		}
	}
	c.prompt("asks", s, "call "+turntest.Asked+" {}")
	q := c.until(func(m message) bool { return m.Method == "session/request_permission" })
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":"allow"}}}`, q.ID))
	c.answer("asks")
	c.prompt("waits", s, "call "+turntest.Asked+" {}")
	c.until(func(m message) bool { return m.Method == "session/request_permission" })
	live := c.shown()

	other := connect(t, b)
	other.ask("load", "session/load", fmt.Sprintf(`{"cwd":"/","sessionId":%q,"mcpServers":[{"name":"fs"}]}`, s))
	if m := other.answer("load"); m.Error != nil || !strings.Contains(m.line, `"unusedMcpServers":["fs"]`) {
		t.Fatal(m.line)
	}
	if got := other.shown(); got != live || !strings.Contains(got, "42") {
		t.Errorf("live:\n%s\nloaded:\n%s", live, got)
	}
	q = other.until(func(m message) bool { return m.Method == "session/request_permission" })
	other.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"cannot ask"}}`, q.ID))
	if m := c.answer("waits"); m.Error != nil || !strings.Contains(c.shown(), "cannot ask") {
		t.Errorf("a request that a client cannot show ends with %s, and\n%s", m.line, c.shown())
	}
	n := 0
	for _, m := range other.all {
		if m.Method == "session/request_permission" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the loaded session asks %d times, want 1", n)
	}
	if got := other.shown(); !strings.Contains(got, "fs") {
		t.Errorf("the server for MCP is not mentioned: %s", got)
	}
	other.ask("close", "session/close", fmt.Sprintf(`{"sessionId":%q}`, s))
	if m := other.answer("close"); m.Error != nil {
		t.Error(m.line)
	}
}
