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

// begin finds where the feed begins, and makes onAttached.
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
	// A feed without a past hears at once that the session waits for input.
	first, err := f.s.welcome(ctx, at.id(), after == "" || at.commit == 0 && f.s.position().commit == 0)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.first = first
	f.mu.Unlock()
	return nil
}

// check verifies that something has that place.
func (s *session) check(ctx context.Context, at place) error {
	if at.commit == 0 || at == s.position() {
		return nil
	}
	m, err := s.bus().Message(ctx, at.commit)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		last, err := s.end(ctx)
		if err != nil {
			return unavailable(s.log, "looking at the log", err)
		}
		if at.commit < last.commit {
			return nil // it was purged, or deleted; what follows is there
		}
	case err != nil:
		return unavailable(s.log, "looking at the log", err)
	case m.Subject == s.ref.Commit():
		if last, _ := lastOf(s.ref, m); at.index <= last.index {
			return nil
		}
	}
	return contract.LostPlace(fmt.Sprintf(`nothing in session %s has the id %q; use the id of a notification that was seen, "0" for the beginning, or nothing for what comes now`, s.ref, at.id()))
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

// welcome is onAttached: where the session stands, at a time after the id; and
// onReadyForInput, without a place, if that is wanted and the session waits for input.
func (s *session) welcome(ctx context.Context, after string, ready bool) ([]contract.Notification, error) {
	about := contract.About{Agent: s.ref.Agent, Session: s.ref.Session}
	until := s.position().id()
	now, err := s.hub.deps.Client.Session(ctx, s.ref)
	if errors.Is(err, bus.ErrConflict) { // its log is damaged: its next input locks it
		s.log.Warn("attaching to a damaged session", "session", s.ref, "error", err)
		now, err = client.Session{State: event.StateLocked}, nil
	}
	if err != nil {
		return nil, unavailable(s.log, "asking where a session stands", err)
	}
	a := contract.Attached{About: about, After: after, Until: until, State: now.State, Title: now.Title}
	for _, q := range now.Pending {
		about.Turn, about.Time, about.Cause = q.Event.Turn, q.Event.Time, q.Event.Cause
		a.Pending = append(a.Pending, toolCallRequest(about, q.Request))
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
