package plugincall

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// wait is the wait for the answer to one request.
type wait struct {
	*Asker
	Request
	replicas   []subject.Instance // that may have got it
	answer     chan bus.Reply
	reconnects uint64 // of the connection when it was sent
}

// take keeps the first answer.
func (w *wait) take(r bus.Reply) {
	select {
	case w.answer <- r:
	default:
	}
}

func (w *wait) await(ctx context.Context) ([]byte, error) {
	look := time.NewTicker(w.every)
	defer look.Stop()
	vigil := vigil{grace: w.grace}
	var core <-chan bool
	for {
		select {
		case r := <-w.answer:
			return w.read(r)
		case <-ctx.Done():
			return w.orElse(w.ended(ctx))
		case <-look.C:
			if w.Repeatable && w.disconnected() {
				return w.orElse(fmt.Errorf("%w: the connection to the bus was lost", ErrLost))
			}
			if vigil.look(time.Now(), w.left(w.Plugin, w.replicas)) && core == nil {
				core = w.cores.ask(ctx)
			}
		case there := <-core:
			core = nil
			if vigil.over(time.Now(), there, w.left(w.Plugin, w.replicas)) {
				return w.orElse(fmt.Errorf("%w: plugin %s is gone with all replicas that were there", ErrLost, w.Plugin))
			}
		}
	}
}

// vigil decides for how long replicas that are gone are waited for.
type vigil struct {
	grace time.Duration
	gone  time.Time // since when none is left although a core is there; zero: that is not so
}

// look takes how many of the replicas are left, and reports whether it matters
// that a core is there.
func (v *vigil) look(now time.Time, left int) bool {
	switch {
	case left > 0:
		v.gone = time.Time{}
	case v.gone.IsZero():
		v.gone = now
	}
	return left == 0
}

// over takes whether a core is there, and reports whether the grace is over.
func (v *vigil) over(now time.Time, core bool, left int) bool {
	if !core {
		v.gone = time.Time{}
	}
	return !v.gone.IsZero() && now.Sub(v.gone) >= v.grace && left == 0
}

// orElse is the answer if it has come at the last moment.
func (w *wait) orElse(err error) ([]byte, error) {
	select {
	case r := <-w.answer:
		return w.read(r)
	default:
		return nil, err
	}
}

// ended is why there is no answer now that the context has ended.
func (w *wait) ended(ctx context.Context) error {
	err := ctx.Err()
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	case w.left(w.Plugin, w.replicas) < len(w.replicas):
		return fmt.Errorf("%w: a replica of plugin %s that was there is gone: %w", ErrLost, w.Plugin, err)
	case w.disconnected():
		return fmt.Errorf("%w: the connection to the bus was lost meanwhile: %w", ErrLost, err)
	}
	return err
}

// disconnected reports whether the connection was lost since the request was sent.
func (w *wait) disconnected() bool {
	c := w.bus.Conn()
	return !c.IsConnected() || c.Stats().Reconnects != w.reconnects
}

func (w *wait) read(r bus.Reply) ([]byte, error) {
	switch {
	case r.NoResponders:
		return nil, fmt.Errorf("%w: nobody listens on %s", ErrNotAsked, w.Subject)
	case r.Err == nil:
		return r.Data, nil
	case r.Header.Get(bus.ErrorHeader) != "":
		return nil, fmt.Errorf("plugin %s: %w", w.Plugin, r.Err)
	case r.Header == nil: // the server threw away what was sent there; what exactly, it does not say
		if w.alone(w.Subject) {
			return nil, fmt.Errorf("%w: %w", ErrNotAsked, r.Err)
		}
		return nil, fmt.Errorf("%w: %w", ErrLost, r.Err)
	}
	return nil, fmt.Errorf("%w: %w", ErrUnreadable, r.Err)
}
