package rpc

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/contract"
)

// conn is one connection. One goroutine reads, one writes answers, one handles what must
// keep its order, one writes what the feed tells; requests that only look have one each.
type conn struct {
	handler   *Handler
	ws        *websocket.Conn
	principal contract.Principal
	from      string
	first     contract.Attachment // what the URL asks for

	life context.Context //nolint:containedctx // of the connection: what it has begun ends with it
	end  context.CancelFunc

	slots chan struct{}        // of requests that are under way
	lane  chan func()          // what keeps its order
	busy  sync.WaitGroup       // requests that were taken and not answered
	out   chan []byte          // answers
	due   chan struct{}        // there are some
	bye   chan *contract.Error // how the connection is to end; the first one counts

	taking  sync.Mutex // guards leaving, and busy from 0
	leaving bool       // nothing more is taken

	shown shown
	fell  sync.Once // it did not keep up

	// The lane's own.
	ref  subject.Ref
	feed *pump

	writing  sync.Mutex // guards what follows: one writes at a time
	attached bool       // onAttached was, and onDropped was not
	after    string     // the last id that was told
	buf      []byte
}

func newConn(d *Handler, r *http.Request, p contract.Principal, first contract.Attachment) *conn {
	c := &conn{
		handler: d, principal: p, from: r.RemoteAddr, first: first, ref: first.Ref,
		slots: make(chan struct{}, d.cfg.AtOnce),
		lane:  make(chan func(), d.cfg.AtOnce+1), // and the first attachment
		out:   make(chan []byte, 2*d.cfg.AtOnce),
		due:   make(chan struct{}, 1),
		bye:   make(chan *contract.Error, 1),
		after: first.After,
	}
	// It ends as the connection does, not with its request: what is due then is answered first.
	c.life, c.end = context.WithCancel(context.WithoutCancel(r.Context()))
	return c
}

// serve runs the connection until it has ended.
func (c *conn) serve(asked context.Context) {
	c.ws.SetReadLimit(c.handler.cfg.MaxMessage)
	defer context.AfterFunc(asked, func() { c.askedToGo(context.Cause(asked)) })()
	if !c.principal.Expires.IsZero() {
		t := time.AfterFunc(time.Until(c.principal.Expires), func() {
			c.farewell(&contract.Error{Code: contract.CodeUnauthenticated, Message: "the token has expired"})
		})
		defer t.Stop()
	}
	var all sync.WaitGroup
	all.Go(c.write)
	all.Go(c.ping)
	all.Go(c.inOrder)
	c.lane <- c.attachFirst

	err := c.read()
	c.stopTaking()
	c.end()
	close(c.lane) // nobody puts anything in: nothing is taken any more
	all.Wait()
	c.busy.Wait()
	_ = c.ws.CloseNow() // it may be closed already
	c.handler.log.Debug("a connection has ended", "from", c.from, "principal", c.principal.Name, "status", int(websocket.CloseStatus(err)), "error", err)
}

// read takes messages until the connection ends.
func (c *conn) read() error {
	for {
		kind, body, err := c.ws.Read(c.life)
		switch {
		case err != nil:
			return err
		case kind != websocket.MessageText:
			c.farewell(errBinary)
		case !utf8.Valid(body):
			c.farewell(errNotUTF8)
		default:
			c.take(body)
		}
	}
}

// inOrder handles what must keep its order, and ends the feed.
func (c *conn) inOrder() {
	for f := range c.lane {
		f()
	}
	c.feed.stop()
}

// stopTaking makes sure that nothing more is taken.
func (c *conn) stopTaking() {
	c.taking.Lock()
	defer c.taking.Unlock()
	c.leaving = true
}

// enter counts a request that is taken, unless nothing is taken any more; then
// busy.Done must follow.
func (c *conn) enter() bool {
	c.taking.Lock()
	defer c.taking.Unlock()
	if !c.leaving {
		c.busy.Add(1)
	}
	return !c.leaving
}

// askedToGo ends the connection when the access layer says so.
func (c *conn) askedToGo(cause error) {
	if e := contract.ErrorOf(cause); e.Code == contract.CodeUnauthenticated {
		c.farewell(e)
		return
	}
	c.goAway()
}

// goAway ends the connection because the bridge stops, after what is due was answered.
func (c *conn) goAway() {
	c.stopTaking()
	go func() {
		c.busy.Wait() // bounded by the requests' timeouts
		c.farewell(contract.ErrGoingAway)
	}()
}

// farewell ends the connection for a reason, after what was answered was written.
func (c *conn) farewell(why *contract.Error) {
	c.stopTaking()
	select {
	case c.bye <- why:
	default:
	}
}

// drop cuts the connection off: it did not keep up, and nothing can be told over it.
func (c *conn) drop(doing string) {
	c.slow(doing)
	c.end()
	_ = c.ws.CloseNow()
}

// slow counts and logs.
func (c *conn) slow(doing string) {
	c.fell.Do(func() {
		c.handler.dropped.Add(1)
		c.handler.log.Info("a connection did not keep up and was dropped", "from", c.from, "principal", c.principal.Name, "doing", doing)
	})
}

// ping finds out whether somebody is still there, and reads.
func (c *conn) ping() {
	tick := time.NewTicker(c.handler.cfg.PingEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.life.Done():
			return
		case <-tick.C:
		}
		wait, cancel := context.WithTimeout(c.life, c.handler.cfg.WriteWait)
		err := c.ws.Ping(wait)
		late := errors.Is(wait.Err(), context.DeadlineExceeded)
		cancel()
		if err != nil {
			if late {
				c.drop("waiting for a pong")
			}
			return // else it is gone, which the reader sees
		}
	}
}
