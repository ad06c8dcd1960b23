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

// conn is one connection. One goroutine reads, one writes answers, one handles requests
// that must keep their order, one writes the feed's notifications; each read-only request
// has its own.
type conn struct {
	handler   *Handler
	ws        *websocket.Conn
	principal contract.Principal
	from      string
	first     contract.Attachment // the attachment that the URL asks for

	life context.Context //nolint:containedctx // of the connection: its requests end with it
	end  context.CancelFunc

	slots   chan struct{}        // for requests in flight
	lane    chan func()          // requests that must keep their order
	busy    sync.WaitGroup       // requests accepted and not answered
	out     chan []byte          // answers
	due     chan struct{}        // out has answers
	closing chan *contract.Error // why the connection ends; only the first one counts

	taking  sync.Mutex // guards leaving, and busy from 0
	leaving bool       // no more requests are accepted

	sent sentHashes
	fell sync.Once // logs once that the peer did not keep up

	// Used only by the lane.
	ref  subject.Ref
	feed *pump

	writing  sync.Mutex // guards what follows; held while writing
	attached bool       // onAttached was sent, and onDropped was not
	after    string     // the last id that was sent
	buf      []byte
}

func newConn(d *Handler, r *http.Request, p contract.Principal, first contract.Attachment) *conn {
	c := &conn{
		handler: d, principal: p, from: r.RemoteAddr, first: first, ref: first.Ref,
		slots:   make(chan struct{}, d.cfg.AtOnce),
		lane:    make(chan func(), d.cfg.AtOnce+1), // plus one for the first attachment
		out:     make(chan []byte, 2*d.cfg.AtOnce),
		due:     make(chan struct{}, 1),
		closing: make(chan *contract.Error, 1),
		after:   first.After,
	}
	// It ends with the connection, not with the HTTP request, so that open requests are
	// answered first.
	c.life, c.end = context.WithCancel(context.WithoutCancel(r.Context()))
	return c
}

// serve runs the connection until it has ended.
func (c *conn) serve(asked context.Context) {
	c.ws.SetReadLimit(c.handler.cfg.MaxMessage)
	defer context.AfterFunc(asked, func() { c.requestEnded(context.Cause(asked)) })()
	var all sync.WaitGroup
	all.Go(c.write)
	all.Go(c.ping)
	all.Go(c.inOrder)
	c.lane <- c.attachFirst

	err := c.read()
	c.stopTaking()
	c.end()
	close(c.lane) // nothing is put in any more, because no more requests are accepted
	all.Wait()
	c.busy.Wait()
	_ = c.ws.CloseNow() // it may already be closed
	c.handler.log.Debug("connection ended", "from", c.from, "principal", c.principal.Name,
		"status", int(websocket.CloseStatus(err)), "error", err)
}

// read reads messages until the connection ends.
func (c *conn) read() error {
	for {
		kind, body, err := c.ws.Read(c.life)
		switch {
		case err != nil:
			return err
		case kind != websocket.MessageText:
			c.closeWith(errBinary)
		case !utf8.Valid(body):
			c.closeWith(errNotUTF8)
		default:
			c.take(body)
		}
	}
}

// inOrder handles the requests that must keep their order, and then ends the feed.
func (c *conn) inOrder() {
	for f := range c.lane {
		f()
	}
	c.feed.stop()
}

// stopTaking makes the connection accept no more requests.
func (c *conn) stopTaking() {
	c.taking.Lock()
	defer c.taking.Unlock()
	c.leaving = true
}

// enter registers a request and returns true, unless no more requests are accepted. After
// true, busy.Done must follow.
func (c *conn) enter() bool {
	c.taking.Lock()
	defer c.taking.Unlock()
	if !c.leaving {
		c.busy.Add(1)
	}
	return !c.leaving
}

// requestEnded ends the connection when its HTTP request's context ends.
func (c *conn) requestEnded(cause error) {
	if e := contract.ErrorOf(cause); e.Code == contract.CodeUnauthenticated {
		c.closeWith(e)
		return
	}
	c.goAway()
}

// goAway ends the connection because the bridge stops, after open requests are answered.
func (c *conn) goAway() {
	c.stopTaking()
	go func() {
		c.busy.Wait() // bounded by the requests' timeouts
		c.closeWith(contract.ErrGoingAway)
	}()
}

// closeWith ends the connection with an error, after pending answers are written.
func (c *conn) closeWith(why *contract.Error) {
	c.stopTaking()
	select {
	case c.closing <- why:
	default:
	}
}

// drop cuts the connection off: the peer did not keep up, so nothing can be sent.
func (c *conn) drop(doing string) {
	c.slow(doing)
	c.end()
	_ = c.ws.CloseNow()
}

// slow counts and logs, once, that the peer did not keep up.
func (c *conn) slow(doing string) {
	c.fell.Do(func() {
		c.handler.dropped.Add(1)
		c.handler.log.Info(
			"connection dropped: the peer did not keep up",
			"from", c.from, "principal", c.principal.Name, "doing", doing)
	})
}

// ping checks that the peer is alive and reads.
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
			return // else the connection is lost, and read returns an error
		}
	}
}
