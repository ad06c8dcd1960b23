package schedules

import (
	"context"
	"errors"
	"strconv"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// handleIdle emits an input if the session is idle for long enough, and somebody has spoken since the
// last one.
func (s *Schedules) handleIdle(ctx context.Context, r *record, now time.Time) error {
	if u := r.plan.until; !u.IsZero() && now.After(u) {
		r.Last = now
		return s.finish(ctx, r, time.Time{})
	}
	if r.Pending == "" {
		again, err := s.idleSince(ctx, r, now)
		if err != nil {
			return err
		}
		if !again.IsZero() {
			return s.layAt(ctx, r, again)
		}
	}
	// The input itself ends the idleness: the id is recorded before, so that a repetition is the same.
	seq, err := s.emit(ctx, r, r.Pending, "", now)
	if err != nil {
		return err
	}
	r.Input, r.Pending, r.Last = seq, "", now
	r.Occurred++
	return s.finish(ctx, r, now.Add(r.plan.idle))
}

// idleSince returns when to look again; zero, and an id in r.Pending, if the schedule occurs now.
func (s *Schedules) idleSince(ctx context.Context, r *record, now time.Time) (again time.Time, err error) {
	last, seq, err := s.lastActivity(ctx, r)
	if err != nil {
		return again, err
	}
	if at := last.Add(r.plan.idle); at.After(now) {
		return at, nil
	}
	state, err := s.cfg.State(ctx, r.Ref)
	if err != nil {
		s.cfg.Log.Warn("a schedule waits: its session cannot be read", "session", r.Ref, "name", r.Name, "error", err)
		return now.Add(minInterval), nil
	}
	if state.Turn != nil || len(state.Queue) > 0 {
		return now.Add(minInterval), nil
	}
	inputs, err := s.cfg.Bus.LastInputs(ctx, r.Ref)
	if err != nil {
		return again, err
	}
	delete(inputs, subject.ScheduleWriter)
	spoken := r.Input == 0
	for _, at := range inputs {
		spoken = spoken || at > r.Input
	}
	if !spoken {
		return now.Add(r.plan.idle), nil
	}
	r.Pending = idleID(r, seq)
	return again, s.save(ctx, r)
}

func idleID(r *record, seq uint64) string {
	return r.Name + "/" + r.Made + "/idle-" + strconv.FormatUint(seq, 10)
}

// lastActivity returns when the session's last message was stored, and its sequence; the creation of
// the schedule if that is later.
func (s *Schedules) lastActivity(ctx context.Context, r *record) (time.Time, uint64, error) {
	m, err := s.cfg.Bus.LastMessage(ctx, r.Ref)
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return time.Time{}, 0, err
	}
	if m.Time.Before(r.Created) {
		return r.Created, m.Seq, nil
	}
	return m.Time, m.Seq, nil
}
