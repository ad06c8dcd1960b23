package listenertest

import (
	"context"
	"fmt"
	"sync"

	"skandha.dev/services/listener/contract"
)

// Gate is an emitter that passes inputs on to another one, or holds them like a bus
// that is unavailable.
type Gate struct {
	Next contract.Emitter

	mu   sync.Mutex
	open chan struct{} // closed: inputs go through
	seen []contract.Input
	took []contract.Receipt
}

// NewGate returns an open gate.
func NewGate(next contract.Emitter) *Gate {
	g := &Gate{Next: next, open: make(chan struct{})}
	close(g.open)
	return g
}

// Hold holds inputs from now on.
func (g *Gate) Hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

// Release lets inputs through.
func (g *Gate) Release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

// EmitInput implements [contract.Emitter].
func (g *Gate) EmitInput(ctx context.Context, in contract.Input) (contract.Receipt, error) {
	g.mu.Lock()
	g.seen = append(g.seen, in)
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
	case <-ctx.Done():
		return contract.Receipt{}, fmt.Errorf("%w: %w", contract.ErrUnavailable, ctx.Err())
	}
	r, err := g.Next.EmitInput(ctx, in)
	if err == nil {
		g.mu.Lock()
		g.took = append(g.took, r)
		g.mu.Unlock()
	}
	return r, err
}

// Seen returns the inputs that arrived, including those that are held.
func (g *Gate) Seen() []contract.Input {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]contract.Input(nil), g.seen...)
}

// Took returns the receipts of those that went through.
func (g *Gate) Took() []contract.Receipt {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]contract.Receipt(nil), g.took...)
}
