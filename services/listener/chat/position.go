package chat

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/journal"
)

// Position is how far a gateway has read what its network keeps for it. It is stored in the bucket
// gateways. One goroutine uses it.
type Position struct {
	hub      *Hub
	Value    string // empty: it has read nothing
	revision uint64
	stored   time.Time
}

// refresh is how often a position that does not change is stored again, as the bucket forgets.
const refresh = 24 * time.Hour

// Position reads the stored position.
func (h *Hub) Position(ctx context.Context) (*Position, error) {
	p := &Position{hub: h}
	e, err := h.bucket.Get(ctx, p.key())
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return nil, fmt.Errorf("reading the position: %w", err)
	}
	p.Value, p.revision, p.stored = string(e.Value), e.Revision, e.Time
	return p, nil
}

func (p *Position) key() string { return string(p.hub.name) + ".position" }

// Store stores that everything up to the value was handled. After an error, the position must be
// read again: another process may have moved it.
func (p *Position) Store(ctx context.Context, value string) error {
	if now := p.hub.now(); value == p.Value && now.Sub(p.stored) < refresh {
		return nil
	}
	revision, err := p.hub.bucket.Put(ctx, p.key(), []byte(value), journal.Fence{Revision: p.revision})
	if err != nil {
		return fmt.Errorf("storing the position: %w", err)
	}
	p.Value, p.revision, p.stored = value, revision, p.hub.now()
	return nil
}

// Until handles a message again and again until it is stored or the gateway stops.
func (h *Hub) Until(ctx context.Context, m Message) (reply string, err error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		reply, err = h.Handle(ctx, m)
		if err == nil || ctx.Err() != nil || h.life.Err() != nil {
			return reply, err
		}
		h.log.Warn("a message is not stored yet; it is tried again", "room", m.Room, "id", m.ID, "error", err, "again_in", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// MayTalk reports whether an account may talk to the agent in a room; "" is a direct message.
func (h *Hub) MayTalk(room, account string) bool {
	p, ok := h.place(room)
	return ok && p.mayTalk(account)
}
