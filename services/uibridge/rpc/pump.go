package rpc

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// pump writes what a feed tells, one at a time: while it waits for the peer, the feed's
// own queue fills, and the feed ends when it is full.
type pump struct {
	end  context.CancelFunc
	done chan struct{}
}

// stop ends it and waits. nil is one that has ended.
func (p *pump) stop() {
	if p != nil {
		p.end()
		<-p.done
	}
}

// attach begins a feed; the one before ends. begun is called before anything is told.
func (c *conn) attach(a contract.Attachment, begun func()) error {
	ctx, end := context.WithCancel(c.life)
	patience := time.AfterFunc(c.handler.cfg.Timeout, end)
	feed, err := c.handler.backend.Attach(ctx, c.principal, a)
	if err == nil && !patience.Stop() {
		feed.Close()
		err = &contract.Error{Code: contract.CodeUnavailable, Message: "attaching took too long; attach again"}
	}
	if err != nil {
		patience.Stop()
		end()
		return err
	}
	c.feed.stop()
	c.feed = &pump{end: end, done: make(chan struct{})}
	c.ref = a.Ref
	begun()
	go c.pump(ctx, c.feed, feed)
	return nil
}

func (c *conn) pump(ctx context.Context, p *pump, feed contract.Feed) {
	defer close(p.done)
	defer feed.Close()
	for {
		n, err := feed.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.farewell(contract.ErrorOf(err))
			return
		}
		if !c.note(ctx, n) {
			return
		}
	}
}

// attachFirst does what the URL asks for. Who may not see is told so, and may still
// call what he may; any other failure ends the connection.
func (c *conn) attachFirst() {
	err := c.attach(c.first, func() {})
	if err == nil || c.life.Err() != nil {
		return
	}
	e := contract.ErrorOf(err)
	c.handler.log.Info("a connection could not be attached", "from", c.from, "principal", c.principal.Name, "session", c.first.Ref, "error", err)
	if c.principal.Require(contract.See, "") == nil {
		c.farewell(e)
		return
	}
	c.note(c.life, dropped(e, c.first.After))
}

// attachAgain is the method attach.
func (c *conn) attachAgain(params json.RawMessage, answer func(any, error)) {
	a, err := request.Attachment(params, request.Origin{Ref: c.ref, Source: c.first.Name})
	if err == nil {
		err = c.attach(a, func() { answer(a.Ref, nil) })
	}
	if err != nil {
		answer(nil, err)
	}
}

// detach is the method detach. Requests still mean the session that was attached.
func (c *conn) detach(params json.RawMessage) (any, error) {
	if err := request.Decode(params); err != nil {
		return nil, err
	}
	c.feed.stop()
	c.feed = nil
	return struct{}{}, nil
}

// shown is what the connection was asked to confirm, with the hash of what was shown.
// The zero value is ready.
type shown struct {
	mu     sync.Mutex
	ref    subject.Ref
	hashes map[string]string // by confirmation id, of those that wait in ref
}

// begin is told where one is.
func (s *shown) begin(a contract.Attached) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ref, s.hashes = subject.Ref{Agent: a.Agent, Session: a.Session}, map[string]string{}
	for _, r := range a.Pending {
		s.hashes[r.ConfirmationID] = r.Hash
	}
}

// see is told what is told to the person.
func (s *shown) see(n contract.Notification) {
	var r struct {
		ConfirmationID string `json:"confirmationId"`
		Hash           string `json:"hash"`
	}
	if json.Unmarshal(n.Params, &r) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case n.Method == contract.OnConfirmationResolved:
		// Core says best that it comes too late: the hash stays as long as there is room.
		if len(s.hashes) > maxShown {
			delete(s.hashes, r.ConfirmationID)
		}
	case s.hashes != nil:
		s.hashes[r.ConfirmationID] = r.Hash
	}
}

// maxShown is how many answered requests are remembered.
const maxShown = 256

// hash is what was shown, or "".
func (s *shown) hash(ref subject.Ref, id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ref != s.ref {
		return ""
	}
	return s.hashes[id]
}
