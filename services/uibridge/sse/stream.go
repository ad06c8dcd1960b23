package sse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// stream is the connection of one feed.
type stream struct {
	handler *Handler
	w       http.ResponseWriter
	rc      *http.ResponseController
	after   string // the last id that was sent
	buf     []byte
}

// events handles GET events.
func (d *Handler) events(w http.ResponseWriter, r *http.Request) {
	a, err := attachment(r)
	if err == nil {
		err = d.reserve()
	}
	if err != nil {
		d.refuse(w, r, "events", err, 0)
		return
	}
	defer d.leave()
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	defer context.AfterFunc(d.life, func() { end(context.Cause(d.life)) })()
	if expires := contract.PrincipalOf(ctx).Expires; !expires.IsZero() {
		t := time.AfterFunc(time.Until(expires), func() {
			end(&contract.Error{Code: contract.CodeUnauthenticated, Message: "the token has expired"})
		})
		defer t.Stop()
	}
	feed, err := d.attach(ctx, a)
	if err != nil {
		d.refuse(w, r, "events", err, 0)
		return
	}
	s := &stream{handler: d, w: w, rc: http.NewResponseController(w), after: a.After}
	err = s.run(ctx, end, feed)
	log := d.log.With("from", r.RemoteAddr, "principal", contract.PrincipalOf(ctx).Name, "session", a.Ref,
		"after", s.after, "error", err)
	if errors.Is(err, errSlow) || contract.ErrorOf(err).Code == contract.CodeSlow {
		d.dropped.Add(1)
		log.Info("stream dropped: the peer did not keep up")
	} else {
		log.Debug("stream ended")
	}
}

var errSlow = errors.New("write timed out")

// attachment reads the feed's parameters.
func attachment(r *http.Request) (contract.Attachment, error) {
	ref, err := request.Ref(r.PathValue("agent"), r.PathValue("session"))
	if err != nil {
		return contract.Attachment{}, err
	}
	q := r.URL.Query()
	ui, err := request.UI(q, "sse")
	if err != nil {
		return contract.Attachment{}, err
	}
	a, err := request.FromQuery(q, request.Origin{Ref: ref, Source: ui}, "after", "html", "commits", "ui")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		a.After = last
	}
	return a, err
}

// reserve counts a stream, or returns an error if the limit is reached.
func (d *Handler) reserve() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams >= d.cfg.MaxStreams {
		return &contract.Error{Code: contract.CodeUnavailable, Message: "stream limit reached", RetryAfterMS: 5000}
	}
	d.streams++
	d.opened.Add(1)
	return nil
}

func (d *Handler) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.streams--
}

// attach begins the feed, in bounded time.
func (d *Handler) attach(ctx context.Context, a contract.Attachment) (contract.Feed, error) {
	begun, cancel := context.WithCancel(ctx) // it ends with ctx
	patience := time.AfterFunc(d.cfg.Timeout, cancel)
	feed, err := d.backend.Attach(begun, contract.PrincipalOf(ctx), a)
	if patience.Stop() {
		return feed, err
	}
	if err == nil {
		feed.Close()
	}
	return nil, &contract.Error{Code: contract.CodeUnavailable, Message: "attaching timed out; reconnect"}
}

// run sends notifications until the feed or ctx ends, or the peer stops reading.
func (s *stream) run(ctx context.Context, end context.CancelCauseFunc, feed contract.Feed) error {
	// The stream outlives a server's timeout for requests. A server that does not support
	// this has no such timeout.
	_ = s.rc.SetReadDeadline(time.Time{})
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // by a proxy
	s.w.WriteHeader(http.StatusOK)

	notes, over := make(chan contract.Notification), make(chan error, 1)
	var pumping sync.WaitGroup
	pumping.Go(func() { over <- pump(ctx, feed, notes) })
	pumped := false
	err := s.send(fmt.Appendf(nil, "retry: %d\n\n", s.handler.cfg.Retry.Milliseconds()))
	idle := time.NewTicker(s.handler.cfg.KeepAlive)
	defer idle.Stop()
	for err == nil && !pumped {
		select {
		case n := <-notes:
			err = s.notify(n)
			idle.Reset(s.handler.cfg.KeepAlive)
		case <-idle.C:
			err = s.send([]byte(": still here\n\n"))
		case err = <-over:
			pumped = true
		}
	}
	if pumped {
		return s.last(err)
	}
	end(err)
	feed.Close()
	pumping.Wait()
	return err
}

// pump passes on the feed's notifications; its error is the reason why the feed ended.
func pump(ctx context.Context, feed contract.Feed, notes chan<- contract.Notification) error {
	defer feed.Close()
	for {
		n, err := feed.Next(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		select {
		case notes <- n:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// last sends the reason why the feed ended, unless the peer has disconnected.
func (s *stream) last(why error) error {
	if errors.Is(why, context.Canceled) {
		return why
	}
	e := contract.ErrorOf(why)
	after := e.Resume(s.after)
	b, err := json.Marshal(contract.Dropped{Code: e.Code, Message: e.Message, After: after})
	if err != nil {
		return err
	}
	n := contract.Notification{Method: contract.OnDropped, Params: b}
	if after != s.after {
		n.ID = after // so that a browser that reconnects by itself begins there
	}
	if err := s.notify(n); err != nil {
		return err
	}
	return why
}

// notify writes a notification as an event.
func (s *stream) notify(n contract.Notification) error {
	if n.Method == contract.OnAttached {
		var a contract.Attached
		if json.Unmarshal(n.Params, &a) == nil {
			s.after = a.After
		}
	}
	b := s.buf[:0]
	if n.ID != "" {
		b = append(append(append(b, "id: "...), n.ID...), '\n')
	}
	b = append(append(append(b, "event: "...), n.Method...), "\ndata: "...)
	if bytes.ContainsAny(n.Params, "\r\n") { // JSON only allows these between values
		var line bytes.Buffer
		if err := json.Compact(&line, n.Params); err != nil {
			return err
		}
		b = append(b, line.Bytes()...)
	} else {
		b = append(b, n.Params...)
	}
	b = append(b, "\n\n"...)
	if err := s.send(b); err != nil {
		return err
	}
	if n.ID != "" {
		s.after = n.ID
	}
	if s.buf = b; cap(b) > keepBuffer {
		s.buf = nil
	}
	return nil
}

// keepBuffer is the largest buffer that a stream keeps, in bytes.
const keepBuffer = 64 << 10

// send writes and flushes, in bounded time.
func (s *stream) send(b []byte) error {
	deadline := time.Now().Add(s.handler.cfg.WriteWait)
	_ = s.rc.SetWriteDeadline(deadline) // a server that does not support this has its own timeout
	_, err := s.w.Write(b)
	if err == nil {
		err = s.rc.Flush()
	}
	if err != nil && !time.Now().Before(deadline) {
		return fmt.Errorf("%w: %w", errSlow, err)
	}
	return err
}
