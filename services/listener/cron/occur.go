package cron

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

const emitWait = 20 * time.Second // of one input

// occurAll handles the entries that are due, and returns when the next one is.
func (l *Listener) occurAll(ctx context.Context) (next time.Time, err error) {
	next = l.now().Add(lookEvery)
	for _, name := range slices.Sorted(maps.Keys(l.entries)) {
		e := l.entries[name]
		at := e.schedule.Next(l.at[name].Last)
		if !at.IsZero() && !at.After(l.now()) {
			leave, ok := l.inFlight.Enter()
			if !ok {
				return next, nil // stopping: leave it to another replica or the next start
			}
			err := l.handle(ctx, &e)
			leave()
			if err != nil {
				return next, err
			}
			at = e.schedule.Next(l.at[name].Last)
		}
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next, nil
}

// handle emits what is due of an entry, unless another replica has done it.
func (l *Listener) handle(ctx context.Context, e *entry) error {
	p, err := l.position(ctx, e, l.at[e.name].Last) // known, unless the bucket was lost
	if err != nil {
		return err
	}
	l.at[e.name], err = l.emit(ctx, e, p, l.now().UTC())
	return err
}

// emit emits what is due, records each occurrence, and returns the entry's new position.
func (l *Listener) emit(ctx context.Context, e *entry, p position, now time.Time) (position, error) {
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
		if err := l.occur(ctx, e, at); err != nil {
			return p, err
		}
		var err error
		if p, err = l.advance(ctx, e, p, at); err != nil {
			return p, err
		}
	}
	return l.advance(ctx, e, p, newest)
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
func (l *Listener) advance(ctx context.Context, e *entry, p position, at time.Time) (position, error) {
	for p.Last.Before(at) {
		p.Last = at
		ok, err := l.store.save(ctx, e.name, &p)
		if err != nil || ok {
			return p, err
		}
		var known bool
		if p, known, err = l.store.load(ctx, e.name); err != nil {
			return p, err
		}
		if !known || p.Schedule != e.Schedule || p.Zone != e.Zone {
			return p, fmt.Errorf("entry %s was changed or removed by another replica", e.name)
		}
	}
	return p, nil
}
