package sse_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
	"skandha.dev/services/uibridge/sse"
)

func TestWhatIsPostedIsStored(t *testing.T) {
	r := newRig(t, sse.Config{})
	for i, k := range []struct{ path, body string }{
		{"inputs", `{"input":"hello","id":"i","mode":"queue"}`},
		{"inputs?ui=mine", `["again"]`},
		{
			"confirmations",
			`{"confirmationId":"c","hash":"h","approved":true,"reason":"why not","always":{"tool":"fs:read","args":{"path":"/a/*"}}}`,
		},
		{"cancels", `{"sequence":1,"reason":"enough"}`},
		{"cancels", ``},
		{"commands", `{"name":"provider","args":["offline"]}`},
		{"/v1/agents/other/sessions/x/inputs", `{"input":"there"}`},
	} {
		status, b := r.post(t, k.path, k.body, nil)
		var receipt contract.Receipt
		if err := json.Unmarshal(b, &receipt); err != nil || status != http.StatusAccepted ||
			receipt.Sequence != uint64(i+1) || receipt.Session == "" {
			t.Errorf("%s %s is answered %d %s", k.path, k.body, status, b)
		}
	}
	log := r.Log()
	if a, ok := log[2].(contract.Answer); !ok || a.Always == nil || a.Always.Args["path"] != "/a/*" || !a.Approved ||
		a.Hash != "h" || a.Source != "http" {
		t.Errorf("the answer is stored as %+v", log[2])
	}
	got := fmt.Sprintf("%+v", slices.Delete(log, 2, 3))
	if got != "[{Ref:main/s Text:hello ID:i Mode:queue Source:http Files:[]} "+
		"{Ref:main/s Text:again ID: Mode: Source:mine Files:[]} "+
		"{Ref:main/s Sequence:1 InputID: Reason:enough} {Ref:main/s Sequence:0 InputID: Reason:} "+
		"{Ref:main/s Text:/provider offline ID: Mode: Source:http Files:[]} "+
		"{Ref:other/x Text:there ID: Mode: Source:http Files:[]}]" {
		t.Errorf("stored %s", got)
	}
}

func TestEveryMethodIsCalledByName(t *testing.T) {
	r := newRig(t, sse.Config{})
	names := []string{request.SubmitUserInput, request.ProvideConfirmation, request.CancelTurn, request.RunCommand}
	for name, body := range map[string]string{
		request.SubmitUserInput:     `{"input":"x","agent":"main","session":"s"}`,
		request.ProvideConfirmation: `["c",true,"h",null,null,"main","s"]`,
		request.CancelTurn:          `{"inputId":"i","agent":"main","session":"s"}`,
		request.RunCommand:          `{"name":"help","agent":"main","session":"s"}`,
	} {
		var receipt contract.Receipt
		if status, b := r.post(t, "/v1/rpc/"+name, body, nil); status != http.StatusOK ||
			json.Unmarshal(b, &receipt) != nil || receipt.Sequence == 0 {
			t.Errorf("%s is answered %d %s", name, status, b)
		}
	}
	for name := range transporttest.Methods() {
		names = append(names, name)
		var called transporttest.Called
		if status, b := r.post(t, "/v1/rpc/"+name, `{"agent":"main"}`,
			nil); status != http.StatusOK || json.Unmarshal(b, &called) != nil ||
			called.Method != name || string(called.Params) != `{"agent":"main"}` {
			t.Errorf("%s is answered %d %s", name, status, b)
		}
		if status, b := r.post(t, "/v1/rpc/"+name, "", nil); status != http.StatusOK {
			t.Errorf("%s without parameters is answered %d %s", name, status, b)
		}
	}
	status, b := r.post(t, "/v1/rpc/nonsense", "", nil)
	var e contract.Error
	transporttest.Fatal(t, json.Unmarshal(b, &e))
	slices.Sort(names)
	if status != http.StatusNotFound || e.Code != contract.CodeUnknownMethod ||
		!strings.HasSuffix(e.Message, strings.Join(names, ", ")) {
		t.Errorf("an unknown method is answered %d %+v", status, e)
	}
}

