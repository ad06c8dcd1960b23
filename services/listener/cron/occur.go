package cron

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"skandha.dev/services/internal/clock"
)

const emitWait = 20 * time.Second // of one input, below the time in which it must be acknowledged

// next waits some seconds for a due occurrence and handles it.
func (l *Listener) next(wait, work context.Context, s *store) error {
	return s.clock.Take(wait, func(d clock.Due) error {
		leave, ok := l.inFlight.Enter()
		if !ok {
			return d.Later(0) // stopping: leave it to another replica or the next start
		}
		defer leave()
		return l.handle(work, s, d)
	})
}

// handle emits what is due of an entry, stores its next schedule, and acknowledges.
func (l *Listener) handle(ctx context.Context, s *store, d clock.Due) error {
	var due plan
	if err := json.Unmarshal(d.Body, &due); err != nil {
		l.log.Warn("dropping a message that is not an occurrence", "entry", d.Entry, "error", err)
		return d.Drop()
	}
	e, ok := l.entries[d.Entry]
	if !ok {
		return l.strange(ctx, s, d)
	}
	now := l.now().UTC()
	if early := due.At.Sub(now); early > clock.Skew {
		return d.Later(min(early, time.Second)) // the server's clock is wrong, or this one's
	} else if early > 0 {
		now = due.At
	}
	p, err := l.position(ctx, s, &e, due.At.Add(-time.Nanosecond)) // known, unless the bucket was lost
	if err != nil {
		return err
	}
	// What is due by an outdated schedule does not occur.
	if due.Schedule == e.Schedule && due.Zone == e.Zone {
		if p, err = l.emit(ctx, s, &e, p, now, d.Alive); err != nil {
			return err
		}
	}
	if err := l.lay(ctx, s, &e, p); err != nil {
		return err
	}
	return d.Done()
}

// strange handles a due occurrence of an entry that this replica does not have: it was
// removed, or another replica has it.
func (l *Listener) strange(ctx context.Context, s *store, d clock.Due) error {
	_, known, err := s.load(ctx, d.Entry)
	if err != nil {
		return err
	}
	if known {
		return d.Later(time.Second)
	}
	return d.Drop()
}

// emit emits what is due, records each occurrence, and returns the entry's new position.
func (l *Listener) emit(
	ctx context.Context, s *store, e *entry, p position, now time.Time, alive func() error,
) (position, error) {
	due, newest := e.due(p.Last, now)
	if newest.IsZero() {
		return p, nil // another replica did it
	}
	if all := len(e.schedule.Between(p.Last, now, MaxCatchUp)); all > len(due) {
		l.stats.Missed.Add(int64(all - len(due)))
		l.log.Warn("missed occurrences were skipped", "entry", e.name, "at_least", all-len(due), "until", now,
			"catch_up", e.CatchUp)
	}
	for _, at := range due {
		if err := alive(); err != nil {
			return p, err
		}
		if err := l.occur(ctx, e, at); err != nil {
			return p, err
		}
		var err error
		if p, err = l.advance(ctx, s, e, p, at); err != nil {
			return p, err
		}
	}
	return l.advance(ctx, s, e, p, newest)
}

func (l *Listener) occur(ctx context.Context, e *entry, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, emitWait)
	defer cancel()
	r, err := l.emitter.EmitInput(ctx, e.input(at))
	if err != nil {
		return err
	}
	l.stats.Occurred.Add(1)
	l.log.Info("occurred", "entry", e.name, "at", at, "sequence", r.Sequence, "late", l.now().Sub(at))
	return nil
}

// advance records that the occurrence at a time is done.
func (l *Listener) advance(ctx context.Context, s *store, e *entry, p position, at time.Time) (position, error) {
	for p.Last.Before(at) {
		p.Last = at
		ok, err := s.save(ctx, e.name, &p)
		if err != nil || ok {
			return p, err
		}
		var known bool
		if p, known, err = s.load(ctx, e.name); err != nil {
			return p, err
		}
		if !known || p.Schedule != e.Schedule || p.Zone != e.Zone {
			return p, fmt.Errorf("entry %s was changed or removed by another replica", e.name)
		}
	}
	return p, nil
}
