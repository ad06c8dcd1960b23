package rpc_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ws "github.com/coder/websocket"

	"skandha.dev/pkg/event"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/rpc"
)

// The specification's contract against the real backend: a turn with a denial and one with
// an approval, cut off in the middle and resumed. Every message from the bridge is valid
// against schemas/ui.
func TestAWholeTurnOfALiveSystem(t *testing.T) {
	l := transporttest.Start(t)
	check, seen := bySchemas(t)
	file := filepath.Join(l.Workspace, "a.txt")
	transporttest.Fatal(t, os.WriteFile(file, []byte("x"), 0o600))
	dial := func(query string) *client {
		ctx := natstest.Context(t)
		c, _, err := ws.Dial(ctx, strings.Replace(l.URL, "http", "ws", 1)+rpc.Path+query, &ws.DialOptions{ //nolint:bodyclose // of an upgrade it is nil
			HTTPClient: &http.Client{Transport: l.Transport()}, Subprotocols: []string{rpc.Protocol},
		})
		transporttest.Fatal(t, err)
		t.Cleanup(func() { _ = c.CloseNow() })
		if c.Subprotocol() != rpc.Protocol {
			t.Errorf("the subprotocol is %q", c.Subprotocol())
		}
		c.SetReadLimit(1 << 20)
		return &client{t: t, Conn: c, ctx: ctx, check: check}
	}
	c := dial("?html=1")
	at := c.hear(contract.OnAttached).params(t)

	var receipt contract.Receipt
	c.must("1", "submitUserInput", `["delete a.txt"]`, &receipt)
	if receipt.Sequence == 0 || string(receipt.Session) != at.Session {
		t.Fatalf("the receipt is %+v", receipt)
	}
	asked := confirmation(t, c)
	c.must("2", "provideConfirmation", `["`+asked.ConfirmationID+`", false]`, nil)
	if got := c.hear(contract.OnNewMessage).params(t); !strings.Contains(got.Content, "not") {
		t.Errorf("after the refusal it says %+v", got)
	}
	last := c.hear(contract.OnReadyForInput).params(t).ID
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("the file after the refusal: %v", err)
	}

	c.must("3", "submitUserInput", `{"input":"delete a.txt","id":"again"}`, nil)
	confirmation(t, c)
	_ = c.CloseNow()
	// It reconnects: the confirmation request is sent again, and its hash is known.
	c = dial("?session=" + at.Session + "&after=" + last)
	asked = confirmation(t, c)
	c.must("4", "provideConfirmation", `["`+asked.ConfirmationID+`", true]`, nil)
	if got := c.hear(contract.OnConfirmationResolved); !strings.Contains(string(got.Params), string(event.Approved)) {
		t.Errorf("it was resolved as %s", got.Params)
	}
	if got := c.hear(contract.OnNewMessage).params(t); !strings.Contains(got.Content, "deleted") {
		t.Errorf("after the approval it says %+v", got)
	}
	last = c.hear(contract.OnReadyForInput).params(t).ID
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file after the approval: %v", err)
	}
	if m := c.ask("5", "cancelTurn", ""); m.Error == nil || m.Error.Data.Code != contract.CodeConflict {
		t.Errorf("a cancel of nothing is answered %+v", m)
	}
	c.must("6", "runCommand", `{"name":"help"}`, nil)
	if got := c.hear(contract.OnNewMessage).params(t); !strings.Contains(got.Content, "/reset") {
		t.Errorf("/help says %+v", got)
	}
	everyMethod(t, c, at.Session)

	// All of it once more, from the log, for the event view.
	all := dial("?session=" + at.Session + "&after=0&html=1&commits=1")
	for all.hear(contract.OnReadyForInput).params(t).ID != last {
		continue
	}
	_ = all.CloseNow()
	for _, method := range []string{
		contract.OnAttached, contract.OnCommit, contract.OnInput, contract.OnAgentStateChange, contract.OnPlanRequested,
		contract.OnPlanCompleted,
		contract.OnAudit, contract.OnToolCallRequest, contract.OnConfirmationResolved, contract.OnToolCall,
		contract.OnToolResult,
		contract.OnNewMessage, contract.OnTurnEnd, contract.OnReadyForInput,
	} {
		if !seen[method] {
			t.Errorf("%s was not sent, so its form was not checked", method)
		}
	}

	gone := make(chan ws.CloseError, 1)
	go func() {
		how, _ := c.ended()
		gone <- how
	}()
	l.Stop()
	if how := <-gone; how.Code != ws.StatusGoingAway {
		t.Errorf("the end is sent as %+v", how)
	}
}

// bySchemas checks notifications, receipts and errors, and records what was seen.
func bySchemas(t *testing.T) (check func(message, []byte), seen map[string]bool) {
	t.Helper()
	notification, receipt, failure := transporttest.Schema(t, "notification"), transporttest.Schema(t,
		"receipt"), transporttest.Schema(t, "error")
	seen = map[string]bool{}
	return func(m message, body []byte) {
		switch {
		case m.Method != "":
			seen[m.Method] = true
			notification(body)
		case m.Error != nil:
			var e struct {
				Error struct {
					Data json.RawMessage `json:"data"`
				} `json:"error"`
			}
			transporttest.Fatal(t, json.Unmarshal(body, &e))
			failure(e.Error.Data)
		case m.is("1"), m.is("2"), m.is("3"), m.is("4"), m.is("6"): // of the four methods that store
			receipt(m.Result)
		}
	}, seen
}

func confirmation(t *testing.T, c *client) (asked contract.ToolCallRequest) {
	t.Helper()
	if err := json.Unmarshal(c.hear(contract.OnToolCallRequest).Params, &asked); err != nil {
		t.Fatal(err)
	}
	if asked.ToolName != "file_system:delete_file" || asked.ConfirmationID == "" || asked.SecurityWarning == nil {
		t.Fatalf("asked %+v", asked)
	}
	return asked
}

// everyMethod calls the real backend's methods, which the transports' tests assume.
func everyMethod(t *testing.T, c *client, session string) {
	t.Helper()
	here := `{"agent":"main","session":"` + session + `"}`
	for method, params := range map[string]string{
		"listSessions": `{}`, "getSession": here, "listTools": `{}`, "listProviders": `{}`, "listPlugins": `{}`, "getHooks": `{}`, "getStatus": `{}`,
		"listTurns": here, "listArtifacts": here,
	} {
		c.must(`"`+method+`"`, method, params, nil)
	}
	var turns struct {
		Turns []struct {
			Turn string `json:"turn"`
		} `json:"turns"`
	}
	c.must("7", "listTurns", here, &turns)
	if len(turns.Turns) < 2 {
		t.Fatalf("the turns are %+v", turns)
	}
	c.must("8", "getTimeline", `{"agent":"main","session":"`+session+`","turn":"`+turns.Turns[0].Turn+`"}`, nil)
	if m := c.ask("9", "pluginAction", `{"op":"suspend","plugin":"nobody"}`); m.Error == nil ||
		m.Error.Data.Code == contract.CodeUnknownMethod {
		t.Errorf("pluginAction is answered %+v", m)
	}
	unknown := c.ask("10", "nonsense", "")
	for method := range transporttest.Methods() {
		if !strings.Contains(unknown.Error.Message, method) {
			t.Errorf("%s is not there: %s", method, unknown.Error.Message)
		}
	}
}
