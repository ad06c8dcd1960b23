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

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/listener/contract"
)

const writeWait = 5 * time.Second

// conn is one connection. Its messages are emitted in order by a goroutine of
// their own, so that reading goes on and pings are answered while the bus is slow.
type conn struct {
	l     *Listener
	ws    *websocket.Conn
	from  string
	inbox chan contract.Input
	slow  atomic.Bool // it was dropped
}

// message is what comes in.
type message struct {
	Text    string `json:"text"`
	ID      string `json:"id"`
	Session string `json:"session"`
}

// answer is what goes out.
type answer struct {
	ID       string `json:"id"`
	Sequence uint64 `json:"sequence,omitempty"`
	Error    string `json:"error,omitempty"`
	Retry    bool   `json:"retry,omitempty"`
}

func (l *Listener) serve(ws *websocket.Conn, from string) {
	c := &conn{l: l, ws: ws, from: from, inbox: make(chan contract.Input, AtOnce)}
	ws.SetReadLimit(l.cfg.MaxMessage)
	l.mu.Lock()
	l.conns[c] = struct{}{}
	going := l.going
	l.mu.Unlock()
	l.stats.Open.Add(1)
	ctx, cancel := context.WithCancel(l.life)
	emitted := make(chan struct{})
	go func() {
		defer close(emitted)
		for in := range c.inbox {
			c.emit(in)
			l.door.Leave()
		}
	}()
	go c.pings(ctx)
	if going { // OnStop may not have seen it
		go c.goAway()
	}
	err := c.read(ctx)
	cancel()
	close(c.inbox)
	<-emitted // what was taken is emitted though nobody may hear the answer
	_ = ws.CloseNow()
	l.stats.Open.Add(-1)
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	l.log.Debug("a connection has ended", "from", from, "status", websocket.CloseStatus(err), "error", err)
}

// read takes messages until the connection ends.
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
		switch {
		case err != nil:
			c.tell(answer{ID: in.ID, Error: err.Error()})
		case !c.l.door.Enter():
			c.tell(answer{ID: in.ID, Error: "the listener stops; it is not taken", Retry: true})
		default:
			select {
			case c.inbox <- in:
			default:
				c.l.door.Leave()
				c.tell(answer{ID: in.ID, Error: fmt.Sprintf("more than %d inputs are under way; wait for answers", AtOnce), Retry: true})
			}
		}
	}
}

func (c *conn) input(body []byte) (contract.Input, error) {
	cfg := c.l.cfg
	in := contract.Input{
		Agent: subject.Agent(cfg.Agent), Session: subject.Session(cfg.Session), Source: "websocket:" + string(c.l.name), Mode: cfg.Mode,
	}
	var m message
	if !utf8.Valid(body) {
		return in, errors.New("the message is not valid UTF-8")
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return in, fmt.Errorf("want a JSON object such as {\"text\": \"hello\", \"id\": \"1\"}: %w", err)
	}
	in.Text, in.ID = m.Text, m.ID
	if m.Session != "" {
		if !cfg.ChooseSession {
			return in, errors.New("session: this listener has one of its own; leave it out (choose_session)")
		}
		in.Session = subject.Session(cfg.SessionPrefix + m.Session)
	}
	if in.Session == "" {
		return in, errors.New("session: it is empty; name the session that hears it")
	}
	if err := in.Check(); err != nil {
		return in, err
	}
	in.ID = cmp.Or(in.ID, nuid.Next())
	return in, nil
}

// emit hands an input over and answers.
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
		c.tell(answer{ID: in.ID, Error: "too many inputs wait already; send it again later", Retry: true})
	case errors.Is(err, contract.ErrRefused): // the log has said why
		c.tell(answer{ID: in.ID, Error: "the bus refuses inputs of this listener for now", Retry: true})
	default:
		why := "the bus does not answer"
		if f := (*bus.StorageFault)(nil); errors.As(err, &f) {
			why = f.Error()
		}
		c.tell(answer{ID: in.ID, Error: why + "; the same id again is safe", Retry: true})
	}
}

// tell writes an answer. Who does not take it in time is dropped: he can connect
// again and ask by the same id.
func (c *conn) tell(a answer) {
	b, err := json.Marshal(a)
	if err != nil {
		c.l.log.Error("an answer does not encode", "from", c.from, "error", err)
		_ = c.ws.CloseNow()
		return
	}
	ctx, cancel := context.WithTimeout(c.l.life, writeWait)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, b); err != nil {
		c.end(ctx, "answering", err)
	}
}

// pings finds out whether somebody is still there, and reads.
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

// end ends a connection on which something failed. Who was too slow is dropped; else
// it was closed before, or is broken.
func (c *conn) end(ctx context.Context, doing string, err error) {
	_ = c.ws.CloseNow() // the library may have closed it when the time was over
	slow := errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded)
	if slow && c.slow.CompareAndSwap(false, true) {
		c.l.stats.Dropped.Add(1)
		c.l.log.Info("a connection was dropped", "from", c.from, "doing", doing, "error", err)
	}
}

// goAway closes the connection as the protocol wants it.
func (c *conn) goAway() {
	_ = c.ws.Close(websocket.StatusGoingAway, "the listener stops") // waits for the answer, at most 5 s, and closes anyway
}
