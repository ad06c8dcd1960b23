package shell

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/directory"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/periodic"
)

// DefaultOpenSessions is how many sessions a core has open at once.
const DefaultOpenSessions = directory.DefaultOpenSessions

// overflow holds inputs while a core has the maximum number of open sessions, and extends
// their deliveries. When a session closes, the one that has waited longest is opened with
// all its inputs. While any session waits, new inputs for open sessions wait, too. Other
// causes, such as answers, cancels and commands, open their session at once.
type overflow struct {
	mu    sync.Mutex
	order []subject.Ref
	held  map[subject.Ref][]journal.Delivery
}

// overflowEvery is how often waiting deliveries are extended.
const overflowEvery = time.Second

func newOverflow() *overflow { return &overflow{held: map[subject.Ref][]journal.Delivery{}} }

// put adds a delivery. It keeps the latest of each cause.
func (l *overflow) put(ref subject.Ref, d journal.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ds, waits := l.held[ref]
	if !waits {
		l.order = append(l.order, ref)
	}
	if i := slices.IndexFunc(ds, func(o journal.Delivery) bool { return o.Seq == d.Seq }); i >= 0 {
		ds[i] = d
		return
	}
	l.held[ref] = append(ds, d)
}

// take removes and returns the deliveries of the session.
func (l *overflow) take(ref subject.Ref) []journal.Delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	ds, waits := l.held[ref]
	if waits {
		delete(l.held, ref)
		l.order = slices.DeleteFunc(l.order, func(r subject.Ref) bool { return r == ref })
	}
	return ds
}

// next returns the session that has waited longest.
func (l *overflow) next() (subject.Ref, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.order) == 0 {
		return subject.Ref{}, false
	}
	return l.order[0], true
}

// all lists the waiting deliveries.
func (l *overflow) all() []journal.Delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []journal.Delivery
	for _, ref := range l.order {
		out = append(out, l.held[ref]...)
	}
	return out
}

// len returns the number of waiting sessions.
func (l *overflow) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.order)
}

// extend extends the waiting deliveries, until ctx ends.
func (l *overflow) extend(ctx context.Context, log *slog.Logger) {
	periodic.Every(ctx, overflowEvery, func() {
		for _, d := range l.all() {
			if err := d.InProgress(); err != nil {
				log.Debug("extending a waiting delivery", "cause", d.Seq, "error", err)
				break // no connection: the rest fails the same way
			}
		}
	})
}

// clear drops all deliveries, after their log was lost.
func (l *overflow) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order = nil
	clear(l.held)
}

// handBack returns all deliveries to the server, at shutdown.
func (l *overflow) handBack(log *slog.Logger) {
	for _, d := range l.all() {
		if err := d.Nak(0); err != nil {
			log.Debug("handing back a delivery", "error", err)
		}
	}
}
