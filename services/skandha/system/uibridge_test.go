package system_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge"
	"skandha.dev/services/uibridge/access"
	"skandha.dev/services/uibridge/contract"
)

func startWithUI(t *testing.T, cfg system.Config) *system.System {
	t.Helper()
	cfg.Sync, cfg.Provider, cfg.Log = "relaxed", "offline", natstest.Logger(t)
	if cfg.Data == "" {
		cfg.Data = t.TempDir()
	}
	s, err := system.Start(natstest.Context(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// surfer is a browser that was let in by a one-time link.
type surfer struct {
	t    *testing.T
	page string // without the slash
	http *http.Client
}

func letIn(t *testing.T, link uibridge.Link) *surfer {
	t.Helper()
	p := &surfer{t, strings.TrimSuffix(link.Page, "/"), transporttest.Browser(t, nil)}
	_, code, _ := strings.Cut(link.URL, "#code=")
	if status, body := p.post("/v1/auth/code", map[string]any{"code": code}); status != http.StatusOK {
		t.Fatalf("the link is answered %d %s", status, body)
	}
	return p
}

func (p *surfer) do(ctx context.Context, method, path string, body any) *http.Response {
	p.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	q, err := http.NewRequestWithContext(ctx, method, p.page+path, strings.NewReader(string(b)))
	if err != nil {
		p.t.Fatal(err)
	}
	q.Header.Set("Origin", p.page)
	q.Header.Set("Content-Type", "application/json")
	res, err := p.http.Do(q)
	if err != nil {
		p.t.Fatal(err)
	}
	return res
}

func (p *surfer) post(path string, body any) (int, string) {
	p.t.Helper()
	res := p.do(natstest.Context(p.t), http.MethodPost, path, body)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// events are the session's, as SSE.
func (p *surfer) events(session string) *bufio.Scanner {
	p.t.Helper()
	// As long as the test looks on, but not for ever.
	ctx, cancel := context.WithTimeout(context.Background(), 5*natstest.Patience)
	p.t.Cleanup(cancel)
	res := p.do(ctx, http.MethodGet, "/v1/agents/main/sessions/"+session+"/events?after=0", nil)
	p.t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		p.t.Fatalf("the events are answered %d", res.StatusCode)
	}
	return bufio.NewScanner(res.Body)
}

// await reads events until one of the name has the text in it; "" if they end before.
func await(events *bufio.Scanner, name, text string) string {
	current := ""
	for events.Scan() {
		if e, ok := strings.CutPrefix(events.Text(), "event: "); ok {
			current = e
		}
		if data, ok := strings.CutPrefix(events.Text(), "data: "); ok && current == name && strings.Contains(data, text) {
			return data
		}
	}
	return ""
}

// What a newcomer does: opens the page by the link, asks, and is answered; everything
// of the system is distinguished by its principal.
func TestThePageOfASystem(t *testing.T) {
	s := startWithUI(t, system.Config{UI: &system.UI{Listen: "127.0.0.1:0"}})
	link, err := s.UILink(natstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(s.UITokenFile()); err != nil || strings.TrimSpace(string(kept)) != s.UIToken() ||
		s.UIToken() == "" {
		t.Errorf("the token that was made is not the one that is kept: %v", err)
	}
	p := letIn(t, link)
	events := p.events("s")
	status, body := p.post("/v1/agents/main/sessions/s/inputs", map[string]any{"input": "what is 2+2?"})
	var got contract.Receipt
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusAccepted || got.Sequence == 0 {
		t.Fatalf("an input is answered %d %s", status, body)
	}
	if await(events, "onInput", `"writer":"ui-owner"`) == "" || await(events, "onNewMessage", "4") == "" ||
		await(events, "onTurnEnd", "") == "" {
		t.Error("the events do not tell the turn")
	}
	// All other transports use the same backend.
	for path, body := range map[string]any{
		"/v1/rpc/listSessions": map[string]any{},
		"/v1/rpc/getStatus":    map[string]any{},
		"/v1/chat/completions": map[string]any{
			"model": "main", "messages": []any{map[string]any{"role": "user", "content": "what is 3+3?"}},
		},
		"/v1/rpc/listArtifacts": map[string]any{"agent": "main", "session": "s"},
		"/v1/agui/main": map[string]any{
			"threadId": "t", "runId": "r", "state": nil, "tools": []any{}, "context": []any{}, "forwardedProps": nil,
			"messages": []any{map[string]any{"id": "1", "role": "user", "content": "what is 4+4?"}},
		},
	} {
		if status, got := p.post(path, body); status != http.StatusOK {
			t.Errorf("%s is answered %d %s", path, status, got)
		}
	}
	ws := p.dial("/v1/ws?agent=main&session=s")
	if _, first, err := ws.Read(natstest.Context(t)); err != nil || !strings.Contains(string(first), "onAttached") {
		t.Errorf("the WebSocket begins with %s, %v", first, err)
	}
	b := natstest.Join(t, s, "looker")
	for m, err := range b.Messages(natstest.Context(t), subject.Ref{Agent: "main", Session: "s"}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if c, err := subject.ParseCause(m.Subject); err == nil && c.Writer != "ui-owner" {
			t.Errorf("the log says that %s spoke", c.Writer)
		}
	}
	if l, err := uibridge.AskLink(natstest.Context(t), b); err != nil || l.Page != link.Page {
		t.Errorf("over the bus the link is %+v, %v", l, err)
	}
	// The end: streams get the reason.
	ended := make(chan string, 2)
	go func() { ended <- "events " + await(events, "onDropped", "") }()
	go func() {
		for {
			if _, _, err := ws.Read(context.Background()); err != nil {
				ended <- fmt.Sprint("websocket ", websocket.CloseStatus(err))
				return
			}
		}
	}()
	s.Stop()
	for range 2 {
		if got := <-ended; !strings.Contains(got, `"unavailable"`) && got != "websocket StatusGoingAway" {
			t.Errorf("it ended: %s", got)
		}
	}
}

func (p *surfer) dial(path string) *websocket.Conn {
	p.t.Helper()
	ws, res, err := websocket.Dial(natstest.Context(p.t), p.page+path,
		&websocket.DialOptions{HTTPClient: p.http, HTTPHeader: http.Header{"Origin": {p.page}}})
	if err != nil {
		p.t.Fatal(err)
	}
	if res.Body != nil {
		_ = res.Body.Close() // it is the connection's
	}
	p.t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

func TestASystemWithoutAPageSaysSo(t *testing.T) {
	s := startWithUI(t, system.Config{})
	if _, err := s.UILink(natstest.Context(t)); err == nil || !strings.Contains(err.Error(), "--ui") {
		t.Errorf("UILink: %v", err)
	}
	if s.UIAddr() != "" || s.UIToken() != "" || s.UIPortTaken() {
		t.Error("it has a page")
	}
}

// Two systems of one person run side by side; but a port that was asked for is that port.
func TestThePageTakesAFreePortUnlessOneIsAskedFor(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", uibridge.DefaultListen)
	if err == nil { // else somebody else has it
		defer l.Close()
	}
	s := startWithUI(t, system.Config{UI: &system.UI{}})
	if s.UIAddr() == uibridge.DefaultListen { // who had it has left meanwhile, and this one has it now
		s = startWithUI(t, system.Config{UI: &system.UI{}})
	}
	if !s.UIPortTaken() || s.UIAddr() == uibridge.DefaultListen || s.UIAddr() == "" {
		t.Errorf("it listens on %q", s.UIAddr())
	}
	for _, cfg := range []system.Config{
		{UI: &system.UI{Listen: s.UIAddr()}},
		{UI: &system.UI{}, ConfigFile: write(t, "ui: {listen: '"+s.UIAddr()+"'}\n")},
	} {
		cfg.Data, cfg.Sync, cfg.Provider, cfg.Log = t.TempDir(), "relaxed", "offline", natstest.Logger(t)
		second, err := system.Start(natstest.Context(t), cfg)
		if err == nil {
			second.Stop()
		}
		if err == nil || !strings.Contains(err.Error(), "ui.listen") {
			t.Errorf("Start: %v", err)
		}
	}
}

func TestWhoMayUseThePageStandsInTheConfiguration(t *testing.T) {
	t.Setenv("SKANDHA_TEST_LOOKER", "looker-0123456789")
	file := write(t,
		"agents: {main: {}}\nui:\n  tokens: [{name: looker, token: 'env:SKANDHA_TEST_LOOKER', rights: [see]}]\n")
	s := startWithUI(t, system.Config{UI: &system.UI{Listen: "127.0.0.1:0"}, ConfigFile: file})
	for path, want := range map[string]int{
		"/v1/rpc/listSessions": http.StatusOK, "/v1/agents/main/sessions/s/inputs": http.StatusForbidden,
	} {
		q, err := http.NewRequestWithContext(natstest.Context(t), http.MethodPost, "http://"+s.UIAddr()+path,
			strings.NewReader(map[bool]string{true: `{}`, false: `{"input": "x"}`}[want == http.StatusOK]))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer looker-0123456789")
		q.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s is answered %d, want %d", path, res.StatusCode, want)
		}
	}
	bad := write(t, "ui: {tokens: [{name: owner, token: x}]}\n")
	if second, err := system.Start(natstest.Context(t), system.Config{
		Data: t.TempDir(), Sync: "relaxed", Provider: "offline", Log: natstest.Logger(t), UI: &system.UI{}, ConfigFile: bad,
	}); err == nil || !strings.Contains(err.Error(), "ui.tokens[0].name") {
		if err == nil {
			second.Stop()
		}
		t.Errorf("Start: %v", err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(s.UITokenFile()), access.TokenFile)); err != nil {
		t.Errorf("beside configured tokens there is no owner's: %v", err)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
