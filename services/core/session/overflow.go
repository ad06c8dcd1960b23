package session

import (
	"slices"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/periodic"
)

// overflow holds inputs while a core has the maximum number of open sessions. When a
// session closes, the one that has waited longest is opened with all its inputs. While any
// session waits, new inputs for open sessions wait, too. Other causes, such as answers,
// cancels and commands, open their session at once. The caller of its methods holds the
// lock of the set.
type overflow struct {
	order []subject.Ref
	held  map[subject.Ref][]delivery
}

// overflowEvery is how often waiting deliveries are extended.
const overflowEvery = time.Second

func newOverflow() overflow { return overflow{held: map[subject.Ref][]delivery{}} }

// put adds a delivery. It keeps the latest of each cause.
func (l *overflow) put(d delivery) {
	ref := d.at.Ref
	ds, waits := l.held[ref]
	if !waits {
		l.order = append(l.order, ref)
	}
	if i := slices.IndexFunc(ds, func(o delivery) bool { return o.Seq == d.Seq }); i >= 0 {
		d.fresh = d.fresh || ds[i].fresh
		ds[i] = d
		return
	}
	l.held[ref] = append(ds, d)
}

// next removes and returns the deliveries of the session that has waited longest.
func (l *overflow) next() []delivery {
	if len(l.order) == 0 {
		return nil
	}
	ref := l.order[0]
	l.order = l.order[1:]
	ds := l.held[ref]
	delete(l.held, ref)
	return ds
}

// waiting lists the waiting deliveries.
func (s *Set) waiting() (out []delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range s.overflow.order {
		out = append(out, s.overflow.held[ref]...)
	}
	return out
}

// extendWaiting extends the waiting deliveries, until the set ends.
func (s *Set) extendWaiting() {
	periodic.Every(s.ctx, overflowEvery, func() {
		for _, d := range s.waiting() {
			if err := d.InProgress(); err != nil {
				s.Log.Debug("extending a waiting delivery", "cause", d.Seq, "error", err)
				break // no connection: the rest fails the same way
			}
		}
	})
}
