package sse

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/eventstream"
	"skandha.dev/services/uibridge/request"
)

// stream is the connection of one feed.
type stream struct {
	handler *Handler
	out     *eventstream.Writer
	after   string // the last id that was sent
}

// events handles GET events.
func (d *Handler) events(w http.ResponseWriter, r *http.Request) {
	a, err := attachment(r)
	if err != nil {
		d.refuse(w, r, "events", err, 0)
		return
	}
	d.streams.Add(1)
	defer d.streams.Add(-1)
	d.opened.Add(1)
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	feed, err := d.attach(ctx, a)
	if err != nil {
		d.refuse(w, r, "events", err, 0)
		return
	}
	s := &stream{handler: d, out: eventstream.New(w, d.cfg.WriteWait), after: a.After}
	err = s.run(ctx, end, feed)
	log := d.log.With("from", r.RemoteAddr, "principal", contract.PrincipalOf(ctx).Name, "session", a.Ref,
		"after", s.after, "error", err)
	if errors.Is(err, eventstream.ErrSlow) || contract.ErrorOf(err).Code == contract.CodeSlow {
		d.dropped.Add(1)
		log.Info("stream dropped: the peer did not keep up")
	} else {
		log.Debug("stream ended")
	}
}

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
	notes, over := make(chan contract.Notification), make(chan error, 1)
	var pumping sync.WaitGroup
	pumping.Go(func() { over <- pump(ctx, feed, notes) })
	pumped := false
	err := s.out.Retry(s.handler.cfg.Retry)
	idle := time.NewTicker(s.handler.cfg.KeepAlive)
	defer idle.Stop()
	for err == nil && !pumped {
		select {
		case n := <-notes:
			err = s.notify(n)
			idle.Reset(s.handler.cfg.KeepAlive)
		case <-idle.C:
			err = s.out.KeepAlive()
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
	if err := s.out.Event(n.ID, n.Method, n.Params); err != nil {
		return err
	}
	if n.ID != "" {
		s.after = n.ID
	}
	return nil
}
