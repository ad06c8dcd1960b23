package identities

import (
	"context"
	"slices"
	"time"

	"skandha.dev/pkg/subject"
)

// A listener that sends inputs faster than they are answered would fill the log, and everybody else's inputs would be refused.
// So the server takes none of its inputs for a while: they reach no responder. Any core may mute it, for what waits there.

// muteFor is how long it lasts, unless its inputs are done before, or still too many wait then.
const muteFor = 20 * time.Second

// Pressed takes note that so many inputs of a writer wait at this core, too many; 0: no longer. It does not wait.
func (s *Identities) Pressed(w subject.Writer, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, r := range s.known {
		if !r.Revoked.IsZero() || !slices.Contains(r.Charter.Listeners, w) {
			continue
		}
		now := s.cfg.Now()
		if s.muting[name] || waiting == 0 && !r.muted(now) || waiting > 0 && r.Muted.Sub(now) > muteFor/2 {
			return
		}
		s.muting[name] = true
		go s.mute(name, waiting, r.muted(now))
		return
	}
}

// mute mutes an identity, or no longer if nothing waits.
func (s *Identities) mute(name subject.Identity, waiting int, already bool) {
	ctx, cancel := context.WithTimeout(context.Background(), updateWait)
	defer cancel()
	r, err := s.change(ctx, name, func(r *record) (*record, error) {
		r.Muted = time.Time{}
		if waiting > 0 {
			r.Muted = s.cfg.Now().Add(muteFor)
		}
		return r, nil
	})
	if err == nil {
		err = s.inform(ctx, r)
	}
	s.mu.Lock()
	delete(s.muting, name)
	s.mu.Unlock()
	switch {
	case err != nil:
		s.cfg.Log.Warn("cannot change whether a listener is muted", "identity", name, "error", err)
	case waiting > 0 && already:
	case waiting > 0:
		s.cfg.Log.Warn("a listener is muted: it sends inputs faster than they are answered", "identity", name, "waiting", waiting)
		if s.noted != nil {
			s.noted(ctx, name)
		}
	default:
		s.cfg.Log.Info("a listener may send inputs again", "identity", name)
	}
}
