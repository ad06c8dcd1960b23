package identities

import (
	"context"
	"slices"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/rights"
)

// Attach sets what returns whose a name of a writer is already, empty if it is free, and what is called when a
// listener was muted. It is called before Start.
func (s *Identities) Attach(
	taken func(ctx context.Context, w subject.Writer) string, muted func(ctx context.Context, name subject.Identity),
) {
	s.taken, s.noted = taken, muted
}

// owner is whose the name of a listener is; empty if it is free. The account of who invites may be that of a terminal.
func (s *Identities) owner(ctx context.Context, w, caller subject.Writer) string {
	if w == caller {
		return "your own account"
	}
	if s.taken == nil {
		return ""
	}
	return s.taken(ctx, w)
}

// free reports a listener of the charter that belongs to another identity.
func (s *Identities) free(c rights.Charter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, r := range s.known {
		if name == c.Name || !r.Revoked.IsZero() {
			continue
		}
		for _, l := range c.Listeners {
			if slices.Contains(r.Charter.Listeners, l) {
				return bus.Errorf(bus.CodeConflict, "charter: listeners: %s is a listener of %s; choose another name", l, name)
			}
		}
	}
	return nil
}
