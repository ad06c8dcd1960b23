package rpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	ws "github.com/coder/websocket"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/rpc"
)

func reason(err error) string {
	var e ws.CloseError
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// The specification's contract, as a client uses it that knows nothing else.
func TestAUIThatKnowsTheSpecificationAlone(t *testing.T) {
	r := newRig(t, rpc.Config{})
	c := r.dial(t, "")
	at := c.hear(contract.OnAttached).params(t)
	if at.Agent != "main" || at.Session == "" || at.ID != "" {
		t.Fatalf("attached to %+v", at)
	}
	ref := transporttest.Main(at.Session)

	var receipt contract.Receipt
	c.must("1", "submitUserInput", `["hello"]`, &receipt)
	if receipt.Sequence != 1 || receipt.Session != ref.Session {
		t.Errorf("the receipt is %+v", receipt)
	}
	about := contract.About{Agent: ref.Agent, Session: ref.Session}
	r.Tell(ref, contract.OnAgentStateChange,
		contract.StateChange{About: about, UIState: event.UIState{State: event.StateThinking}})
	r.Tell(ref, contract.OnToolCallRequest, contract.ToolCallRequest{
		About: about, ToolName: "fs:delete", Args: json.RawMessage(`{"path":"x"}`), ConfirmationID: "c1", Hash: "h1",
		SecurityWarning: &hook.Warning{Level: "high", Message: "it cannot be undone"},
	})
	if got := string(c.hear(contract.OnAgentStateChange).Params); !strings.Contains(got, `"id":"1.0"`) ||
		!strings.Contains(got, `"state":"thinking"`) {
		t.Errorf("the state's change is sent as %s", got)
	}
	var asked struct {
		ToolName        string         `json:"toolName"`
		Args            map[string]any `json:"args"`
		ConfirmationID  string         `json:"confirmationId"`
		SecurityWarning map[string]any `json:"security_warning"`
	}
	if err := json.Unmarshal(c.hear(contract.OnToolCallRequest).Params,
		&asked); err != nil || asked.ToolName != "fs:delete" ||
		asked.Args["path"] != "x" || asked.SecurityWarning["level"] != "high" {
		t.Fatalf("asked %+v, %v", asked, err)
	}
	c.must("2", "provideConfirmation", `["`+asked.ConfirmationID+`", true]`, nil)
	r.Say(ref, "done")
	r.Tell(ref, contract.OnReadyForInput, about)
	if got := c.hear(contract.OnNewMessage).params(t); got.Content != "done" {
		t.Errorf("the message is %+v", got)
	}
	c.hear(contract.OnReadyForInput)

	want := []any{
		contract.Submission{Ref: ref, Text: "hello", Source: "websocket"},
		contract.Answer{Ref: ref, ConfirmationID: "c1", Hash: "h1", Approved: true, Source: "websocket"},
	}
	if got := r.Log(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("stored %+v, want %+v", got, want)
	}
}

func TestEveryMethodOfTheContractIsReached(t *testing.T) {
	r := newRig(t, rpc.Config{})
	c := r.dial(t, "?session=s")
	for i, k := range []struct{ method, params string }{
		{"submitUserInput", `{"input":"hello","id":"i","mode":"interrupt","agent":"other","session":"x",` +
			`"files":[{"ref":"other/x/a.png","media_type":"image/png","bytes":3}]}`},
		{"provideConfirmation", `{"confirmationId":"c","approved":false,"hash":"h","reason":"no"}`},
		{"cancelTurn", `{"sequence":4,"reason":"enough"}`},
		{"cancelTurn", `{"inputId":"i"}`},
		{"runCommand", `{"name":"tools","args":["fs"]}`},
		{"attach", `{"session":"s2","after":"0","html":true,"commits":true}`},
		{"detach", `{}`},
	} {
		c.must(fmt.Sprint(i), k.method, k.params, nil)
	}
	if got := fmt.Sprintf("%+v", r.Log()); got != "["+
		"{Ref:other/x Text:hello ID:i Mode:interrupt Source:websocket "+
		"Files:[{Ref:other/x/a.png Name: MediaType:image/png Bytes:3 Data:[]}]} "+
		"{Ref:main/s ConfirmationID:c Hash:h Approved:false Reason:no Always:<nil> Source:websocket Passkey:<nil>} "+
		"{Ref:main/s Sequence:4 InputID: Reason:enough} {Ref:main/s Sequence:0 InputID:i Reason:} "+
		"{Ref:main/s Text:/tools fs ID: Mode: Source:websocket Files:[]}]" {
		t.Errorf("stored %s", got)
	}
	for method := range transporttest.Methods() {
		var called transporttest.Called
		c.must(`"m"`, method, `{"agent":"main"}`, &called)
		if called.Method != method || called.By != "ann" || string(called.Params) != `{"agent":"main"}` {
			t.Errorf("%s called %+v", method, called)
		}
	}
}

func TestWhoMayCallWhat(t *testing.T) {
	r := newRig(t, rpc.Config{})
	calls := map[string]struct {
		right  contract.Right
		params string
	}{
		"submitUserInput":     {contract.Talk, `["x"]`},
		"provideConfirmation": {contract.Approve, `{"confirmationId":"c","approved":true,"hash":"h"}`},
		"cancelTurn":          {contract.Talk, `[1]`},
		"runCommand":          {contract.Talk, `["help"]`},
		"attach":              {contract.See, `{}`},
	}
	for name, right := range transporttest.Methods() {
		calls[name] = struct {
			right  contract.Right
			params string
		}{right, `{}`}
	}
	for _, has := range contract.AllRights() {
		r.As(transporttest.Principal(has))
		c := r.dial(t, "?session=s")
		first := c.message()
		if want := map[bool]string{
			true: contract.OnAttached, false: contract.OnDropped,
		}[has == contract.See]; first.Method != want {
			t.Errorf("a principal that may %s gets %s first, want %s", has, first.Method, want)
		}
		for method, k := range calls {
			m := c.ask(`"`+method+`"`, method, k.params)
			switch {
			case k.right == has && m.Error != nil:
				t.Errorf("who may %s is refused %s: %+v", has, method, m.Error.Data)
			case k.right != has && (m.Error == nil || m.Error.Data.Code != contract.CodeForbidden || m.Error.Code != -32003):
				t.Errorf("who may only %s is answered %s %s", has, method, m.Result)
			}
		}
	}
	p := transporttest.Principal()
	p.Agents = append(p.Agents, "other")
	r.As(p)
	c := r.dial(t, "")
	if at := c.hear(contract.OnAttached).params(t); at.Agent != "other" {
		t.Errorf("who reaches one agent alone is attached to %+v", at)
	}
	if m := c.ask("1", "submitUserInput", `{"input":"x","agent":"main","session":"s"}`); m.Error == nil ||
		m.Error.Code != -32003 {
		t.Errorf("an agent out of reach: %+v", m)
	}
}

// A request that waits for the bus only delays requests that must come after it.
func TestAnInputIsAnsweredAfterItsAcknowledgement(t *testing.T) {
	r := newRig(t, rpc.Config{})
	c := r.dial(t, "?session=s")
	r.Hold(true)
	const inputs = 20
	for i := range inputs {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"submitUserInput","params":["%d"]}`, i, i))
	}
	c.must(`"look"`, "listSessions", "", nil)
	if got := r.Log(); len(got) != 0 || len(c.heard) > 1 {
		t.Fatalf("stored %v, heard %v while the bus held", got, c.heard)
	}
	r.Hold(false)
	for i := range inputs {
		if m := c.answer(fmt.Sprint(i)); m.Error != nil {
			t.Errorf("input %d: %+v", i, m.Error.Data)
		}
	}
	for i, v := range r.Log() {
		if in, ok := v.(contract.Submission); !ok || in.Text != fmt.Sprint(i) {
			t.Errorf("%d was stored as %+v", i, v)
		}
	}
	r.Fail(&contract.Error{Code: contract.CodeUnavailable, Message: "the bus does not answer"})
	if m := c.ask("1", "submitUserInput", `["x"]`); m.Error == nil || m.Error.Code != -32053 {
		t.Errorf("answered %+v", m)
	}
}

func TestMoreThanMayBeUnderWayIsRefusedNotQueued(t *testing.T) {
	r := newRig(t, rpc.Config{AtOnce: 2})
	c := r.dial(t, "?session=s")
	c.hear(contract.OnAttached)
	r.Hold(true)
	c.send(`[{"jsonrpc":"2.0","id":1,"method":"submitUserInput","params":["1"]},{"jsonrpc":"2.0","id":2,"method":"submitUserInput","params":["2"]}]`)
	m := c.ask("3", "listTools", "")
	if m.Error == nil || m.Error.Code != -32029 || m.Error.Data.RetryAfterMS == 0 {
		t.Errorf("answered %+v", m)
	}
	r.Hold(false)
	if got := string(c.raw()); !strings.HasPrefix(got, "[{") || strings.Count(got, `"sequence"`) != 2 {
		t.Errorf("the batch is answered %s", got)
	}
	c.must("4", "listTools", "", nil)
}

func TestWhatAMethodDoesWrongStaysInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := transporttest.New()
		b.Add(contract.Method{
			Name: "panics", Right: contract.See,
			Call: func(context.Context, contract.Principal, json.RawMessage) (any, error) { panic("secret") },
		})
		b.Add(contract.Method{
			Name: "fails", Right: contract.See,
			Call: func(context.Context, contract.Principal, json.RawMessage) (any, error) {
				return nil, errors.New("secret")
			},
		})
		b.Add(contract.Method{
			Name: "cannot", Right: contract.See,
			Call: func(context.Context, contract.Principal, json.RawMessage) (any, error) {
				return func() {}, nil
			},
		})
		b.Add(contract.Method{
			Name: "hangs", Right: contract.See,
			Call: func(ctx context.Context, _ contract.Principal, _ json.RawMessage) (any, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		c := piped(t, rpc.New(rpc.Config{}, b, natstest.Logger(t)), transporttest.Principal(), "")
		for method, want := range map[string]int{
			"panics": -32603, "fails": -32603, "cannot": -32603, "hangs": -32053, "listTools": 0,
		} {
			m := c.ask(`"x"`, method, "")
			if m.Error == nil && want != 0 ||
				m.Error != nil && (m.Error.Code != want || strings.Contains(m.Error.Message, "secret")) {
				t.Errorf("%s is answered %+v %s", method, m.Error, m.Result)
			}
		}
	})
}

func TestAttachResumesAndMoves(t *testing.T) {
	r := newRig(t, rpc.Config{})
	ref := transporttest.Main("s")
	for i := range 5 {
		r.Say(ref, fmt.Sprint(i))
	}
	c := r.dial(t, "?session=s&after=3.0")
	for i := 3; i < 5; i++ {
		if got := c.hear(contract.OnNewMessage).params(t); got.Content != fmt.Sprint(i) ||
			got.ID != fmt.Sprintf("%d.0", i+1) {
			t.Errorf("heard %+v, want message %d", got, i)
		}
	}
	// In the same session, from the beginning.
	c.must("1", "attach", `{"after":"0"}`, nil)
	if at := c.hear(contract.OnAttached).params(t); at.Session != "s" || at.After != "0" {
		t.Errorf("attached to %+v", at)
	}
	for i := range 5 {
		if got := c.hear(contract.OnNewMessage).params(t); got.Content != fmt.Sprint(i) {
			t.Errorf("heard %+v, want message %d", got, i)
		}
	}
	// Elsewhere: what is asked goes there, too.
	var there contract.Receipt
	c.must("2", "attach", `{"session":"other"}`, &there)
	if at := c.hear(contract.OnAttached).params(t); at.Session != "other" || there.Session != "other" {
		t.Errorf("attached to %+v, got %+v", at, there)
	}
	c.must("3", "submitUserInput", `["x"]`, &there)
	if there.Session != "other" {
		t.Errorf("the input went to %+v", there)
	}
	r.Say(ref, "not for this one")
	r.Say(transporttest.Main("other"), "for this one")
	if got := c.hear(contract.OnNewMessage).params(t); got.Content != "for this one" {
		t.Errorf("heard %+v", got)
	}
	// A failed attach changes nothing.
	if m := c.ask("4", "attach", `{"session":"s","after":"nonsense"}`); m.Error == nil || m.Error.Data.Field != "after" {
		t.Errorf("answered %+v", m)
	}
	r.Say(transporttest.Main("other"), "still here")
	if got := c.hear(contract.OnNewMessage).params(t); got.Content != "still here" {
		t.Errorf("heard %+v", got)
	}
	c.must("5", "detach", "", nil)
	natstest.Eventually(t, "the feed is closed", func() bool { return r.Feeds() == 0 })
	c.must("6", "submitUserInput", `["y"]`, &there)
	if there.Session != "other" {
		t.Errorf("after detach the input went to %+v", there)
	}
}

func TestConfirmationsWithoutHashAreForWhatWasShown(t *testing.T) {
	r := newRig(t, rpc.Config{})
	c := r.dial(t, "?session=s")
	c.hear(contract.OnAttached)
	if m := c.ask("1", "provideConfirmation", `["c1", true]`); m.Error == nil || m.Error.Code != -32602 ||
		m.Error.Data.Field != "hash" {
		t.Errorf("what was not shown is answered %+v", m)
	}
	r.Tell(transporttest.Main("s"), contract.OnToolCallRequest, contract.ToolCallRequest{ConfirmationID: "c1", Hash: "h1"})
	c.hear(contract.OnToolCallRequest)
	c.must("2", "provideConfirmation", `["c1", false]`, nil)
	if m := c.ask("3", "provideConfirmation",
		`{"confirmationId":"c1","approved":true,"session":"elsewhere"}`); m.Error == nil || m.Error.Data.Field != "hash" {
		t.Errorf("what was shown of another session is answered %+v", m)
	}
	if got := r.Log(); len(got) != 1 || got[0].(contract.Answer).Hash != "h1" || got[0].(contract.Answer).Approved {
		t.Errorf("stored %+v", got)
	}
}

func TestWhoIsNotLetIn(t *testing.T) {
	r := newRig(t, rpc.Config{})
	get := func(query string, upgrade bool) (int, contract.Error) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.URL+rpc.Path+query, nil)
		transporttest.Fatal(t, err)
		if upgrade {
			req.Header = http.Header{
				"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-WebSocket-Version": {"13"},
				"Sec-WebSocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
			}
		}
		res, err := http.DefaultClient.Do(req)
		transporttest.Fatal(t, err)
		defer func() { _ = res.Body.Close() }()
		var e contract.Error
		if b, err := io.ReadAll(res.Body); err != nil || json.Unmarshal(b, &e) != nil {
			t.Fatalf("answered %d %s, %v", res.StatusCode, b, err)
		}
		return res.StatusCode, e
	}
	for _, k := range []struct {
		query  string
		status int
		field  string
	}{
		{"?agent=a.b", 400, "agent"},
		{"?session=a%20b", 400, "session"},
		{"?html=yes", 400, "html"},
		{"?session=a&session=b", 400, "session"},
		{"?token=x", 400, "token"},
		{"?ui=a.b", 400, "ui"},
	} {
		if status, e := get(k.query, true); status != k.status || e.Field != k.field || e.Message == "" {
			t.Errorf("%s is answered %d %+v", k.query, status, e)
		}
	}
	if status, e := get("", false); status != http.StatusUpgradeRequired || e.Field != "Upgrade" {
		t.Errorf("a plain GET is answered %d %+v", status, e)
	}
	r.As(contract.Principal{})
	if status, e := get("", true); status != http.StatusUnauthorized || e.Code != contract.CodeUnauthenticated {
		t.Errorf("nobody is answered %d %+v", status, e)
	}
}