func TestWhatIsRefused(t *testing.T) {
	r := newRig(t, sse.Config{MaxMessage: 1000})
	plain := func(q *http.Request) { q.Header.Set("Content-Type", "text/plain") }
	get := func(q *http.Request) { q.Method = http.MethodGet }
	for _, k := range []struct {
		path, body string
		change     func(*http.Request)
		status     int
		field      string
	}{
		{"inputs", `{"input":"x","session":"other"}`, nil, 400, "session"},
		{"inputs", `{"input":"x","foo":1}`, nil, 400, "foo"},
		{"inputs", `{"Input":"x"}`, nil, 400, "Input"},
		{"inputs", `{"input":7}`, nil, 400, "input"},
		{"inputs", `{"input":""}`, nil, 400, "input"},
		{"inputs", `{}`, nil, 400, "input"},
		{"inputs", ``, nil, 400, "input"},
		{"inputs", `{"input":"x"} {}`, nil, 400, "params"},
		{"inputs", `{"input":"x"`, nil, 400, "params"},
		{"inputs", `"x"`, nil, 400, "params"},
		{"inputs", `null`, nil, 400, "input"},
		{"inputs", `{"input":"` + strings.Repeat("x", 1000) + `"}`, nil, 413, "body"},
		{"inputs", `{"input":"x"}`, plain, 415, "Content-Type"},
		{"inputs", ``, get, 405, "method"},
		{"inputs?ui=a.b", `{"input":"x"}`, nil, 400, "ui"},
		{"confirmations", `{"confirmationId":"c","approved":true}`, nil, 400, "hash"},
		{"confirmations", `{"hash":"h","approved":true}`, nil, 400, "confirmationId"},
		{"confirmations", `{"confirmationId":"c","hash":"h"}`, nil, 400, "approved"},
		{"commands", `{"name":""}`, nil, 400, "name"},
		{"/v1/agents/a.b/sessions/s/inputs", `{"input":"x"}`, nil, 400, "agent"},
		{"/v1/agents/a/sessions/s%20/inputs", `{"input":"x"}`, nil, 400, "session"},
		{"/v1/rpc/submitUserInput", `{"input":"x"}`, nil, 400, "agent"},
		{"/v1/rpc/getStatus", `{`, nil, 400, "params"},
		{"/v1/agents/a/sessions/s/events", ``, nil, 405, "method"},
		{"/v1/agents/a/sessions/s/events?html=yes", ``, get, 400, "html"},
		{"/v1/agents/a/sessions/s/events?session=x", ``, get, 400, "session"},
		{"/v1/agents/a/sessions/s/events?after=x", ``, get, 400, "after"},
	} {
		status, b := r.post(t, k.path, k.body, k.change)
		var e contract.Error
		if err := json.Unmarshal(b, &e); err != nil || status != k.status || e.Field != k.field || e.Message == "" {
			t.Errorf("%s %.60s is answered %d %s, want %d and the field %s", k.path, k.body, status, b, k.status, k.field)
		}
	}
	if got := r.Log(); len(got) != 0 {
		t.Errorf("stored %v", got)
	}
	r.Fail(&contract.Error{Code: contract.CodeRateLimited, Message: "wait", RetryAfterMS: 1200})
	if status, b := r.post(t, "inputs", `{"input":"x"}`, nil); status != http.StatusTooManyRequests {
		t.Errorf("answered %d %s", status, b)
	}
	r.As(contract.Principal{})
	if status, b := r.post(t, "inputs", `{"input":"x"}`, nil); status != http.StatusUnauthorized {
		t.Errorf("nobody is answered %d %s", status, b)
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	r := newRig(t, sse.Config{})
	calls := map[string]struct {
		right contract.Right
		body  string
	}{
		"inputs": {contract.Talk, `["x"]`}, "confirmations": {contract.Approve, `["c",true,"h"]`},
		"cancels": {contract.Talk, ``}, "commands": {contract.Talk, `["help"]`},
	}
	for name, right := range transporttest.Methods() {
		calls["/v1/rpc/"+name] = struct {
			right contract.Right
			body  string
		}{right, `{}`}
	}
	get := func(q *http.Request) { q.Method = http.MethodGet }
	for _, has := range contract.AllRights() {
		r.As(transporttest.Principal(has))
		for path, k := range calls {
			if status, b := r.post(t, path, k.body, nil); (status < 300) != (k.right == has) ||
				status >= 300 && status != http.StatusForbidden {
				t.Errorf("who may %s is answered %d %s at %s", has, status, b, path)
			}
		}
		if has != contract.See {
			if status, b := r.post(t, "events", "", get); status != http.StatusForbidden {
				t.Errorf("who may %s is answered %d %s at events", has, status, b)
			}
		}
	}
	p := transporttest.Principal()
	p.Expires = time.Now().Add(-time.Second)
	r.As(p)
	for path, k := range calls {
		if status, b := r.post(t, path, k.body, nil); status != http.StatusUnauthorized {
			t.Errorf("an expired token is answered %d %s at %s", status, b, path)
		}
	}
}

// The answer is sent after the bus's acknowledgement, and an accepted request is stored
// even if the sender has disconnected.
func TestAnInputIsAnsweredAfterItsAcknowledgement(t *testing.T) {
	r := newRig(t, sse.Config{})
	r.Hold(true)
	answered := make(chan int, 1)
	go func() {
		status, _ := r.post(t, "inputs", `{"input":"x"}`, nil)
		answered <- status
	}()
	natstest.Eventually(t, "the input is under way", func() bool { return r.Counters()["http_requests_total"] == 1 })
	gone, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(gone, http.MethodPost, r.URL+"/v1/agents/main/sessions/s/inputs",
		strings.NewReader(`{"input":"y"}`))
	transporttest.Fatal(t, err)
	req.Header.Set("Content-Type", "application/json")
	left := make(chan error, 1)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		left <- err
	}()
	natstest.Eventually(t, "the second one, too", func() bool { return r.Counters()["http_requests_total"] == 2 })
	leave()
	if err := <-left; err == nil {
		t.Error("it was answered before the acknowledgement")
	}
	select {
	case status := <-answered:
		t.Errorf("answered %d before the acknowledgement", status)
	default:
	}
	r.Hold(false)
	if status := <-answered; status != http.StatusAccepted {
		t.Errorf("answered %d", status)
	}
	natstest.Eventually(t, "both are stored", func() bool { return len(r.Log()) == 2 })
}
