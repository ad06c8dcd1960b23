package session

import (
	"encoding/json"
	"slices"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/periodic"
)

// overflow holds inputs while a core has the maximum number of open sessions. When a
// session closes, the one that has waited longest is opened with all its inputs: of five, four for
// which a person waits, and one for which nobody does, if there are such. While any
// session waits, new inputs for open sessions wait, too. Other causes, such as answers,
// cancels and commands, open their session at once. The caller of its methods holds the
// lock of the set.
type overflow struct {
	line[subject.Ref]
	held map[subject.Ref][]delivery
}

// overflowEvery is how often waiting deliveries are extended.
const overflowEvery = time.Second

func newOverflow() overflow { return overflow{held: map[subject.Ref][]delivery{}} }

// put adds a delivery. It keeps the latest of each cause.
func (l *overflow) put(d delivery) {
	ref := d.at.Ref
	ds, waits := l.held[ref]
	if i := slices.IndexFunc(ds, func(o delivery) bool { return o.Seq == d.Seq }); i >= 0 {
		d.fresh = d.fresh || ds[i].fresh
		ds[i] = d
		return
	}
	l.held[ref] = append(ds, d)
	l.add(ref, waits, d.forPerson())
}

// forPerson reports whether a person waits for the input.
func (d delivery) forPerson() bool {
	var in struct {
		Source string       `json:"source"`
		Origin event.Origin `json:"origin"`
		From   string       `json:"from"`
	}
	if err := json.Unmarshal(d.Data, &in); err != nil {
		return false // it ends at once
	}
	return decide.ForPerson(d.at.Writer, in.Source, in.Origin, in.From)
}

// open removes and returns the deliveries of the session that is to be opened.
func (l *overflow) open() []delivery {
	ref, ok := l.take()
	if !ok {
		return nil
	}
	ds := l.held[ref]
	delete(l.held, ref)
	return ds
}

// waiting lists the waiting deliveries.
func (s *Set) waiting() (out []delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range s.overflow.all() {
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
