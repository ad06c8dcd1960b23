package mcp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/test/turntest"
	"skandha.dev/services/uibridge/compat/mcp"
	"skandha.dev/services/uibridge/contract"
)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

func TestWrongRequestsAreRefused(t *testing.T) {
	b := serve(t, turntest.Start(t), mcp.Config{MaxMessage: 128 << 10})
	s := b.connect(t, earlier, sdk.ClientOptions{})
	inSession := map[string]string{"Mcp-Session-Id": s.ID()}
	newEra := map[string]string{"Mcp-Protocol-Version": later, "Mcp-Method": "tools/list"}
	meta := func(version string) string {
		return `"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + version +
			`","io.modelcontextprotocol/clientCapabilities":{}}}`
	}
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	batch := "[" + strings.Repeat(ping+",", 16) + ping + "]"
	for _, c := range []struct {
		name, body string
		headers    map[string]string
		status     int
	}{
		{"a huge body", `{"jsonrpc":"2.0","x":"` + strings.Repeat("x", 128<<10) + `"}`, inSession, 413},
		{"no JSON", `{"jsonrpc`, inSession, 400},
		{"nothing", ``, inSession, 400},
		{"deep JSON", strings.Repeat("[", 20_000), inSession, 400},
		{"deep parameters", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":` +
			strings.Repeat(`{"a":`, 12_000) + "1" + strings.Repeat("}", 12_000) + "}", newEra, 400},
		{"an unknown method", `{"jsonrpc":"2.0","id":1,"method":"no/such"}`, inSession, 400},
		{"a task in the earlier era", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{}}`, inSession, 400},
		{"an id that is an object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, inSession, 400},
		{"no session", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, nil, 400},
		{"an unknown session", ping, map[string]string{"Mcp-Session-Id": "nobody"}, 404},
		{"another type", initialize, map[string]string{"Content-Type": "text/plain"}, 415},
		{"no stream accepted", initialize, map[string]string{"Accept": "application/json"}, 400},
		{"a version of nobody's", initialize, map[string]string{"Mcp-Protocol-Version": "2020-01-01"}, 400},
		{"a large batch", batch, inSession, 400},
		{"another method in the header", `{"jsonrpc":"2.0","id":1,"method":"ping",` + meta(later) + `}`, newEra, 400},
		{
			"another version in the body", `{"jsonrpc":"2.0","id":1,"method":"tools/list",` + meta("2026-07-29") + `}`, newEra,
			400,
		},
		{"no version in the header", `{"jsonrpc":"2.0","id":1,"method":"tools/list",` + meta(later) + `}`, nil, 400},
		{"no version in the body", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, newEra, 400},
	} {
		if got := b.post(t, c.body, c.headers); got.status != c.status {
			t.Errorf("%s is answered %d %.300s, want %d", c.name, got.status, got.body, c.status)
		}
	}
	for method, status := range map[string]int{http.MethodPut: 405, http.MethodGet: 400, http.MethodDelete: 400} {
		r, err := http.NewRequestWithContext(natstest.Context(t), method, b.URL+mcp.Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		if got := do(t, r); got.status != status {
			t.Errorf("%s is answered %d, want %d", method, got.status, status)
		}
	}
	// Nothing of this has an effect
	if got := call(t, s, "ask", map[string]any{"text": "hello"}); got.text != "echo: hello" {
		t.Errorf("got %+v", got)
	}
}

// Handles and state that no bridge has made name no turn; what is said of them is always the same.
func TestForeignHandles(t *testing.T) {
	b := start(t)
	made := b.begin(t, "hello", "real")
	b.until(t, made.ID, "completed")
	parts := strings.Split(made.ID, ".")
	want := ""
	for _, id := range []string{
		"", "x", "../../etc", strings.Repeat("a", 10_000), "main.real.1.x", "main.nothing.1.x",
		"nobody.real." + parts[2] + "." + parts[3],
		"main.real.18446744073709551615." + parts[3], "main.real." + parts[2] + ".mcp-other", made.ID + "x",
		"main.other." + parts[2] + "." + parts[3], strings.ToUpper(made.ID),
	} {
		got := b.request(t, "tasks/get", id, map[string]any{"taskId": id}, tasking)
		if got.Error == nil || got.Error.Code != -32602 || want != "" && got.Error.Message != want {
			t.Errorf("%.40q is answered %s", id, got.body)
			continue
		}
		want = got.Error.Message
		state := b.request(t, "tools/call", "ask", map[string]any{
			"name": "ask", "arguments": map[string]any{"text": "x"}, "requestState": id + "?",
		}, plain)
		if !strings.Contains(string(state.Result), `"isError":true`) {
			t.Errorf("the state %.40q is answered %s", id, state.body)
		}
	}
}

// The sessions of a principal are limited, and end when they are not used.
func TestSessionsAreLimited(t *testing.T) {
	b := serve(t, turntest.Start(t), mcp.Config{Sessions: 3, Idle: 300 * time.Millisecond})
	for range 3 {
		if got := b.post(t, initialize, nil); got.status != 200 || got.header.Get("Mcp-Session-Id") == "" {
			t.Fatalf("got %d %s", got.status, got.body)
		}
	}
	if got := b.post(t, initialize, nil); got.status != 429 || got.header.Get("Retry-After") == "" {
		t.Errorf("one more is answered %d %s", got.status, got.body)
	}
	b.As(bob())
	if got := b.post(t, initialize, nil); got.status != 200 {
		t.Errorf("somebody else is answered %d %s", got.status, got.body)
	}
	b.As(transporttest.Principal())
	natstest.Eventually(t, "unused sessions end", func() bool { return b.handler.Counters()["mcp_sessions"] == 0 })
	if got := b.post(t, initialize, nil); got.status != 200 {
		t.Errorf("then: %d %s", got.status, got.body)
	}
}

// A stream in which nothing happens is kept alive, and ends with the bridge.
func TestAnIdleStreamIsKeptAlive(t *testing.T) {
	b := serve(t, turntest.Start(t), mcp.Config{KeepAlive: time.Millisecond})
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": "ask", "arguments": map[string]any{"text": "hang", "session": "idle"},
		"_meta": map[string]any{sdk.MetaKeyProtocolVersion: later, sdk.MetaKeyClientCapabilities: map[string]any{}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(natstest.Context(t), http.MethodPost, b.URL+mcp.Path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": later, "Mcp-Method": "tools/call", "Mcp-Name": "ask",
	} {
		r.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	buf := make([]byte, 64)
	n, err := res.Body.Read(buf)
	if err != nil || !strings.HasPrefix(string(buf[:n]), ": still here") {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	other := b.connect(t, later, sdk.ClientOptions{})
	natstest.Eventually(t, "the turn runs", func() bool {
		return strings.Contains(string(call(t, other, "read_session", map[string]any{"session": "idle"}).raw), `"running"`)
	})
	b.End(contract.ErrGoingAway)
	if _, err := io.Copy(io.Discard, res.Body); err != nil && !strings.Contains(err.Error(), "EOF") {
		t.Error(err)
	}
	// The bridge has ended, and not the turn
	if _, err := b.backend.Cancel(natstest.Context(t), transporttest.Principal(),
		contract.Cancellation{Ref: transporttest.Main("idle")}); err != nil {
		t.Errorf("the turn runs no more: %v", err)
	}
}

// What a client sends never makes the handler fail.
func FuzzMessages(f *testing.F) {
	h := mcp.New(mcp.Config{Lag: time.Millisecond}, mcp.Deps{Backend: transporttest.New(), Log: natstest.Logger(f)})
	b := &bridge{Server: transporttest.Serve(f, h, 0), handler: h}
	for _, seed := range []string{
		initialize, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":null}}`, `[]`, `null`, `{"method":1}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"skandha://sessions/a/b","_meta":` +
			`{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
	} {
		f.Add(seed, later, "resources/read", "skandha://sessions/a/b")
		f.Add(seed, "", "", "")
	}
	f.Fuzz(func(t *testing.T, body, version, method, name string) {
		for _, h := range []string{version, method, name} {
			if strings.ContainsFunc(h, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Skip()
			}
		}
		got := b.post(t, body, map[string]string{"Mcp-Protocol-Version": version, "Mcp-Method": method, "Mcp-Name": name})
		if got.status >= 500 {
			t.Fatal(fmt.Sprint(got.status), got.body)
		}
	})
}
