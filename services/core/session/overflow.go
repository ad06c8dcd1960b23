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
	people, others []subject.Ref
	opened         int // of people, since the last of the others
	held           map[subject.Ref][]delivery
}

const (
	overflowEvery = time.Second // how often waiting deliveries are extended
	peopleFirst   = 4           // sessions of people that are opened before one of the others
)

func newOverflow() overflow { return overflow{held: map[subject.Ref][]delivery{}} }

func (l *overflow) len() int { return len(l.people) + len(l.others) }

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
	switch person := d.forPerson(); {
	case !waits && person:
		l.people = append(l.people, ref)
	case !waits:
		l.others = append(l.others, ref)
	case person: // a person has joined it
		if at := slices.Index(l.others, ref); at >= 0 {
			l.others = slices.Delete(l.others, at, at+1)
			l.people = append(l.people, ref)
		}
	}
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

// next removes and returns the deliveries of the session that is to be opened.
func (l *overflow) next() []delivery {
	from := &l.people
	if len(l.people) == 0 || l.opened >= peopleFirst && len(l.others) > 0 {
		from = &l.others
	}
	if len(*from) == 0 {
		return nil
	}
	if l.opened++; from == &l.others {
		l.opened = 0
	}
	ref := (*from)[0]
	*from = (*from)[1:]
	ds := l.held[ref]
	delete(l.held, ref)
	return ds
}

// waiting lists the waiting deliveries.
func (s *Set) waiting() (out []delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range slices.Concat(s.overflow.people, s.overflow.others) {
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
