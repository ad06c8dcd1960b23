package journal

import (
	"context"
	"log/slog"
	"sync"

	"skandha.dev/pkg/bus"
)

// Journal is a bus with the log. Its methods are safe for concurrent use.
type Journal struct {
	*bus.Bus
	ctl  *bus.Link // small, urgent messages
	data *bus.Link // the log and large bodies
	log  *slog.Logger

	copies   *copies // of SESSIONS
	known    *known  // streams
	tails    tails
	advisory sync.Once // of its changes
	usage    *usage    // of the bucket artifacts
}

// Connect connects to the bus like [bus.Connect].
func Connect(ctx context.Context, cfg bus.Config) (*Journal, error) {
	b, err := bus.Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return New(b), nil
}

// New returns the journal on a connected bus, which should have only one.
func New(b *bus.Bus) *Journal {
	j := &Journal{Bus: b, ctl: b.Control(), data: b.Log(), log: b.Logger(), usage: newUsage()}
	j.copies, j.known = newCopies(j), newKnown()
	return j
}
