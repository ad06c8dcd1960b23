package websocket_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	ws "github.com/coder/websocket"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/websocket"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

func TestConformance(t *testing.T) {
	listenertest.Run(t, func(t *testing.T, b *journal.Journal) listenertest.Subject {
		r := newRig(t, websocket.Config{Session: "conformance"}, b)
		return listenertest.Subject{
			Listener: r.Listener, Tells: true, TakesIDs: true,
			Say: func(ctx context.Context, text, id string) error {
				c, err := dial(ctx, r.url, nil)
				if err != nil {
					return err
				}
				defer func() { _ = c.CloseNow() }()
				body, err := json.Marshal(map[string]string{"text": text, "id": id})
				if err != nil {
					return err
				}
				if err := c.say(ctx, string(body)); err != nil {
					return err
				}
				a, err := c.hear(ctx)
				if err == nil && (a.Error != "" || a.ID != id || a.Sequence == 0) {
					err = fmt.Errorf("answered %+v", a)
				}
				return err
			},
		}
	})
}

var session = subject.Ref{Agent: "main", Session: "s"}

func TestMessagesAreInputsInOrder(t *testing.T) {
	r := listen(t, websocket.Config{})
	c, ctx := r.dial(t), natstest.Context(t)
	for i := range websocket.AtOnce {
		if err := c.say(ctx, fmt.Sprintf(`{"text": "%d", "id": "i%d"}`, i, i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range websocket.AtOnce {
		a, err := c.hear(ctx)
		if err != nil || a.ID != fmt.Sprint("i", i) || a.Error != "" {
			t.Fatalf("answer %d is %+v, %v", i, a, err)
		}
	}
	for i, in := range listenertest.Log(t, r.bus, session) {
		if in.Text != fmt.Sprint(i) || in.Source != "websocket:chat" {
			t.Errorf("input %d is %+v", i, in)
		}
	}
}

func TestWrongMessagesAreAnsweredWithWhatIsWrong(t *testing.T) {
	r := listen(t, websocket.Config{})
	c := r.dial(t)
	for body, want := range map[string]answer{
		`nonsense`:                      {Error: "want a JSON object"},
		`{"id": "x"}`:                   {ID: "x", Error: "text is empty"},
		"{\"text\": \"\xff\"}":          {Error: "UTF-8"},
		`{"text": "x", "session": "y"}`: {Error: "choose_session"},
		`{"text": "x", "id": "` + strings.Repeat("i", 129) + `"}`: {Error: "id has 129 bytes", ID: strings.Repeat("i", 129)},
	} {
		if a := c.must(t, body); a.Sequence != 0 || a.ID != want.ID || a.Retry || !strings.Contains(a.Error, want.Error) {
			t.Errorf("%s is answered %+v, want %+v", body, a, want)
		}
	}
	if a := c.must(t, `{"text": "good"}`); a.ID == "" || a.Sequence == 0 {
		t.Errorf("answered %+v; want the id that was made up", a)
	}
	if in := listenertest.Log(t, r.bus, session); len(in) != 1 {
		t.Errorf("the log holds %+v", in)
	}
}

func TestASessionIsChosenWhereThatIsAllowed(t *testing.T) {
	r := listen(t, websocket.Config{ChooseSession: true, SessionPrefix: "web-"})
	c := r.dial(t)
	if a := c.must(t, `{"text": "x", "session": "one"}`); a.Error != "" {
		t.Errorf("answered %+v", a)
	}
	for _, bad := range []string{
		`{"text": "x"}`, `{"text": "x", "session": "a.b"}`, `{"text": "x", "session": "` + strings.Repeat("s", 61) + `"}`,
	} {
		if a := c.must(t, bad); !strings.Contains(a.Error, "session") {
			t.Errorf("%s is answered %+v", bad, a)
		}
	}
	if in := listenertest.Log(t, r.bus, subject.Ref{Agent: "main", Session: "web-one"}); len(in) != 1 {
		t.Errorf("the log holds %+v", in)
	}
}

func TestWhoMayConnect(t *testing.T) {
	r := listen(t, websocket.Config{Origins: []string{"https://app.example"}})
	header := func(key, value string) func(*ws.DialOptions) {
		return func(o *ws.DialOptions) { o.HTTPHeader.Set(key, value) }
	}
	protocols := func(p ...string) func(*ws.DialOptions) {
		return func(o *ws.DialOptions) { o.HTTPHeader.Del("Authorization"); o.Subprotocols = p }
	}
	for name, c := range map[string]struct {
		change func(*ws.DialOptions)
		query  string
		status int
		field  string
	}{
		"with the token":                  {},
		"with any case of the scheme":     {change: header("Authorization", "bearer "+token)},
		"with another token":              {change: header("Authorization", "Bearer another-token-of-them")},
		"with the token as a subprotocol": {change: protocols(websocket.Protocol, websocket.BearerPrefix+token)},
		"with a wrong token": {
			change: header("Authorization", "Bearer "+token+"x"), status: 401, field: "Authorization",
		},
		"with basic authentication": {
			change: header("Authorization", "Basic "+token), status: 401, field: "Authorization",
		},
		"with a wrong subprotocol": {
			change: protocols(websocket.Protocol, websocket.BearerPrefix+"wrong"), status: 401, field: "Authorization",
		},
		"with nothing":              {change: protocols(), status: 401, field: "Authorization"},
		"with the token in the URL": {query: "?token=" + token, status: 400, field: "query"},
		"from the page that may":    {change: header("Origin", "https://app.example")},
		"from another page": {
			change: header("Origin", "https://evil.example"), status: 403, field: "Origin",
		},
		"from the page without its s": {
			change: header("Origin", "http://app.example"), status: 403, field: "Origin",
		},
		"from a page with a longer name": {
			change: header("Origin", "https://app.example.evil.example"), status: 403, field: "Origin",
		},
		"from a page of our own host": {change: header("Origin", "http://127.0.0.1"), status: 403, field: "Origin"},
		"from a page that hides":      {change: header("Origin", "null"), status: 403, field: "Origin"},
		"to a name of ours":           {change: func(o *ws.DialOptions) { o.Host = "Agent.Example:8090" }},
		"to a name that was bound to us": {
			change: func(o *ws.DialOptions) { o.Host = "evil.example" }, status: 421, field: "Host",
		},
		"to an address that is no loopback's": {
			change: func(o *ws.DialOptions) { o.Host = "192.0.2.1:8090" }, status: 421, field: "Host",
		},
		"to localhost as part of another name": {
			change: func(o *ws.DialOptions) { o.Host = "localhost.evil.example" }, status: 421, field: "Host",
		},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := dial(natstest.Context(t), r.url+c.query, c.change)
			var why *refusal
			switch {
			case err == nil:
				_ = conn.CloseNow()
				if c.status != 0 {
					t.Error("let in")
				}
			case c.status == 0 || !errors.As(err, &why) || why.status != c.status || why.Field != c.field || why.Why == "":
				t.Errorf("answered %v, want %d with the field %s", err, c.status, c.field)
			}
		})
	}
}

func TestPlainRequestsAreToldWhatThisIs(t *testing.T) {
	r := listen(t, websocket.Config{Insecure: true})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(r.url, "ws", "http", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("answered %s", res.Status)
	}
}

func TestMessagesThatAreTooLargeEndTheConnection(t *testing.T) {
	r := listen(t, websocket.Config{MaxMessage: 1000})
	c, ctx := r.dial(t), natstest.Context(t)
	if err := c.say(ctx, `{"text": "`+strings.Repeat("x", 1000)+`"}`); err != nil {
		t.Fatal(err)
	}
	if _, err := c.hear(ctx); ws.CloseStatus(err) != ws.StatusMessageTooBig {
		t.Errorf("heard %v, want 1009", err)
	}
}

func TestBinaryMessagesEndTheConnection(t *testing.T) {
	r := listen(t, websocket.Config{})
	c, ctx := r.dial(t), natstest.Context(t)
	if err := c.Write(ctx, ws.MessageBinary, []byte(`{"text": "x"}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.hear(ctx); ws.CloseStatus(err) != ws.StatusUnsupportedData {
		t.Errorf("heard %v, want 1003", err)
	}
}

func TestTooMuchAtOnceIsRefusedAndTheRestTaken(t *testing.T) {
	r := listen(t, websocket.Config{})
	r.gate.Hold()
	c, ctx := r.dial(t), natstest.Context(t)
	// One is under way, AtOnce wait; each beyond is refused while they do.
	for i := range websocket.AtOnce + 2 {
		if err := c.say(ctx, fmt.Sprintf(`{"text": "x", "id": "i%d"}`, i)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			natstest.Eventually(t, "the first is under way", func() bool { return len(r.gate.Seen()) == 1 })
		}
	}
	a, err := c.hear(ctx)
	if err != nil || !a.Retry || a.ID != fmt.Sprint("i", websocket.AtOnce+1) {
		t.Fatalf("heard %+v, %v; want the last refused, to be tried again", a, err)
	}
	r.gate.Release()
	for i := range websocket.AtOnce + 1 {
		if a, err := c.hear(ctx); err != nil || a.ID != fmt.Sprint("i", i) || a.Error != "" {
			t.Fatalf("heard %+v, %v; want i%d taken", a, err, i)
		}
	}
}

func TestThereAreNoMoreConnectionsThanMayBe(t *testing.T) {
	r := listen(t, websocket.Config{MaxConnections: 2})
	first := r.dial(t)
	r.dial(t)
	var why *refusal
	if _, err := dial(natstest.Context(t), r.url, nil); !errors.As(err, &why) ||
		why.status != http.StatusServiceUnavailable || why.retryAfter == "" {
		t.Fatalf("a third is answered %v", err)
	}
	_ = first.CloseNow()
	natstest.Eventually(t, "there is room again", func() bool {
		c, err := dial(natstest.Context(t), r.url, nil)
		if err == nil {
			_ = c.CloseNow()
		}
		return err == nil
	})
}

func TestAClientThatIsGoneBeforeTheAnswerIsHeard(t *testing.T) {
	r := listen(t, websocket.Config{})
	r.gate.Hold()
	c := r.dial(t)
	if err := c.say(natstest.Context(t), `{"text": "x", "id": "one"}`); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "it is under way", func() bool { return len(r.gate.Seen()) == 1 })
	_ = c.CloseNow()
	r.gate.Release()
	natstest.Eventually(t, "it is in the log", func() bool { return len(listenertest.Log(t, r.bus, session)) == 1 })
	// It comes back and asks by the same id.
	if a := r.dial(t).must(t, `{"text": "x", "id": "one"}`); a.Error != "" || a.Sequence != r.gate.Took()[0].Sequence {
		t.Errorf("answered %+v", a)
	}
}

func TestStoppingSaysGoodbye(t *testing.T) {
	r := listen(t, websocket.Config{})
	r.gate.Hold()
	c, ctx := r.dial(t), natstest.Context(t)
	if err := c.say(ctx, `{"text": "x", "id": "one"}`); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "it is under way", func() bool { return len(r.gate.Seen()) == 1 })
	stopped := make(chan error, 1)
	go func() { stopped <- r.OnStop(ctx) }()
	natstest.Eventually(t, "nobody is let in", func() bool {
		other, err := dial(ctx, r.url, nil)
		if err == nil {
			_ = other.CloseNow()
		}
		return err != nil
	})
	natstest.Eventually(t, "what comes now is refused", func() bool {
		if err := c.say(ctx, `{"text": "y", "id": "two"}`); err != nil {
			t.Fatal(err)
		}
		a, err := c.hear(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return a.ID == "two" && a.Retry
	})
	r.gate.Release()
	if a, err := c.hear(ctx); err != nil || a.ID != "one" || a.Sequence == 0 {
		t.Errorf("heard %+v, %v; want what was taken acknowledged", a, err)
	}
	if _, err := c.hear(ctx); ws.CloseStatus(err) != ws.StatusGoingAway {
		t.Errorf("heard %v, want 1001", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("OnStop: %v", err)
	}
}

func TestARestartOfTheBusInTheMiddle(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	r := newRig(t, websocket.Config{}, natstest.ConnectURL(t, p.URL()))
	r.start(t)
	c := r.dial(t)
	c.must(t, `{"text": "before"}`)
	p.Kill()
	ctx := natstest.Context(t)
	if err := c.say(ctx, `{"text": "x", "id": "one"}`); err != nil {
		t.Fatal(err)
	}
	p.Restart()
	if a, err := c.hear(ctx); err != nil || a.ID != "one" || a.Error != "" {
		t.Errorf("heard %+v, %v", a, err)
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	good := websocket.Config{Session: "s", Tokens: []string{token}}
	for want, change := range map[string]func(*websocket.Config){
		"tokens is empty":                  func(c *websocket.Config) { c.Tokens = nil },
		"insecure and tokens are both set": func(c *websocket.Config) { c.Insecure = true },
		"tokens[0]: want":                  func(c *websocket.Config) { c.Tokens = []string{"short"} },
		"tokens[0]: the":                   func(c *websocket.Config) { c.Tokens = []string{"env:SKANDHA_NO_SUCH_TOKEN"} },
		"session is":                       func(c *websocket.Config) { c.Session = "" },
		"session:":                         func(c *websocket.Config) { c.Session = "a b" },
		"session_prefix":                   func(c *websocket.Config) { c.SessionPrefix = "x" },
		"origins":                          func(c *websocket.Config) { c.Origins = []string{"https://*.example"} },
		"origins:":                         func(c *websocket.Config) { c.Origins = []string{"app.example"} },
		"max_message":                      func(c *websocket.Config) { c.MaxMessage = 1 },
		"max_connections":                  func(c *websocket.Config) { c.MaxConnections = -1 },
		"timeout":                          func(c *websocket.Config) { c.Timeout = time.Hour },
		"agent or mode":                    func(c *websocket.Config) { c.Mode = "later" },
	} {
		c := good
		change(&c)
		if _, err := websocket.New("chat", c, websocket.Deps{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", c, err, want)
		}
	}
}
