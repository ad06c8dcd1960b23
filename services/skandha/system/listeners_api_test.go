package system_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge"
)

// The tokens of accessConfig.
const (
	botToken = "bot-0123456789abcdef"
	oldToken = "old-0123456789abcdef"
)

const accessConfig = `
agents: {main: {}}
ui:
  origins: [https://app.example.org]
  tokens:
    - {name: bot, token: ` + botToken + `}
    - {name: old, token: ` + oldToken + `, expires: 2020-01-01T00:00:00Z}
`

// logText is a log that can be read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *logText) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *logText) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// visitor is a client of a system's HTTP endpoints.
type visitor struct {
	headers []string     // "Name: value"; Host is the host
	browser *http.Client // nil: a program
}

func (v visitor) header() (host string, h http.Header) {
	h = http.Header{}
	for _, line := range v.headers {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			host = value
			continue
		}
		h.Set(name, value)
	}
	return host, h
}

func (v visitor) client() *http.Client { return cmp.Or(v.browser, http.DefaultClient) }

// post asks for the sessions.
func (v visitor) post(t *testing.T, page string) (status int, body string) {
	t.Helper()
	q, err := http.NewRequestWithContext(natstest.Context(t), http.MethodPost, page+"v1/rpc/listSessions",
		strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	q.Host, q.Header = v.header()
	q.Header.Set("Content-Type", "application/json")
	res, err := v.client().Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// connect opens a WebSocket.
func (v visitor) connect(t *testing.T, page string) (status int) {
	t.Helper()
	host, header := v.header()
	ws, res, err := websocket.Dial(natstest.Context(t), page+"v1/ws?agent=main&session=s", &websocket.DialOptions{
		HTTPClient: v.client(), Host: host, HTTPHeader: header,
	})
	if ws != nil {
		defer func() { _ = ws.CloseNow() }()
	}
	if res == nil {
		t.Fatal(err)
	}
	if res.Body != nil {
		_ = res.Body.Close()
	}
	return res.StatusCode
}

// Which clients of a whole system are admitted and which are not; before and
// after secrets were replaced. And nothing of that is in the log, however much is logged.
func TestTheFrontDoorOfASystem(t *testing.T) {
	var log logText
	file, data := write(t, accessConfig), t.TempDir()
	begin := func(listen string) *system.System {
		s, err := system.Start(natstest.Context(t), system.Config{
			Data: data, ConfigFile: file, Sync: "relaxed", Provider: "offline", UI: &system.UI{Listen: listen},
			Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		return s
	}
	s := begin(fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))) // it is there again after a restart
	link, err := uibridge.AskLink(natstest.Context(t), natstest.Join(t, s, "asker"))
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(link.URL, "#code=")
	browser := letIn(t, link).http
	page, self := link.Page, strings.TrimSuffix(link.Page, "/")
	_, port, err := net.SplitHostPort(s.UIAddr())
	if err != nil {
		t.Fatal(err)
	}
	owner, bot := "Authorization: Bearer "+s.UIToken(), "Authorization: Bearer "+botToken
	for about, c := range map[string]struct {
		visitor
		posted, connected int // the status of its answer
	}{
		"the owner's token":              {visitor{headers: []string{owner}}, 200, 101},
		"another's token":                {visitor{headers: []string{bot}}, 200, 101},
		"a browser at the page":          {visitor{[]string{"Origin: " + self}, browser}, 200, 101},
		"a configured page with a token": {visitor{headers: []string{bot, "Origin: https://app.example.org"}}, 200, 101},
		"nobody":                         {visitor{}, 401, 401},
		"a wrong token": {
			visitor{headers: []string{"Authorization: Bearer wrong-0123456789abcdef"}}, 401, 401,
		},
		"an expired token":                  {visitor{headers: []string{"Authorization: Bearer " + oldToken}}, 401, 401},
		"another page, in a browser let in": {visitor{[]string{"Origin: https://evil.example"}, browser}, 403, 403},
		"a configured page, in such a one":  {visitor{[]string{"Origin: https://app.example.org"}, browser}, 403, 403},
		"a page at another port, likewise":  {visitor{[]string{"Origin: http://127.0.0.1:1"}, browser}, 403, 403},
		"a sandboxed frame, likewise":       {visitor{[]string{"Origin: null"}, browser}, 403, 403},
		"no page at all, likewise":          {visitor{browser: browser}, 403, 403},
		"a name that was resolved to here": {
			visitor{[]string{"Host: evil.example:" + port, "Origin: http://evil.example:" + port}, browser}, 421, 421,
		},
		"such a name, with a token":           {visitor{headers: []string{"Host: evil.example:" + port, owner}}, 421, 421},
		"a right token beside a wrong origin": {visitor{headers: []string{owner, "Origin: https://evil.example"}}, 403, 403},
	} {
		if status, body := c.post(t, page); status != c.posted {
			t.Errorf("%s posts and is answered %d %s, want %d", about, status, body, c.posted)
		}
		if status := c.connect(t, page); status != c.connected {
			t.Errorf("%s connects and is answered %d, want %d", about, status, c.connected)
		}
	}

	// A restart keeps who was let in; what was revoked is refused after it.
	token, addr := s.UIToken(), s.UIAddr()
	end := func() {
		s.Stop()
		browser.CloseIdleConnections()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections() // to the one that is gone
	}
	end()
	if err := os.WriteFile(file, []byte("agents: {main: {}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = begin(addr)
	atPage := visitor{[]string{"Origin: " + self}, browser}
	for about, c := range map[string]struct {
		visitor
		want int
	}{
		"the owner": {visitor{headers: []string{owner}}, 200}, "the owner's browser": {atPage, 200},
		"whose token was removed": {visitor{headers: []string{bot}}, 401},
	} {
		if status, _ := c.post(t, page); status != c.want {
			t.Errorf("after a restart %s is answered %d, want %d", about, status, c.want)
		}
	}
	end()
	if err := os.Remove(filepath.Join(data, "ui-token")); err != nil {
		t.Fatal(err)
	}
	s = begin(addr)
	for about, v := range map[string]visitor{
		"the owner's old token": {headers: []string{owner}}, "a browser that it let in": atPage,
	} {
		if status, _ := v.post(t, page); status != 401 {
			t.Errorf("after its replacement %s is answered %d", about, status)
		}
	}
	join, err := url.Parse(s.Join())
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	cookie := browser.Jar.Cookies(at)[0].Value
	for i, secret := range []string{
		token, s.UIToken(), botToken, oldToken, "wrong-0123456789abcdef", code, cookie, join.User.Username(),
	} {
		if secret == "" || strings.Contains(log.String(), secret) {
			t.Errorf("secret %d is empty or in the log", i)
		}
	}
	if n := strings.Count(log.String(), "request refused"); n < 20 {
		t.Errorf("the log tells of %d refusals alone:\n%s", n, log.String())
	}
}
