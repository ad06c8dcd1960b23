package chat

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"skandha.dev/services/listener/contract"
)

const (
	firstPause = 250 * time.Millisecond
	maxPause   = time.Minute
	steady     = time.Minute // a connection that lasted so long was no failure
)

// Connect calls connect, which serves the gateway's connection until it ends, again and again until
// the gateway stops. The pauses grow while connections fail.
func (h *Hub) Connect(server string, connect func(context.Context) error) {
	h.Repeat(connect, func(err error, wait time.Duration) {
		h.is.Set(contract.StateDown, fmt.Sprintf("not connected to %s: %v", server, err))
		h.log.Warn("not connected to the chat server", "server", server, "error", err, "again_in", wait)
	})
}

// Repeat is Connect for any connection; it calls ended before each pause.
func (h *Hub) Repeat(connect func(context.Context) error, ended func(err error, wait time.Duration)) {
	pause := firstPause
	for h.life.Err() == nil {
		began := time.Now()
		err := connect(h.life)
		if h.life.Err() != nil {
			return
		}
		if time.Since(began) > steady {
			pause = firstPause
		}
		wait := pause/2 + rand.N(pause)
		ended(err, wait)
		pause = min(2*pause, maxPause)
		select {
		case <-time.After(wait):
		case <-h.life.Done():
		}
	}
}

// Link is a connection that comes and goes. The zero value of C means that there is none.
type Link[C comparable] struct {
	mu      sync.Mutex
	current C
	changed chan struct{} // closed when the connection or its state changes
}

// NewLink returns a link without a connection.
func NewLink[C comparable]() *Link[C] { return &Link[C]{changed: make(chan struct{})} }

// Current returns the connection.
func (l *Link[C]) Current() C {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// Set replaces the connection.
func (l *Link[C]) Set(c C) {
	l.mu.Lock()
	l.current = c
	l.mu.Unlock()
	l.Changed()
}

// Changed wakes everybody who waits.
func (l *Link[C]) Changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

// Wait returns the connection once it is ready, or the current one when ctx ends before.
func (l *Link[C]) Wait(ctx context.Context, ready func(C) bool) (c C, ok bool) {
	var none C
	for {
		l.mu.Lock()
		c, changed := l.current, l.changed
		l.mu.Unlock()
		if c != none && ready(c) {
			return c, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return c, false
		}
	}
}
