package plugincall

import (
	"context"
	"errors"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// cores knows whether a core is there. However many want to know, it asks once per
// interval.
type cores struct {
	caller *bus.Caller
	every  time.Duration

	mu    sync.Mutex
	asked time.Time
	there bool
}

// ask gives the answer on the channel, soon.
func (c *cores) ask(ctx context.Context) <-chan bool {
	out := make(chan bool, 1)
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if time.Since(c.asked) >= c.every {
			c.there, c.asked = c.answers(ctx), time.Now()
		}
		out <- c.there
	}()
	return out
}

// answers reports whether any core answers; an error is an answer, too.
func (c *cores) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), coreWait)
	defer cancel()
	_, err := c.caller.Request(ctx, subject.Service("core", "status"), "core", nil)
	var said *bus.Error
	switch {
	case err == nil:
		return true
	case errors.As(err, &said):
		return said.Code != bus.CodeUnavailable && said.Code != bus.CodeTimeout
	}
	return false
}
