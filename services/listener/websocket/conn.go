package websocket

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"
	"github.com/nats-io/nuid"

	"skandha.dev/pkg/strictjson"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/listener/contract"
)

const writeWait = 5 * time.Second

// conn is one connection. A separate goroutine emits its messages in order, so that
// reading continues and pings are answered while the bus is slow.
type conn struct {
	l     *Listener
	ws    *websocket.Conn
	from  string
	inbox chan accepted
	slow  atomic.Bool // dropped for being too slow
}

// accepted is an input in flight.
type accepted struct {
	contract.Input
	leave func()
}

// message is an incoming message.
type message struct {
	Text    string `json:"text"`
	ID      string `json:"id"`
	Session string `json:"session"`
}

// answer is an outgoing message.
type answer struct {
	ID       string `json:"id"`
	Sequence uint64 `json:"sequence,omitempty"`
	Error    string `json:"error,omitempty"`
	Retry    bool   `json:"retry,omitempty"`
}

// serve runs a connection until it ends, or until the listener stops.
func (l *Listener) serve(stopping context.Context, ws *websocket.Conn, from string) {
	c := &conn{l: l, ws: ws, from: from, inbox: make(chan accepted, AtOnce)}
	ws.SetReadLimit(l.cfg.MaxMessage)
	l.stats.Open.Add(1)
	ctx, cancel := context.WithCancel(l.life)
	emitted := make(chan struct{})
	go func() {
		defer close(emitted)
		for in := range c.inbox {
			c.emit(in.Input)
			in.leave()
		}
	}()
	go c.pings(ctx)
	defer context.AfterFunc(stopping, c.goAway)()
	err := c.read(ctx)
	cancel()
	close(c.inbox)
	<-emitted // accepted inputs are emitted even if no client reads the answer
	_ = ws.CloseNow()
	l.stats.Open.Add(-1)
	l.log.Debug("connection ended", "from", from, "status", websocket.CloseStatus(err), "error", err)
}

// read accepts messages until the connection ends.
func (c *conn) read(ctx context.Context) error {
	for {
		kind, body, err := c.ws.Read(ctx)
		if err != nil {
			return err
		}
		if kind != websocket.MessageText {
			return c.ws.Close(websocket.StatusUnsupportedData, "send text messages")
		}
		in, err := c.input(body)
		if err != nil {
			c.tell(answer{ID: in.ID, Error: err.Error()})
			continue
		}
		c.accept(in)
	}
}

// accept passes an input on to be emitted. It does not wait.
func (c *conn) accept(in contract.Input) {
	leave, ok := c.l.inFlight.Enter()
	if !ok {
		c.tell(answer{ID: in.ID, Error: "the listener is stopping; the input was not accepted", Retry: true})
		return
	}
	select {
	case c.inbox <- accepted{in, leave}:
	default:
		leave()
		c.tell(answer{
			ID: in.ID, Error: fmt.Sprintf("more than %d inputs in flight; wait for answers", AtOnce), Retry: true,
		})
	}
}

func (c *conn) input(body []byte) (contract.Input, error) {
	cfg := c.l.cfg
	in := contract.Input{
		Agent: subject.Agent(cfg.Agent), Session: subject.Session(cfg.Session), Source: "websocket:" + string(c.l.name),
		Mode: cfg.Mode,
	}
	var m message
	if !utf8.Valid(body) {
		return in, errors.New("the message is not valid UTF-8")
	}
	if err := strictjson.Unmarshal(body, &m); err != nil {
		return in, fmt.Errorf("want a JSON object such as {\"text\": \"hello\", \"id\": \"1\"}: %s",
			strictjson.Explain(err))
	}
	in.Text, in.ID = m.Text, m.ID
	if m.Session != "" {
		if !cfg.ChooseSession {
			return in, errors.New("session: this listener has a fixed session; leave it out (choose_session)")
		}
		in.Session = subject.Session(cfg.SessionPrefix + m.Session)
	}
	if in.Session == "" {
		return in, errors.New("session is empty; name the session that receives the input")
	}
	if err := in.Check(); err != nil {
		return in, err
	}
	in.ID = cmp.Or(in.ID, nuid.Next())
	return in, nil
}

// emit emits an input and writes the answer.
func (c *conn) emit(in contract.Input) {
	ctx, cancel := context.WithTimeout(c.l.life, c.l.cfg.Timeout)
	defer cancel()
	r, err := c.l.emitter.EmitInput(ctx, in)
	switch {
	case err == nil:
		c.tell(answer{ID: r.ID, Sequence: r.Sequence})
	case errors.Is(err, contract.ErrInvalid):
		c.tell(answer{ID: in.ID, Error: err.Error()})
	case errors.Is(err, contract.ErrOverloaded):
		c.tell(answer{ID: in.ID, Error: "too many inputs are waiting; send it again later", Retry: true})
	case errors.Is(err, contract.ErrRefused): // the reason is logged
		c.tell(answer{ID: in.ID, Error: "the bus refuses inputs of this listener for now", Retry: true})
	default:
		why := contract.Outage(err) + "; it is safe to send it again with the same id"
		c.tell(answer{ID: in.ID, Error: why, Retry: true})
	}
}

// tell writes an answer. A client that does not read it in time is disconnected: it can
// connect again and send its inputs again under the same ids.
func (c *conn) tell(a answer) {
	b, err := json.Marshal(a)
	if err != nil {
		c.l.log.Error("encoding an answer failed", "from", c.from, "error", err)
		_ = c.ws.CloseNow()
		return
	}
	ctx, cancel := context.WithTimeout(c.l.life, writeWait)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, b); err != nil {
		c.end(ctx, "answering", err)
	}
}

// pings finds out whether the client is still connected and reads.
func (c *conn) pings(ctx context.Context) {
	tick := time.NewTicker(c.l.ping)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		wait, cancel := context.WithTimeout(ctx, c.l.ping/2)
		err := c.ws.Ping(wait)
		if err != nil {
			c.end(wait, "waiting for a pong", err)
			cancel()
			return
		}
		cancel()
	}
}

// end ends a connection on which something failed. A client that was too slow counts as
// dropped; otherwise the connection was closed before, or is broken.
func (c *conn) end(ctx context.Context, doing string, err error) {
	_ = c.ws.CloseNow() // the library may have closed it on the timeout
	slow := errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded)
	if slow && c.slow.CompareAndSwap(false, true) {
		c.l.stats.Dropped.Add(1)
		c.l.log.Info("connection dropped", "from", c.from, "doing", doing, "error", err)
	}
}

// goAway closes the connection as the protocol requires.
func (c *conn) goAway() {
	// waits at most 5 s for the answer, and closes anyway
	_ = c.ws.Close(websocket.StatusGoingAway, "the listener is stopping")
}
