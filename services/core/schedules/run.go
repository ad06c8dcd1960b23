package schedules

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/clock"
)

const (
	lookEvery  = time.Minute            // how often the schedules are looked through
	retryPause = 500 * time.Millisecond // after something failed
	emitWait   = 20 * time.Second       // for one occurrence
	keepGone   = time.Hour              // how long the bucket keeps deletions
)

// alarm is what the clock keeps until a schedule is due.
type alarm struct {
	Made string    `json:"made"` // of which schedule by the name
	At   time.Time `json:"at"`   // the occurrence, without jitter; of an idle session, when to look
}

// run makes schedules occur until ctx ends. It begins once there are any.
func (s *Schedules) run(ctx context.Context) {
	for ctx.Err() == nil {
		if s.await(ctx) != nil {
			return
		}
		if len(s.list(func(*record) bool { return true })) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-s.wake:
			}
			continue
		}
		if err := s.serve(ctx); err != nil && ctx.Err() == nil {
			s.bursts.Log(slog.LevelInfo, "serve", "schedules failed; retrying", "error", err)
			s.closeClock()
			select {
			case <-ctx.Done():
			case <-time.After(retryPause):
			}
		}
	}
}

// serve takes what is due, and looks the schedules through every now and then.
func (s *Schedules) serve(ctx context.Context) error {
	c, err := s.openClock(ctx)
	if err != nil {
		return err
	}
	if err := s.lookThrough(ctx); err != nil {
		return err
	}
	for again := time.Now().Add(lookEvery); time.Now().Before(again) && ctx.Err() == nil; {
		err := c.Take(ctx, func(d clock.Due) error {
			ctx, cancel := context.WithTimeout(ctx, emitWait)
			defer cancel()
			return s.handle(ctx, d)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lookThrough sets the clock of every schedule whose agent is configured.
func (s *Schedules) lookThrough(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	for _, r := range s.list(func(r *record) bool { return s.cfg.Known(r.Agent) }) {
		if err := s.lay(ctx, r); err != nil {
			return err
		}
	}
	s.forget(ctx)
	return nil
}

// forget removes old deletions from the bucket. The last change of an agent stays: creating refers to it.
func (s *Schedules) forget(ctx context.Context) {
	s.mu.Lock()
	old := map[string]uint64{}
	for k, e := range s.deleted {
		if s.cfg.Now().Sub(e.Time) > keepGone && e.Revision < s.changed[agentOf(k)] {
			old[k] = e.Revision
		}
	}
	s.mu.Unlock()
	for k, revision := range old {
		if err := s.bucket.Forget(ctx, k, revision); err != nil {
			s.cfg.Log.Debug("forgetting a deleted schedule", "schedule", k, "error", err)
			return
		}
		s.mu.Lock()
		if s.deleted[k].Revision == revision {
			delete(s.deleted, k)
		}
		s.mu.Unlock()
	}
}

// lay sets the clock of a schedule.
func (s *Schedules) lay(ctx context.Context, r *record) error {
	c, err := s.openClock(ctx)
	if err != nil {
		return err
	}
	if r.plan.hook {
		if r.plan.until.IsZero() {
			return nil
		}
		return s.layAt(ctx, r, r.plan.until)
	}
	if r.plan.idle > 0 {
		if laid, err := c.Laid(ctx, r.key()); err != nil || laid {
			return err
		}
		return s.layAt(ctx, r, r.Last.Add(r.plan.idle))
	}
	next := r.plan.next(r.Last)
	if next.IsZero() {
		return nil
	}
	return s.layAt(ctx, r, next)
}

// layAt sets the clock of a schedule to a time.
func (s *Schedules) layAt(ctx context.Context, r *record, at time.Time) error {
	c, err := s.openClock(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(alarm{r.Made, at.UTC()})
	if err != nil {
		return err
	}
	return c.Lay(ctx, r.key(), r.plan.late(r.key(), at), body)
}

// handle makes an occurrence of what is due, sets the clock again, and acknowledges.
func (s *Schedules) handle(ctx context.Context, d clock.Due) error {
	var a alarm
	if err := json.Unmarshal(d.Body, &a); err != nil {
		s.cfg.Log.Warn("dropping a message that is no schedule's", "schedule", d.Entry, "error", err)
		return d.Drop()
	}
	r, err := s.load(ctx, d.Entry)
	switch {
	case err != nil:
		return err
	case r == nil:
		return d.Drop() // it was deleted
	case !s.cfg.Known(r.Agent):
		s.cfg.Log.Warn("a schedule does not occur: its agent is not configured", "session", r.Ref, "name", r.Name)
		return d.Done() // lookThrough sets the clock again once it is
	case a.Made != r.Made:
		err = s.lay(ctx, r) // it was replaced
	case r.plan.idle > 0:
		err = s.handleIdle(ctx, r, s.now(d))
	case r.plan.hook:
		err = s.drop(ctx, r.key(), r.revision) // its end has come
	case s.isDeleted(ctx, r.Ref):
		return d.Done() // likewise, if the session is undeleted
	case r.watches():
		err = s.handleWatch(ctx, r, s.now(d))
	default:
		err = s.handleTime(ctx, r, s.now(d))
	}
	if err != nil {
		return err
	}
	return d.Done()
}

// isDeleted reports whether a session was deleted. Once it cannot be undeleted, [Schedules.Forget] removes its schedules.
func (s *Schedules) isDeleted(ctx context.Context, ref subject.Ref) bool {
	state, err := s.cfg.State(ctx, ref)
	return err == nil && state.Deleted != nil // else the input says what is wrong with the session
}

// now returns the time by the server's clock if that is ahead: what it says is due is due.
func (s *Schedules) now(d clock.Due) time.Time {
	now := s.cfg.Now().UTC()
	if d.At.After(now) {
		return d.At.UTC()
	}
	return now
}

// handleTime emits the latest occurrence that is due.
func (s *Schedules) handleTime(ctx context.Context, r *record, now time.Time) error {
	at := r.plan.due(r.key(), r.Last, now)
	if at.IsZero() { // another core did it, or the clock was set too early
		return s.lay(ctx, r)
	}
	if s.waits(ctx, r) {
		s.skipped.Add(1)
		s.cfg.Log.Info("an occurrence is skipped: the input of the previous one still waits", "session", r.Ref, "name", r.Name)
	} else {
		if _, err := s.emit(ctx, r, r.Name+"/"+r.Made+"/"+at.Format(time.RFC3339), "", at); err != nil {
			return err
		}
		r.Occurred++
	}
	r.Last = at
	return s.finish(ctx, r, time.Time{})
}

// waits reports whether an input of the schedule is in the session's queue.
func (s *Schedules) waits(ctx context.Context, r *record) bool {
	state, err := s.cfg.State(ctx, r.Ref)
	if err != nil {
		return false // the input says what is wrong with the session
	}
	for _, in := range state.Queue {
		if in.Writer == subject.ScheduleWriter && in.Source == r.source() {
			return true
		}
	}
	return false
}

// emit stores an input of the schedule, with the data from outside if any, and returns its sequence.
func (s *Schedules) emit(ctx context.Context, r *record, id, data string, at time.Time) (uint64, error) {
	seq, err := s.sender.Say(ctx, r.Ref, r.input(id, data))
	if err != nil {
		return 0, err
	}
	s.occurred.Add(1)
	s.cfg.Log.Info("scheduled input", "session", r.Ref, "name", r.Name, "at", at, "sequence", seq)
	return seq, nil
}

// finish records an occurrence and sets the clock for the next one: at a time, or as planned. A
// schedule that is over is deleted.
func (s *Schedules) finish(ctx context.Context, r *record, at time.Time) error {
	if r.over() {
		s.cfg.Log.Info("schedule is over", "session", r.Ref, "name", r.Name, "occurred", r.Occurred)
		return s.drop(ctx, r.key(), r.revision)
	}
	if err := s.save(ctx, r); err != nil {
		return err
	}
	if at.IsZero() {
		return s.lay(ctx, r)
	}
	return s.layAt(ctx, r, at)
}
