package session

import (
	"errors"
	"fmt"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
)

// doubt tracks suspected damage of a session's log. The log is read again before it
// counts as damaged: a replica may lag, and a leader may change.
type doubt struct {
	times   int
	rev     uint64        // the last commit that could be read
	base    *decide.State // the state that the log did not confirm
	next    time.Time     // earliest time to read again or to try to lock
	alarmed bool          // the alarm was raised
}

// How many reads establish the damage before the session is locked, and the pauses
// between reads: doubtPause doubles each time, up to lockPause.
const (
	sureAfter  = 4
	doubtPause = 250 * time.Millisecond
	lockPause  = 30 * time.Second
)

// suspect notes that the log seems to be damaged, and locks the session once that
// is certain. It reports whether there is a state to continue from.
func (s *session) suspect(d *loader.Damage) bool {
	if s.state != nil { // it must not be used to decide or acknowledge anything
		s.doubt.base, s.state = s.state, nil
		s.dropWork()
	}
	now := time.Now()
	if now.Before(s.doubt.next) {
		return false
	}
	if s.doubt.rev != d.Readable {
		s.doubt.times, s.doubt.rev = 0, d.Readable
	}
	s.doubt.times++
	s.doubt.next = now.Add(min(doubtPause<<min(s.doubt.times, 10), lockPause))
	if s.doubt.times < sureAfter {
		s.Log.WarnContext(s.ctx, "a session's log seems to be damaged; reading it again", "session", s.ref, "error", d)
		return false
	}
	if err := s.lock(d); err != nil {
		s.Log.WarnContext(s.ctx, "locking a session whose log is damaged; will retry", "session", s.ref, "error", err)
		return false
	}
	return true
}

// lock locks a session whose log is damaged, until /repair or /reset, and fails its
// open inputs (rule 15).
func (s *session) lock(d *loader.Damage) error {
	fence, err := s.Bus.CommitFence(s.ctx, s.ref)
	if err != nil {
		return err
	}
	if fence != 0 && fence == d.Lost {
		return fmt.Errorf("commit %d is in the log, though it could not be read just now", fence)
	}
	var w decide.Wreck
	s.patiently(func() { w, err = s.Loader.Survey(s.ctx, d) })
	if err != nil {
		return err
	}
	if !s.doubt.alarmed {
		s.doubt.alarmed = true
		s.set.stats.Mismatches.Add(1)
		s.Log.ErrorContext(s.ctx, "ALARM: a session's log is damaged; locking the session until /repair or /reset", "session", s.ref,
			"error", d, "readable", w.Last, "fence", fence, "saved", savedAt(d), "open", len(w.Open))
	}
	dec := decide.OnMismatch(w, s.env(0))
	body, err := dec.Commit.Encode()
	if err != nil {
		return err
	}
	seq, err := s.Bus.AppendCommit(s.ctx, s.ref, body, fence)
	if err != nil {
		return err // if it was stored nevertheless, the next load finds it
	}
	s.Loader.Forget(s.ctx, w.State(), "the session was locked; the checkpoint holds its state")
	s.adoptLock(dec.Stored(seq), dec)
	return nil
}

// adoptLock continues from a stored lock, which is published like any commit.
func (s *session) adoptLock(next *decide.State, d *decide.Decision) {
	s.state, s.looked, s.passed, s.doubt = next, time.Now(), 0, doubt{}
	s.follow(nil)
	s.Troubles.Loaded(s.ref, next)
	s.Live.Stored(s.ctx, s.ref, d, next)
}

func savedAt(d *loader.Damage) uint64 {
	if d.Saved == nil {
		return 0
	}
	return d.Saved.Rev
}

// lostFence handles a lost fence. Normally another core committed first, and the log
// shows what it did. If the log shows nothing new, the last commit that the server
// counts is not the last that can be read.
func (s *session) lostFence(err error) outcome {
	s.set.stats.FenceLost.Add(1)
	before := s.state
	if !s.load() {
		return undecided
	}
	if s.state.Rev != before.Rev {
		return lost
	}
	var fence *bus.FenceError
	if errors.As(err, &fence) && fence.Last != before.Rev {
		s.suspect(&loader.Damage{
			Ref: s.ref, Saved: before, Readable: before.Rev, Latest: before.Now, Cause: err,
			Why: fmt.Sprintf("the server reports %d as the last commit, but the last readable commit is %d", fence.Last,
				before.Rev),
		})
	}
	return undecided
}
