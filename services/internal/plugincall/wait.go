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
	replicas   []subject.Instance // that had a lease when the wait began
	reconnects uint64             // the connection's count when the wait began

	answer chan bus.Reply
	back   <-chan struct{} // closed at the next reconnect
	voided chan struct{}   // a copy was not delivered
	again  *time.Timer     // fires when the request should be sent again

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
		answer: make(chan bus.Reply, 1), voided: make(chan struct{}, 1), again: time.NewTimer(firstRepeat),
		repeatIn: firstRepeat,
	}
}

// forget stops waiting for answers.
func (w *wait) forget() {
	w.again.Stop()
	for _, s := range w.sent {
		s.forget()
	}
}

func (w *wait) await(ctx context.Context) ([]byte, error) {
	look := time.NewTicker(w.every)
	defer look.Stop()
	period := gracePeriod{grace: w.grace}
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
			if period.observe(time.Now(), left) && core == nil {
				core = w.cores.ask(ctx)
			}
		case up := <-core:
			core = nil
			if period.over(time.Now(), up, w.left()) {
				return w.orElse(fmt.Errorf("%w: all replicas of plugin %s that may have it are gone",
					ErrLost, w.Plugin))
			}
		}
	}
}

// gracePeriod decides how long to wait for replicas that are gone.
type gracePeriod struct {
	grace time.Duration
	gone  time.Time // since when no replica has been left although a core was up; zero: not now
}

// observe records how many of the replicas are left. It reports whether over must be
// called next, with whether a core is up.
func (v *gracePeriod) observe(now time.Time, left int) bool {
	switch {
	case left > 0:
		v.gone = time.Time{}
	case v.gone.IsZero():
		v.gone = now
	}
	return left == 0
}

// over records whether a core is up, and reports whether the grace period has ended.
func (v *gracePeriod) over(now time.Time, core bool, left int) bool {
	if !core {
		v.gone = time.Time{}
	}
	return !v.gone.IsZero() && now.Sub(v.gone) >= v.grace && left == 0
}

// orElse returns the answer if it has arrived at the last moment, or else err.
func (w *wait) orElse(err error) ([]byte, error) {
	select {
	case r := <-w.answer:
		return w.read(r)
	default:
		return nil, err
	}
}

// ended returns the reason why there is no answer now that the context has ended.
func (w *wait) ended(ctx context.Context) error {
	err := ctx.Err()
	remembers := w.route[w.at].replica != ""
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	case len(w.sent) == 0:
		return fmt.Errorf("%w: no plugin listened on %s: %w", ErrNotAsked, w.Subject, err)
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
