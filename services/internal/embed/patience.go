package embed

import (
	"context"
	"sync"
	"time"
)

// Patience is how long somebody who needs several embeddings waits for them in all. The zero
// Patience waits for nothing that takes time.
type Patience struct {
	mu   sync.Mutex
	left time.Duration
}

// NewPatience returns a Patience of that length.
func NewPatience(d time.Duration) *Patience { return &Patience{left: d} }

// Within calls f with a context that ends when the patience does, or after most. What f takes is
// used up.
func (p *Patience) Within(ctx context.Context, most time.Duration, f func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, min(most, p.left))
	defer cancel()
	began := time.Now()
	f(ctx)
	p.left -= time.Since(began)
}
