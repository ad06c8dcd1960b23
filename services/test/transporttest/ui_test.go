package transporttest_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	ws "github.com/coder/websocket"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/rpc"
	"skandha.dev/services/uibridge/sse"
)

// note is a notification to a UI.
type note struct {
	id, method string
	params     []byte
}

// ui is a connection that gets notifications.
type ui interface {
	// next returns the next notification. At the end the error says how it was.
	next() (note, error)
	say(text string) error
	Close() error
}

// transport connects by one of the two protocols. With a small buffer it has an effect
// sooner that the UI does not read.
type transport func(ctx context.Context, url string, ref subject.Ref, after string, buffer int) (ui, error)

var transports = map[string]transport{"WebSocket": overWebSocket, "SSE": overSSE}

// client has its own connections, and none is left when they are closed.
func client(buffer int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, network, addr)
			if err == nil && buffer > 0 {
				err = c.(*net.TCPConn).SetReadBuffer(buffer)
			}
			return c, err
		},
	}}
}

type webSocket struct {
	ctx  context.Context //nolint:containedctx // of the connection
	conn *ws.Conn
}

func overWebSocket(ctx context.Context, url string, ref subject.Ref, after string, buffer int) (ui, error) {
	url = fmt.Sprintf("%s%s?agent=%s&session=%s&after=%s", strings.Replace(url, "http", "ws", 1), rpc.Path, ref.Agent,
		ref.Session, after)
	c, _, err := ws.Dial(ctx, url, &ws.DialOptions{HTTPClient: client(buffer)}) //nolint:bodyclose // of an upgrade it is nil
	if err != nil {
		return nil, err
	}
	c.SetReadLimit(1 << 20)
	return &webSocket{ctx, c}, nil
}

func (w *webSocket) next() (note, error) {
	for {
		_, b, err := w.conn.Read(w.ctx)
		if err != nil {
			return note{}, err
		}
		// Not decoded: there are many of them, and the processors are few.
		rest, prefixed := bytes.CutPrefix(b, []byte(`{"jsonrpc":"2.0","method":"`))
		method, params, ok := bytes.Cut(rest, []byte(`","params":`))
		switch {
		case prefixed && ok:
			n := note{method: string(method), params: params[:len(params)-1]}
			if id, is := bytes.CutPrefix(params, []byte(`{"id":"`)); is {
				id, _, _ = bytes.Cut(id, []byte{'"'})
				n.id = string(id)
			}
			return n, nil
		case bytes.Contains(b, []byte(`"error":`)):
			return note{}, fmt.Errorf("got %s", b)
		}
	}
}

func (w *webSocket) say(text string) error {
	b, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "submitUserInput", "params": []string{text},
	})
	if err != nil {
		return err
	}
	return w.conn.Write(w.ctx, ws.MessageText, b)
}

// Close implements ui.
func (w *webSocket) Close() error { return w.conn.CloseNow() }

type events struct {
	ctx   context.Context //nolint:containedctx // of the connection
	here  string
	body  io.Closer
	lines *bufio.Reader
}

func overSSE(ctx context.Context, url string, ref subject.Ref, after string, buffer int) (ui, error) {
	e := &events{ctx: ctx, here: fmt.Sprintf("%s/v1/agents/%s/sessions/%s/", url, ref.Agent, ref.Session)}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.here+"events", nil)
	if err != nil {
		return nil, err
	}
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	res, err := client(buffer).Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, errors.Join(errors.New(res.Status), res.Body.Close())
	}
	e.body, e.lines = res.Body, bufio.NewReader(res.Body)
	return e, nil
}

func (e *events) next() (n note, err error) {
	for {
		line, err := e.lines.ReadString('\n')
		if err != nil {
			return n, err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "id":
			n.id = value
		case "event":
			n.method = value
		case "data":
			n.params = []byte(value)
		case "":
			if n.method != "" {
				return n, nil
			}
		}
	}
}

func (e *events) say(text string) error {
	b, err := json.Marshal(map[string]string{"input": text})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(e.ctx, http.MethodPost, e.here+"inputs", strings.NewReader(string(b)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client(0).Do(req)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusAccepted {
		err = errors.New(res.Status)
	}
	return cmp.Or(err, res.Body.Close())
}

// Close implements ui.
func (e *events) Close() error { return e.body.Close() }

// mux serves both transports, as the bridge does.
func mux(r *rpc.Handler, s *sse.Handler) http.Handler {
	m := http.NewServeMux()
	m.Handle(rpc.Path, r)
	for _, p := range sse.Patterns() {
		m.Handle(p, s)
	}
	return m
}

// why returns the reason in the last notification of a dropped UI.
func (n note) why() (d contract.Dropped, err error) {
	if n.method != contract.OnDropped {
		return d, fmt.Errorf("the last notification is %s", n.method)
	}
	return d, json.Unmarshal(n.params, &d)
}
