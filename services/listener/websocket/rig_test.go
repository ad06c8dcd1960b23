package websocket_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	ws "github.com/coder/websocket"

	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/emitter"
	"skandha.dev/services/listener/web"
	"skandha.dev/services/listener/websocket"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

const token = "the-token-of-the-tests"

type answer struct {
	ID       string
	Sequence uint64
	Error    string
	Retry    bool
}

// client is a connection to a listener.
type client struct{ *ws.Conn }

// refusal is why a connection was not let in.
type refusal struct {
	status     int
	retryAfter string
	Field      string
	Why        string `json:"error"`
}

func (r *refusal) Error() string { return fmt.Sprint(r.status, " ", r.Field, ": ", r.Why) }

func dial(ctx context.Context, url string, change func(*ws.DialOptions)) (*client, error) {
	opts := &ws.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}}
	if change != nil {
		change(opts)
	}
	c, res, err := ws.Dial(ctx, url, opts)
	if res == nil {
		return nil, err
	}
	if res.Body != nil {
		defer func() { _ = res.Body.Close() }()
	}
	if err != nil {
		r := &refusal{status: res.StatusCode, retryAfter: res.Header.Get("Retry-After")}
		return nil, errors.Join(r, json.NewDecoder(res.Body).Decode(r))
	}
	for key, values := range res.Header {
		if strings.Contains(fmt.Sprint(values), token) {
			return nil, fmt.Errorf("the header %s of the answer has the token: %v", key, values)
		}
	}
	return &client{c}, nil
}

func (c *client) say(ctx context.Context, body string) error {
	return c.Write(ctx, ws.MessageText, []byte(body))
}

func (c *client) hear(ctx context.Context) (a answer, err error) {
	_, b, err := c.Read(ctx)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(b, &a)
}

func (c *client) must(t *testing.T, body string) answer {
	t.Helper()
	ctx := natstest.Context(t)
	if err := c.say(ctx, body); err != nil {
		t.Fatal(err)
	}
	a, err := c.hear(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

type rig struct {
	*websocket.Listener
	url   string
	bus   *journal.Journal
	gate  *listenertest.Gate
	stats *websocket.Stats
}

func newRig(t *testing.T, cfg websocket.Config, b *journal.Journal) *rig {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Minute // as long as it may be
	}
	if cfg.Session == "" && !cfg.ChooseSession {
		cfg.Session = "s"
	}
	if cfg.Tokens == nil && !cfg.Insecure {
		cfg.Tokens = []string{"another-token-of-them", token}
	}
	r := &rig{bus: b, stats: &websocket.Stats{}}
	var err error
	r.Listener, err = websocket.New("chat", cfg,
		websocket.Deps{Logger: natstest.Logger(t), Stats: r.stats, PingEvery: time.Hour}) // see bubble_test.go
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(r.Path(), r)
	srv := httptest.NewServer(web.Config{Hosts: []string{"agent.example"}}.Guard(mux))
	t.Cleanup(srv.Close)
	r.url = strings.Replace(srv.URL, "http", "ws", 1) + r.Path()
	r.gate = listenertest.NewGate(emitter.New(b.Bus, "chat", &emitter.Stats{}, natstest.Logger(t)))
	return r
}

func listen(t *testing.T, cfg websocket.Config) *rig {
	t.Helper()
	r := newRig(t, cfg, natstest.Connect(t, natstest.Start(t)))
	r.start(t)
	return r
}

func (r *rig) start(t *testing.T) {
	t.Helper()
	if err := r.OnStart(natstest.Context(t), r.gate); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.OnStop(ctx)
	})
}

func (r *rig) dial(t *testing.T) *client {
	t.Helper()
	c, err := dial(natstest.Context(t), r.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.CloseNow() })
	return c
}
