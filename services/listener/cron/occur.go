package cron

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	fetchWait = 5 * time.Second
	emitWait  = 20 * time.Second // of one input, below ackWait
	skew      = time.Minute      // by how much the server's clock may be ahead of this one's
)

// next waits up to fetchWait for a due occurrence and handles it.
func (l *Listener) next(wait, work context.Context, s *store) error {
	fetch, cancel := context.WithTimeout(wait, fetchWait)
	defer cancel()
	batch, err := s.consumer.Fetch(1, jetstream.FetchContext(fetch))
	if err != nil {
		return fmt.Errorf("fetching due occurrences: %w", err)
	}
	for m := range batch.Messages() {
		leave, ok := l.inFlight.Enter()
		if !ok {
			return m.Nak() // stopping: leave it to another replica or the next start
		}
		err := l.handle(work, s, m)
		leave()
		if err != nil {
			l.log.Warn("due occurrence was not emitted; it will be redelivered", "subject", m.Subject(), "error", err)
			_ = m.NakWithDelay(retryPause) // if this fails it is redelivered after ackWait
		}
	}
	err = batch.Error()
	if wait.Err() != nil || err == nil || nothing(err) {
		return nil
	}
	return fmt.Errorf("fetching due occurrences: %w", err)
}

// nothing reports whether the error only means that nothing was due.
func nothing(err error) bool {
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, jetstream.ErrNoMessages)
}

// handle emits what is due of an entry, stores its next schedule, and acknowledges.
func (l *Listener) handle(ctx context.Context, s *store, m jetstream.Msg) error {
	_, name, err := parseOccurred(m.Subject())
	var due plan
	if err == nil {
		err = json.Unmarshal(m.Data(), &due)
	}
	if err != nil {
		l.log.Warn("dropping a message that is not an occurrence", "subject", m.Subject(), "error", err)
		return m.Term()
	}
	e, ok := l.entries[name]
	if !ok {
		return l.strange(ctx, s, name, m)
	}
	now := l.now().UTC()
	if early := due.At.Sub(now); early > skew {
		return m.NakWithDelay(min(early, time.Second)) // the server's clock is wrong, or this one's
	} else if early > 0 {
		now = due.At
	}
	p, err := l.position(ctx, s, &e, due.At.Add(-time.Nanosecond)) // known, unless the bucket was lost
	if err != nil {
		return err
	}
	// What is due by an outdated schedule does not occur.
	if due.Schedule == e.Schedule && due.Zone == e.Zone {
		if p, err = l.emit(ctx, s, &e, p, now, m.InProgress); err != nil {
			return err
		}
	}
	if err := l.lay(ctx, s, &e, p); err != nil {
		return err
	}
	return m.Ack()
}

// strange handles a due occurrence of an entry that this replica does not have: it was
// removed, or another replica has it.
func (l *Listener) strange(ctx context.Context, s *store, name string, m jetstream.Msg) error {
	_, known, err := s.load(ctx, name)
	if err != nil {
		return err
	}
	if known {
		return m.NakWithDelay(time.Second)
	}
	return m.Term()
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
