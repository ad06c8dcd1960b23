package plugincall

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// wait is the wait for the answer to one request. Only its own goroutine touches the
// fields that are not channels.
type wait struct {
	*Asker
	Request
	replicas   []subject.Instance // with a lease when the wait began
	reconnects uint64             // of the connection when the wait began

	answer chan bus.Reply
	back   <-chan struct{} // closed at the next reconnect
	voided chan struct{}   // a copy was not delivered
	again  *time.Timer     // when the request is to be sent again

	route    []target
	at       int           // index in route of the last copy's target
	sent     []*sending    // copies that may have been delivered
	last     *sending      // the last copy
	gone     time.Time     // since when the target has no listener; zero if it has one
	roaming  bool          // the first replica was given up
	repeatIn time.Duration // see firstRepeat
}

func newWait(a *Asker, r Request, replicas []subject.Instance) *wait {
	return &wait{
		Asker: a, Request: r, replicas: replicas, reconnects: a.bus.Conn().Stats().Reconnects, back: a.bus.Reconnected(),
		answer: make(chan bus.Reply, 1), voided: make(chan struct{}, 1), again: time.NewTimer(firstRepeat), repeatIn: firstRepeat,
	}
}

// forget takes no more answers.
func (w *wait) forget() {
	w.again.Stop()
	for _, s := range w.sent {
		s.forget()
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
		case <-w.voided:
			if err := w.onVoid(ctx); err != nil {
				return w.orElse(err)
			}
		case <-w.back:
			w.back = w.bus.Reconnected()
			w.reconnected(ctx)
		case <-w.again.C:
			w.repeat(ctx)
		case <-look.C:
			left := w.left()
			if left == 0 && w.Repeatable && !w.roaming {
				w.roam(ctx)
			}
			if vigil.look(time.Now(), left) && core == nil {
				core = w.cores.ask(ctx)
			}
		case there := <-core:
			core = nil
			if vigil.over(time.Now(), there, w.left()) {
				return w.orElse(fmt.Errorf("%w: plugin %s is gone with all replicas that may have it",
					ErrLost, w.Plugin))
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
	remembers := w.route[w.at].replica != ""
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	case len(w.sent) == 0:
		return fmt.Errorf("%w: nobody listened on %s: %w", ErrNotAsked, w.Subject, err)
	case w.left() == 0, !remembers && w.left() < len(w.replicas):
		return fmt.Errorf("%w: a replica of plugin %s that may have it is gone: %w", ErrLost, w.Plugin, err)
	case !w.gone.IsZero():
		return fmt.Errorf("%w: the replica of plugin %s that may have it does not listen: %w",
			ErrLost, w.Plugin, err)
	case !w.bus.Connected(), !remembers && w.disconnected():
		return fmt.Errorf("%w: the connection to the bus was lost meanwhile: %w", ErrLost, err)
	}
	return err
}

// disconnected reports whether the connection was lost since the request was sent.
func (w *wait) disconnected() bool { return w.bus.Conn().Stats().Reconnects != w.reconnects }

func (w *wait) read(r bus.Reply) ([]byte, error) {
	switch {
	case r.Err == nil:
		return r.Data, nil
	case r.Header.Get(bus.ErrorHeader) != "":
		return nil, fmt.Errorf("plugin %s: %w", w.Plugin, r.Err)
	case r.Header == nil: // denied: this copy, or another one to the same subject
		return nil, fmt.Errorf("%w: %w", ErrLost, r.Err)
	}
	return nil, fmt.Errorf("%w: %w", ErrUnreadable, r.Err)
}
