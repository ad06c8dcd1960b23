package plugincall

import (
	"context"
	"errors"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// cores finds out whether any core is running. It asks at most once per interval, for all
// callers together.
type cores struct {
	caller *bus.Caller
	every  time.Duration

	mu    sync.Mutex
	asked time.Time
	up    bool
}

// ask returns a channel that soon delivers the answer.
func (c *cores) ask(ctx context.Context) <-chan bool {
	out := make(chan bool, 1)
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if time.Since(c.asked) >= c.every {
			c.up, c.asked = c.answers(ctx), time.Now()
		}
		out <- c.up
	}()
	return out
}

// answers reports whether any core answers; an error is an answer, too.
func (c *cores) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), coreWait)
	defer cancel()
	_, err := c.caller.Request(ctx, subject.Service("core", "status"), "core", nil)
	var answer *bus.Error
	switch {
	case err == nil:
		return true
	case errors.As(err, &answer):
		return answer.Code != bus.CodeUnavailable && answer.Code != bus.CodeTimeout
	}
	return false
}
