package rpc_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"testing"

	ws "github.com/coder/websocket"

	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/pipenet"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/rpc"
)

// rig is a handler with a backend in memory and a client's socket.
type rig struct {
	*transporttest.Backend
	*rpc.Handler
	*transporttest.Server
}

func newRig(t *testing.T, cfg rpc.Config) *rig {
	t.Helper()
	transporttest.Leaks(t)
	b := transporttest.New()
	d := rpc.New(cfg, b, natstest.Logger(t))
	return &rig{b, d, transporttest.Serve(t, d, 0)}
}

// client is a UI that only knows JSON-RPC.
type client struct {
	t *testing.T
	*ws.Conn
	ctx   context.Context //nolint:containedctx // of the test
	heard []message       // notifications that came while an answer was waited for
	// check, if set, is called with every message.
	check func(m message, body []byte)
}

// message is any message from the bridge.
type message struct {
	JSONRPC string           `json:"jsonrpc"`
	ID      *json.RawMessage `json:"id"`
	Method  string           `json:"method"`
	Params  json.RawMessage  `json:"params"`
	Result  json.RawMessage  `json:"result"`
	Error   *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    *contract.Error `json:"data"`
	} `json:"error"`
}

func (m message) is(id string) bool { return m.ID != nil && string(*m.ID) == id }

func (m message) params(t *testing.T) (p struct {
	ID      string        `json:"id"`
	Agent   string        `json:"agent"`
	Session string        `json:"session"`
	Content string        `json:"content"`
	After   string        `json:"after"`
	Code    contract.Code `json:"code"`
},
) {
	t.Helper()
	if err := json.Unmarshal(m.Params, &p); err != nil {
		t.Fatalf("params %s: %v", m.Params, err)
	}
	return p
}

// piped connects to a handler as a principal over pipes, in a bubble of testing/synctest:
// there no time passes while a goroutine works, however busy the machine is.
func piped(t *testing.T, d *rpc.Handler, p contract.Principal, query string) *client {
	t.Helper()
	over := pipenet.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.ServeHTTP(w, r.WithContext(contract.WithPrincipal(r.Context(), p)))
	}))
	ctx := natstest.Context(t)
	c, _, err := ws.Dial(ctx, "ws://bridge.invalid"+rpc.Path+query, &ws.DialOptions{HTTPClient: over}) //nolint:bodyclose // of an upgrade it is nil
	transporttest.Fatal(t, err)
	t.Cleanup(func() { _ = c.CloseNow() })
	return &client{t: t, Conn: c, ctx: ctx}
}

func (r *rig) dial(t *testing.T, query string) *client {
	t.Helper()
	c, err := connect(natstest.Context(t), r.WS()+rpc.Path+query, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.CloseNow() })
	return &client{t: t, Conn: c, ctx: natstest.Context(t)}
}

// connect connects; with a small buffer it has an effect sooner that the client does not
// read.
func connect(ctx context.Context, url string, buffer int) (*ws.Conn, error) {
	o := &ws.DialOptions{}
	if buffer > 0 {
		o.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, network, addr)
			if err == nil {
				err = c.(*net.TCPConn).SetReadBuffer(buffer)
			}
			return c, err
		}}}
	}
	c, _, err := ws.Dial(ctx, url, o) //nolint:bodyclose // of an upgrade it is nil
	if err == nil {
		c.SetReadLimit(16 << 20)
	}
	return c, err
}

func (c *client) send(text string) {
	c.t.Helper()
	if err := c.Write(c.ctx, ws.MessageText, []byte(text)); err != nil {
		c.t.Fatalf("sending %.80s: %v", text, err)
	}
}

func (c *client) raw() []byte {
	c.t.Helper()
	_, b, err := c.Read(c.ctx)
	if err != nil {
		c.t.Fatalf("reading: %v", err)
	}
	return b
}

func (c *client) message() message {
	c.t.Helper()
	b := c.raw()
	var m message
	if err := json.Unmarshal(b, &m); err != nil || m.JSONRPC != "2.0" {
		c.t.Fatalf("heard %s: %v", b, err)
	}
	if c.check != nil {
		c.check(m, b)
	}
	return m
}

// hear waits for a notification.
func (c *client) hear(method string) message {
	c.t.Helper()
	for {
		var m message
		if len(c.heard) > 0 {
			m, c.heard = c.heard[0], c.heard[1:]
		} else {
			m = c.message()
		}
		if m.Method == method {
			return m
		}
	}
}

// ask sends a request and waits for its answer.
func (c *client) ask(id, method, params string) message {
	c.t.Helper()
	if params != "" {
		params = `,"params":` + params
	}
	c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"` + params + `}`)
	return c.answer(id)
}

func (c *client) answer(id string) message {
	c.t.Helper()
	for {
		m := c.message()
		if m.is(id) {
			return m
		}
		c.heard = append(c.heard, m)
	}
}

// must calls ask and requires a result.
func (c *client) must(id, method, params string, into any) {
	c.t.Helper()
	m := c.ask(id, method, params)
	if m.Error != nil {
		c.t.Fatalf("%s %s is refused: %+v %+v", method, params, *m.Error, m.Error.Data)
	}
	if into != nil {
		if err := json.Unmarshal(m.Result, into); err != nil {
			c.t.Fatalf("%s answered %s: %v", method, m.Result, err)
		}
	}
}

// ended reads until the connection ends, and returns how it ended and the last message.
func (c *client) ended() (how ws.CloseError, last message) {
	c.t.Helper()
	for {
		_, b, err := c.Read(c.ctx)
		if err != nil {
			how.Code = ws.CloseStatus(err)
			how.Reason = reason(err)
			return how, last
		}
		last = message{}
		if err := json.Unmarshal(b, &last); err != nil {
			c.t.Fatal(err)
		}
		if c.check != nil {
			c.check(last, b)
		}
	}
}
