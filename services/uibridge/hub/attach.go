package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/uibridge/contract"
)

// begin finds the place where the feed begins, and creates onAttached.
func (f *feed) begin(ctx context.Context, after string) error {
	at := f.s.position()
	if after != "" {
		var err error
		if at, err = parsePlace(after); err != nil {
			return err
		}
		if err := f.s.check(ctx, at); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.tail, f.seen = at, at.id()
	f.mu.Unlock()
	if err := f.s.lostPlace(at.id()); err != nil {
		return err
	}
	f.s.join(f)
	// A feed without history learns at once that the session waits for input.
	first, err := f.s.welcome(ctx, at.id(), after == "" || at.commit == 0 && f.s.position().commit == 0)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.first = first
	f.mu.Unlock()
	return nil
}

// check returns an error if the session has no event at the place.
func (s *session) check(ctx context.Context, at place) error {
	if at.commit == 0 || at == s.position() {
		return nil
	}
	m, err := s.bus().Message(ctx, at.commit)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		last, err := s.end(ctx)
		if err != nil {
			return unavailable(s.log, "reading the log", err)
		}
		if at.commit < last.commit {
			return nil // it was purged or deleted, but what follows it exists
		}
	case err != nil:
		return unavailable(s.log, "reading the log", err)
	case m.Subject == s.ref.Commit():
		if last, _ := lastOf(s.ref, m); at.index <= last.index {
			return nil
		}
	}
	return contract.LostPlace(fmt.Sprintf(
		`session %s has no id %q; use the id of a received notification, "0" for the beginning, `+
			`or none for new notifications only`, s.ref, at.id()))
}

func unavailable(log *slog.Logger, doing string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	log.Warn(doing, "error", err)
	return &contract.Error{Code: contract.CodeUnavailable, Message: "the bus or core does not answer; try again"}
}

func (s *session) enter(f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds[f] = struct{}{}
}

func (s *session) leave(f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.feeds, f)
}

// welcome returns onAttached: the session's state at a time after the id. If ready is set
// and the session waits for input, it also returns onReadyForInput, without a place.
func (s *session) welcome(ctx context.Context, after string, ready bool) ([]contract.Notification, error) {
	about := contract.About{Agent: s.ref.Agent, Session: s.ref.Session}
	until := s.position().id()
	now, err := s.hub.deps.Client.Session(ctx, s.ref)
	if errors.Is(err, bus.ErrConflict) { // its log is damaged: its next input locks it
		s.log.Warn("attaching to a damaged session", "session", s.ref, "error", err)
		now, err = client.Session{State: event.StateLocked}, nil
	}
	if err != nil {
		return nil, unavailable(s.log, "asking for a session's state", err)
	}
	a := contract.Attached{About: about, After: after, Until: until, State: now.State, Title: now.Title}
	for _, q := range now.Pending {
		about.Turn, about.Time, about.Cause = q.Event.Turn, q.Event.Time, q.Event.Cause
		r := toolCallRequest(about, q.Request)
		r.Approved = q.Approved
		a.Pending = append(a.Pending, r)
	}
	n, err := encode(place{}, contract.OnAttached, a)
	if err != nil {
		return nil, err
	}
	if !ready || now.State != event.StateWaiting {
		return []contract.Notification{n}, nil
	}
	r, err := encode(place{}, contract.OnReadyForInput, contract.About{Agent: s.ref.Agent, Session: s.ref.Session})
	return []contract.Notification{n, r}, err
}
