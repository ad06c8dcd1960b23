package session

import (
	"errors"
	"fmt"
	"time"

	"skandha.dev/services/core/attempt"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/internal/coreapi"
)

// This core cannot decide about a session that a newer core wrote, because it does not
// know the new commits. The session's causes wait in the log and are redelivered until a
// newer core accepts them. They do not count as backlog, because no running core can
// reduce it. If no newer core is running, /reset and /repair continue the session without
// the newer core's commits.

// The delays before the redelivery of a cause that this core cannot decide, and how
// long it gathers such causes of a session before it reads the log again.
const (
	newerPause    = 2 * time.Second
	newerPauseMax = time.Minute
	newerGather   = time.Second
)

// newer hands the deliveries back, for a core that knows the version in which the
// session was written, and notifies users and operators. It returns true if a user asked
// to continue without the newer commits, and there is now a state to continue from.
func (s *session) newer(err error) bool {
	if by, asked := s.takeoverCommand(); asked {
		return s.takeOver(err, by)
	}
	why := fmt.Sprintf("this session was written by a newer core (%v)", errors.Unwrap(err))
	fresh := s.Troubles.Note(s.ref, coreapi.TroubleNewer,
		why+"; update this core, or start the session over with /reset")
	if fresh {
		s.Log.ErrorContext(s.ctx, "ALARM: a session was written by a newer core; its inputs wait until this core is updated",
			"session", s.ref, "error", err)
	}
	s.dropWork()
	s.state, s.doubt.next = nil, time.Now().Add(newerGather)
	for seq, h := range s.held {
		fresh = fresh || h.NumDelivered == 1
		pause := min(newerPause<<min(h.NumDelivered-1, 10), newerPauseMax)
		s.Troubles.Park(s.ref, seq, time.Now().Add(pause+2*newerGather))
		s.giveBack(h, pause)
	}
	if fresh {
		s.Live.Notify(s.ctx, s.ref, attempt.Nonce(),
			"Your input waits: "+why+". It will be processed once this core is updated.")
	}
	return false
}

// takeoverCommand returns the held /reset or /repair that asks to continue without the
// newer core's commits. asked is false if there is none, or if a newer core is running,
// which can process the command itself.
func (s *session) takeoverCommand() (name string, asked bool) {
	if s.Directory.NewestFold() > decide.FoldVersion {
		return "", false
	}
	for _, h := range s.held {
		if name := causeOf(h.at, h.StoredMsg).Command(); name == commands.Reset || name == commands.Repair {
			return name, true
		}
	}
	return "", false
}

// takeOver treats the newer core's commits as damage of the log: it locks the session,
// and the command that was sent opens it.
func (s *session) takeOver(err error, by string) bool {
	known, still := s.Loader.Rebuild(s.ctx, s.ref)
	if !errors.Is(still, decide.ErrNewer) {
		return false // read it again
	}
	s.Log.WarnContext(s.ctx, "continuing a session without the commits of a newer core",
		"session", s.ref, "command", by, "readable", known.Rev, "error", err)
	s.dropWork()
	s.state, s.doubt = nil, doubt{alarmed: true}
	d := &loader.Damage{
		Ref: s.ref, Saved: known, Readable: known.Rev, Latest: known.Now, Cause: still,
		Why: fmt.Sprintf("%v, and no newer core is running", still),
	}
	if err := s.lock(d); err != nil {
		s.Log.WarnContext(s.ctx, "locking a session that a newer core wrote; will retry", "session", s.ref, "error", err)
		s.doubt.next = time.Now().Add(newerGather)
		return false
	}
	return true
}
