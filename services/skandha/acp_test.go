package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/services/test/foreigntest"
	"skandha.dev/services/test/natstest"
)

// editor is an editor of the Agent Client Protocol's own SDK, which has started skandha acp.
type editor struct {
	*foreigntest.Process
	t     *testing.T
	read  int // lines
	agent int // its process id
}

// said is a line that the editor printed.
type said struct {
	Done   string `json:"done"`
	Result struct {
		SessionID  string `json:"sessionId"`
		StopReason string `json:"stopReason"`
		Sessions   []struct {
			SessionID string `json:"sessionId"`
		} `json:"sessions"`
	} `json:"result"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    struct {
			Code string `json:"code"`
		} `json:"data"`
	} `json:"error"`
	Update     *updated        `json:"update"`
	Permission json.RawMessage `json:"permission"`
	Withdrawn  string          `json:"withdrawn"`
	PID        int             `json:"pid"`
	Exit       *int            `json:"exit"`
}

type updated struct {
	Kind       string `json:"sessionUpdate"`
	ToolCallID string `json:"toolCallId"`
	Status     string `json:"status"`
	Title      string `json:"title"`
	Content    any    `json:"content"`
}

func (u *updated) text() string {
	m, _ := u.Content.(map[string]any)
	s, _ := m["text"].(string)
	return s
}

// editor starts one for the world's system.
func (w *world) editor() *editor {
	w.t.Helper()
	node := foreigntest.Need(w.t, "node")
	dir := foreigntest.Copy(w.t, filepath.Join("testdata", "acp"))
	if err := os.Symlink(foreigntest.Modules(w.t, dir, "ci"), filepath.Join(dir, "node_modules")); err != nil {
		w.t.Fatal(err)
	}
	agent, err := json.Marshal([]string{os.Args[0], "acp", "--data", w.data})
	if err != nil {
		w.t.Fatal(err)
	}
	e := &editor{Process: foreigntest.Spawn(w.t, dir, []string{asCommand + "=1", "AGENT=" + string(agent)}, node, "client.mjs"), t: w.t}
	e.agent = last(e.until("its process", func(s said) bool { return s.PID != 0 })).PID
	e.order("initialize", nil)
	if r := e.done("initialize"); r.Error != nil {
		w.t.Fatalf("initialize: %+v", r.Error)
	}
	return e
}

func (e *editor) order(name string, value any) {
	e.t.Helper()
	b, err := json.Marshal(map[string]any{name: value})
	if err != nil {
		e.t.Fatal(err)
	}
	e.Say(string(b) + "\n")
}

// until reads up to a line that the test wants, and returns all that were read.
func (e *editor) until(what string, is func(said) bool) (all []said) {
	e.t.Helper()
	natstest.Eventually(e.t, what, func() bool {
		out := e.Out()
		lines := strings.Split(out[:strings.LastIndex(out, "\n")+1], "\n")
		for ; e.read < len(lines)-1; e.read++ {
			var s said
			if err := json.Unmarshal([]byte(lines[e.read]), &s); err != nil {
				e.t.Fatalf("%s: %v", lines[e.read], err)
			}
			if all = append(all, s); is(s) {
				e.read++
				return true
			}
		}
		return false
	})
	return all
}

// done reads up to the end of an order.
func (e *editor) done(order string) said {
	e.t.Helper()
	return last(e.until(order+" is done", func(s said) bool { return s.Done == order }))
}

func last(all []said) said { return all[len(all)-1] }

func (e *editor) session() string {
	e.t.Helper()
	e.order("new", []any{})
	return e.done("new").Result.SessionID
}

func (e *editor) prompt(session, text string) {
	e.t.Helper()
	e.order("prompt", map[string]any{"sessionId": session, "prompt": []any{map[string]any{"type": "text", "text": text}}})
}

// texts joins the texts of messages.
func texts(all []said, kind string) string {
	var b strings.Builder
	for _, s := range all {
		if s.Update != nil && s.Update.Kind == kind {
			b.WriteString(s.Update.text())
		}
	}
	return b.String()
}

func isDone(order string) func(said) bool { return func(s said) bool { return s.Done == order } }

func asks(s said) bool { return s.Permission != nil }

// An editor of the protocol's authors holds a conversation in which it approves, refuses, and
// approves for longer.
func TestAnEditorApproves(t *testing.T) {
	w := newWorld(t)
	w.plug(nil)
	e := w.editor()
	s := e.session()
	e.prompt(s, `then file_system:write_file {"path":"a.txt","content":"one\n"} ; kit:risky {"text":"x"}`)
	all := e.until("the end", isDone("prompt"))
	if end := last(all); end.Error != nil || end.Result.StopReason != "end_turn" {
		t.Errorf("the prompt ends with %+v", end)
	}
	if got := texts(all, "agent_message_chunk"); !strings.Contains(got, "did x") || strings.Count(got, "did x") != 1 {
		t.Errorf("the agent says %q", got)
	}
	states, diff := map[string][]string{}, false
	for _, x := range all {
		if u := x.Update; u != nil && u.ToolCallID != "" {
			states[u.ToolCallID] = append(states[u.ToolCallID], u.Status)
			b, _ := json.Marshal(u.Content)
			diff = diff || strings.Contains(string(b), `"newText":"one\n"`)
		}
	}
	if len(states) != 2 || !diff {
		t.Errorf("calls %v, a diff: %t", states, diff)
	}
	for call, got := range states {
		got = slices.DeleteFunc(got, func(s string) bool { return s == "" })
		if strings.Join(got, " ") != "pending in_progress completed" {
			t.Errorf("%s is %v", call, got)
		}
	}
	if n := len(slices.DeleteFunc(all, func(s said) bool { return !asks(s) })); n != 1 {
		t.Errorf("%d requests for approval, want 1", n)
	}
	for _, c := range []struct {
		kind string
		asks bool
		says string
	}{
		{"reject_once", true, "denied"},
		{"allow_always", true, "did y"},
		{"", false, "did y"}, // because of the grant
	} {
		e.order("choose", c.kind)
		e.done("choose")
		e.prompt(s, `call kit:risky {"text":"y"}`)
		all := e.until("the end", isDone("prompt"))
		if got := texts(all, "agent_message_chunk"); !strings.Contains(got, c.says) || slices.ContainsFunc(all, asks) != c.asks {
			t.Errorf("%s: asked: %t, the agent says %q", c.kind, slices.ContainsFunc(all, asks), got)
		}
	}
	e.CloseInput()
	if end := last(e.until("its end", func(s said) bool { return s.Exit != nil })); *end.Exit != 0 {
		t.Errorf("at the end of its input, skandha acp exits with %d", *end.Exit)
	}
}

// What somebody else answers is withdrawn from the editor, and what the editor cancels ends as cancelled.
func TestAnEditorIsNotAlone(t *testing.T) {
	w := newWorld(t)
	w.plug(nil)
	e := w.editor()
	s := e.session()
	e.order("choose", "")
	e.done("choose")
	e.prompt(s, `call kit:risky {"text":"x"}`)
	var q struct {
		ToolCall struct {
			ID string `json:"toolCallId"`
		} `json:"toolCall"`
	}
	if err := json.Unmarshal(last(e.until("a request", asks)).Permission, &q); err != nil {
		t.Fatal(err)
	}
	now, err := w.c.Session(t.Context(), w.ref(s))
	if err != nil || len(now.Pending) != 1 {
		t.Fatalf("%+v, %v", now, err)
	}
	if err := w.c.Confirm(t.Context(), w.ref(s), now.Pending[0].Request, true, ""); err != nil {
		t.Fatal(err)
	}
	all := e.until("the end", isDone("prompt"))
	if got := texts(all, "agent_message_chunk"); !strings.Contains(got, "did x") {
		t.Errorf("the agent says %q", got)
	}
	if !slices.ContainsFunc(all, func(s said) bool { return s.Withdrawn == q.ToolCall.ID }) {
		t.Errorf("the request was not withdrawn: %+v", all)
	}
	w.say(s, "hello from the page")
	if got := e.until("the page's turn", func(s said) bool {
		return s.Update != nil && strings.Contains(s.Update.text(), "echo: hello from the page")
	}); texts(got, "user_message_chunk") != "hello from the page" {
		t.Errorf("somebody else's turn is shown as %+v", got)
	}
	for _, text := range []string{"hang", `call kit:risky {"text":"never"}`} {
		e.prompt(s, text)
		e.order("cancel", s)
		if end := last(e.until("the end", isDone("prompt"))); end.Error != nil || end.Result.StopReason != "cancelled" {
			t.Errorf("%s: a cancelled prompt ends with %+v", text, end)
		}
	}
	e.prompt(s, "fail bad_request")
	if end := last(e.until("the end", isDone("prompt"))); end.Error == nil || end.Error.Data.Code != string(event.FailProvider) {
		t.Errorf("a failed turn ends with %+v", end)
	}
}

// An editor that is killed leaves a turn that goes on; another one loads it.
func TestAnEditorThatWasKilledIsNoLoss(t *testing.T) {
	w := newWorld(t)
	first := w.editor()
	s := first.session()
	first.prompt(s, "stream 40 words every 20 ms")
	first.until("the first words", func(s said) bool { return s.Update != nil && s.Update.Kind == "agent_message_chunk" })
	first.Kill()
	second := w.editor()
	second.order("load", s)
	all := second.until("it is loaded", isDone("load"))
	if r := last(all); r.Error != nil {
		t.Fatalf("%+v", r.Error)
	}
	whole := func() string { return texts(all, "agent_message_chunk") }
	for !strings.Contains(whole(), "word40") {
		all = append(all, second.until("more", func(s said) bool { return s.Update != nil })...)
	}
	if got := whole(); strings.Count(got, "word17 ") != 1 || strings.Count(got, "word40") != 1 || !strings.HasPrefix(got, "word1 ") {
		t.Errorf("the text is %q", got)
	}
	if got := texts(all, "user_message_chunk"); got != "stream 40 words every 20 ms" {
		t.Errorf("the question is %q", got)
	}
	second.order("list", nil)
	if got := second.done("list"); len(got.Result.Sessions) != 1 || got.Result.Sessions[0].SessionID != s {
		t.Errorf("the sessions are %+v", got)
	}
	w.command(s, "delete")
	second.order("load", s)
	if got := second.done("load"); got.Error == nil || got.Error.Code != -32002 || !strings.Contains(got.Error.Message, "was deleted") {
		t.Errorf("a deleted session: %+v", got)
	}
	second.order("load", second.session()) // without a message, it exists for this editor alone
	if got := second.done("load"); got.Error != nil {
		t.Errorf("a new session: %+v", got)
	}
	second.order("load", "nobody")
	if got := second.done("load"); got.Error == nil || got.Error.Code != -32002 {
		t.Errorf("an unknown session: %+v", got)
	}
}

// While the bus restarts, the text of a turn goes on, without loss or repetition. Then the
// process is asked to end, and answers what is open.
func TestAnEditorSurvivesTheBus(t *testing.T) {
	addr := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	w := newWorldAt(t, addr)
	e := w.editor()
	s := e.session()
	e.prompt(s, "stream 30 words every 10 ms")
	all := e.until("the first words", func(s said) bool { return s.Update != nil && s.Update.Kind == "agent_message_chunk" })
	w.sys.Stop()
	w.start(addr)
	all = append(all, e.until("the end", isDone("prompt"))...)
	if end := last(all); end.Error != nil || end.Result.StopReason != "end_turn" {
		t.Errorf("the prompt ends with %+v", end)
	}
	got := texts(all, "agent_message_chunk")
	if want := strings.Fields(got); len(want) != 30 || want[0] != "word1" || want[29] != "word30" {
		t.Errorf("the text is %q", got)
	}
	e.prompt(s, "slow 1500 ms")
	natstest.Eventually(t, "the turn runs", func() bool {
		now, err := w.c.Session(t.Context(), w.ref(s))
		return err == nil && now.Running != 0
	})
	if err := syscall.Kill(e.agent, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	end := e.until("the end", func(s said) bool { return s.Exit != nil })
	if *last(end).Exit != 0 || !slices.ContainsFunc(end, func(s said) bool { return s.Done == "prompt" && s.Error != nil }) {
		t.Errorf("SIGTERM ends it with %+v", end)
	}
}

// Without a system that can be started, initialize says what to do, and nothing else is on
// standard output.
func TestAnEditorWithoutASystem(t *testing.T) {
	cmd := command(t, "acp", "--nats", "nats://127.0.0.1:1")
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}` + "\n")
	out, err := cmd.Output()
	var r struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err != nil || json.Unmarshal(out, &r) != nil || !strings.Contains(r.Error.Message, "skandha up") {
		t.Errorf("%v: %s", err, out)
	}
}
