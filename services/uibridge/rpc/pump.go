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

// pump writes a feed's notifications one at a time: while it waits for the peer, the feed's
// queue fills, and the feed ends when the queue is full.
type pump struct {
	end  context.CancelFunc
	done chan struct{}
}

// stop ends the pump and waits. A nil pump has already ended.
func (p *pump) stop() {
	if p != nil {
		p.end()
		<-p.done
	}
}

// attach begins a feed and ends the previous one. It calls begun before it sends anything.
func (c *conn) attach(a contract.Attachment, begun func()) error {
	ctx, end := context.WithCancel(c.life)
	patience := time.AfterFunc(c.handler.cfg.Timeout, end)
	feed, err := c.handler.backend.Attach(ctx, c.principal, a)
	if err == nil && !patience.Stop() {
		feed.Close()
		err = &contract.Error{Code: contract.CodeUnavailable, Message: "attaching timed out; attach again"}
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
			c.closeWith(contract.ErrorOf(err))
			return
		}
		if !c.note(ctx, n) {
			return
		}
	}
}

// attachFirst attaches as the URL asks. A principal without the "see" right gets onDropped,
// and may still call other methods; any other failure ends the connection.
func (c *conn) attachFirst() {
	err := c.attach(c.first, func() {})
	if err == nil || c.life.Err() != nil {
		return
	}
	e := contract.ErrorOf(err)
	c.handler.log.Info(
		"attaching a connection failed",
		"from", c.from, "principal", c.principal.Name, "session", c.first.Ref, "error", err)
	if c.principal.Require(contract.See, "") == nil {
		c.closeWith(e)
		return
	}
	c.note(c.life, dropped(e, c.first.After))
}

// attachAgain handles the method attach.
func (c *conn) attachAgain(params json.RawMessage, answer func(any, error)) {
	a, err := request.Attachment(params, request.Origin{Ref: c.ref, Source: c.first.Name})
	if err == nil {
		err = c.attach(a, func() { answer(a.Ref, nil) })
	}
	if err != nil {
		answer(nil, err)
	}
}

// detach handles the method detach. Requests are still for the session that was attached.
func (c *conn) detach(params json.RawMessage) (any, error) {
	if err := request.Decode(params); err != nil {
		return nil, err
	}
	c.feed.stop()
	c.feed = nil
	return struct{}{}, nil
}

// sentHashes holds the hashes of the confirmation requests that were sent on the connection. The
// zero value is ready to use.
type sentHashes struct {
	mu     sync.Mutex
	ref    subject.Ref
	hashes map[string]string // by confirmation id, of requests in ref
}

// begin starts with the requests in onAttached.
func (s *sentHashes) begin(a contract.Attached) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ref, s.hashes = subject.Ref{Agent: a.Agent, Session: a.Session}, map[string]string{}
	for _, r := range a.Pending {
		s.hashes[r.ConfirmationID] = r.Hash
	}
}

// see notes a notification that was sent.
func (s *sentHashes) see(n contract.Notification) {
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
		// Core reports best that an answer is too late: the hash is kept while there is
		// space.
		if len(s.hashes) > maxAnswered {
			delete(s.hashes, r.ConfirmationID)
		}
	case s.hashes != nil:
		s.hashes[r.ConfirmationID] = r.Hash
	}
}

// maxAnswered limits the answered requests that are remembered.
const maxAnswered = 256

// hash returns the hash that was sent, or "".
func (s *sentHashes) hash(ref subject.Ref, id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ref != s.ref {
		return ""
	}
	return s.hashes[id]
}
