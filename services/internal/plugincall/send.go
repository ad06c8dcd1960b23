package plugincall

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/registry"
)

const (
	// retryIn is how soon a target without a listener is tried again.
	retryIn = 100 * time.Millisecond
	// firstRepeat and lastRepeat are the first and the longest interval after which a
	// replica that remembers is asked again, because the replica's own connection may
	// have lost a request or an answer.
	firstRepeat = time.Second
	lastRepeat  = 30 * time.Second
	// patience is how long a replica that may have a repeatable request, but does not
	// listen, is tried before another one.
	patience = time.Second
	// deadAfter is how long a replica that remembers, and has the request, may fail to
	// listen before it is considered dead. Its name is never reused, and a replica
	// that reconnects is back sooner.
	deadAfter = 4 * time.Second
)

// target is where a request can be sent.
type target struct {
	subject string
	replica subject.Instance // empty: any replica, by the plugin's queue group
}

// sending is one copy of the request.
type sending struct {
	forget func()
	void   atomic.Bool // it was not delivered
	denied error       // why it was not delivered, unless there is no listener; set before void
}

// targets returns all possible targets, in the order in which to try them: replicas that
// remember and are not draining, then those that are draining, and last the queue group.
func (w *wait) targets() []target {
	var stay, leave []target
	if p := w.view.Snapshot().Get(w.Plugin); w.Replicas && p != nil && p.Hash == w.Hash {
		for _, i := range rand.Perm(len(p.Instances)) {
			l := p.Instances[i]
			t := target{subject.Replica(w.Subject, l.Instance), l.Instance}
			if l.Draining {
				leave = append(leave, t)
			} else {
				stay = append(stay, t)
			}
		}
	}
	return append(slices.Concat(stay, leave), target{subject: w.Subject})
}

// start sends the request to the first of all targets.
func (w *wait) start(ctx context.Context) error {
	w.route, w.at = w.targets(), 0
	return w.send(ctx)
}

// send sends the request to the current target.
func (w *wait) send(ctx context.Context) error {
	t, s := w.route[w.at], &sending{}
	hdr := make(nats.Header, 3)
	if at, has := ctx.Deadline(); has {
		bus.SetDeadline(hdr, at)
	}
	leave := w.enter(t.subject)
	forget, err := w.caller.SendWhole(ctx, t.subject, string(w.Plugin), hdr, w.Body, func(r bus.Reply) { w.take(t, s, r) })
	if err != nil {
		leave()
		w.again.Reset(retryIn)
		return err
	}
	s.forget = func() { forget(); leave() }
	w.sent, w.last = append(w.sent, s), s
	if w.again.Stop(); t.replica != "" {
		w.again.Reset(w.repeatIn)
		w.repeatIn = min(2*w.repeatIn, lastRepeat)
	}
	return nil
}

// take keeps the first answer, or notes that this copy was not delivered.
func (w *wait) take(t target, s *sending, r bus.Reply) {
	// The server dropped a message to that subject, but does not say which one.
	denied := r.Header == nil && r.Err != nil
	if !r.NoResponders && (!denied || !w.isOnly(t.subject)) {
		select {
		case w.answer <- r:
		default:
		}
		return
	}
	if denied {
		s.denied = r.Err
	}
	s.void.Store(true)
	select {
	case w.voided <- struct{}{}:
	default:
	}
}

// onVoid handles a copy that was not delivered. The error is [ErrNotAsked] if no copy was
// delivered and no target is left.
func (w *wait) onVoid(ctx context.Context) error {
	w.sent = slices.DeleteFunc(w.sent, func(s *sending) bool {
		if s.void.Load() {
			s.forget()
			return true
		}
		return false
	})
	if !w.last.void.Load() {
		return nil // it was an older copy
	}
	if w.gone.IsZero() && len(w.sent) > 0 {
		w.gone = time.Now()
	}
	switch {
	case len(w.sent) == 0 || w.roaming:
		if w.at+1 < len(w.route) {
			w.at++
			_ = w.send(ctx) // retried soon if it fails
			return nil
		}
		if len(w.sent) == 0 && !w.bus.Settling() {
			return w.notAsked()
		}
	case w.Repeatable && time.Since(w.gone) > patience:
		w.roam(ctx)
		return nil
	case !w.Repeatable && w.dead():
		return fmt.Errorf("%w: the replica of plugin %s that may have it has not listened for %v",
			ErrLost, w.Plugin, deadAfter)
	}
	w.again.Reset(retryIn)
	return nil
}

// dead reports whether the replica that was asked has died. A draining replica does
// not listen either, but still answers.
func (w *wait) dead() bool {
	t := w.route[w.at]
	if t.replica == "" || w.gone.IsZero() || time.Since(w.gone) < deadAfter || w.bus.Settling() {
		return false
	}
	p := w.view.Snapshot().Get(w.Plugin)
	return p != nil &&
		slices.ContainsFunc(p.Instances, func(l registry.Lease) bool { return l.Instance == t.replica && !l.Draining })
}

func (w *wait) notAsked() error {
	if w.last.denied != nil {
		return fmt.Errorf("%w: %w", ErrNotAsked, w.last.denied)
	}
	return fmt.Errorf("%w: no plugin listens on %s", ErrNotAsked, w.Subject)
}

// roam asks any replica from now on, because running the request twice does no harm.
func (w *wait) roam(ctx context.Context) {
	w.roaming, w.gone, w.repeatIn = true, time.Time{}, firstRepeat
	_ = w.start(ctx) // retried soon if it fails
}

// repeat sends the request again if that is safe: it was not delivered, or the target
// remembers, or running it twice does no harm.
func (w *wait) repeat(ctx context.Context) {
	void := w.last.void.Load()
	if !void {
		w.gone = time.Time{}
	}
	switch {
	case len(w.sent) == 0, w.roaming && void:
		_ = w.start(ctx) // retried soon if it fails
	case w.route[w.at].replica != "", w.Repeatable:
		_ = w.send(ctx)
	}
}

// reconnected sends the request again, because it or its answer may have been lost with
// the connection.
func (w *wait) reconnected(ctx context.Context) {
	w.repeatIn = firstRepeat
	w.repeat(ctx)
}

// left counts the replicas with a lease that may have the request.
func (w *wait) left() int {
	switch t := w.route[w.at]; {
	case w.roaming:
		return w.Asker.left(w.Plugin, nil)
	case t.replica != "":
		return w.Asker.left(w.Plugin, []subject.Instance{t.replica})
	}
	return w.Asker.left(w.Plugin, w.replicas)
}
