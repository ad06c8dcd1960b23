package shell

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
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
	fresh := s.c.troubles.note(s.ref, coreapi.TroubleNewer,
		why+"; update this core, or start the session over with /reset")
	if fresh {
		s.c.log.Error("ALARM: a session was written by a newer core; its inputs wait until this core is updated",
			"session", s.ref, "error", err)
	}
	s.dropWork()
	s.state, s.doubt.next = nil, time.Now().Add(newerGather)
	for seq, h := range s.held {
		fresh = fresh || h.NumDelivered == 1
		pause := min(newerPause<<min(h.NumDelivered-1, 10), newerPauseMax)
		s.c.parked.add(s.ref, seq, pause)
		if err := h.Nak(pause); err != nil {
			s.c.log.Debug("handing back a delivery", "session", s.ref, "cause", seq, "error", err)
		}
		delete(s.held, seq)
	}
	if fresh {
		s.notify("Your input waits: " + why + ". It will be processed once this core is updated.")
	}
	return false
}

// takeoverCommand returns the held /reset or /repair that asks to continue without the
// newer core's commits. asked is false if there is none, or if a newer core is running,
// which can process the command itself.
func (s *session) takeoverCommand() (name string, asked bool) {
	if s.c.dir.NewestFold() > decide.FoldVersion {
		return "", false
	}
	for _, h := range s.held {
		at, err := subject.ParseCause(h.Subject)
		if err != nil {
			continue
		}
		if name := causeOf(at, h.StoredMsg).Command(); name == commands.Reset || name == commands.Repair {
			return name, true
		}
	}
	return "", false
}

// takeOver treats the newer core's commits as damage of the log: it locks the session,
// and the command that was sent opens it.
func (s *session) takeOver(err error, by string) bool {
	known, still := s.c.loader.Rebuild(s.ctx, s.ref)
	if !errors.Is(still, decide.ErrNewer) {
		return false // read it again
	}
	s.c.log.Warn("continuing a session without the commits of a newer core",
		"session", s.ref, "command", by, "readable", known.Rev, "error", err)
	s.dropWork()
	s.state, s.doubt = nil, doubt{alarmed: true}
	d := &loader.Damage{
		Ref: s.ref, Saved: known, Readable: known.Rev, Latest: known.Now, Cause: still,
		Why: fmt.Sprintf("%v, and no newer core is running", still),
	}
	if err := s.lock(d); err != nil {
		s.c.log.Warn("locking a session that a newer core wrote; will retry", "session", s.ref, "error", err)
		s.doubt.next = time.Now().Add(newerGather)
		return false
	}
	return true
}

// newerError returns the error for a session that a newer core wrote, with what to do
// about it.
func (c *Core) newerError(ref subject.Ref, err error) error {
	if c.dir.NewestFold() > decide.FoldVersion {
		return bus.Errorf(bus.CodeUnavailable, "%s was written by a newer core (%v), which is running; try again", ref, err)
	}
	return bus.Errorf(bus.CodeConflict, "%s was written by a newer core (%v), and none is running; "+
		"its inputs wait for one; to continue without the newer core's commits, run skandha sessions repair", ref, err)
}

// parked holds the causes that this core has handed back for a newer core: by session and
// sequence, the time until which each counts.
type parked struct {
	mu  sync.Mutex
	all map[subject.Ref]map[uint64]time.Time
}

// add counts a cause until it has been redelivered and this core has had time to decide
// about it.
func (p *parked) add(ref subject.Ref, seq uint64, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[subject.Ref]map[uint64]time.Time{}
	}
	if p.all[ref] == nil {
		p.all[ref] = map[uint64]time.Time{}
	}
	p.all[ref][seq] = time.Now().Add(pause + 2*newerGather)
}

// forget drops the causes of a session that this core can decide.
func (p *parked) forget(ref subject.Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, ref)
}

// count returns how many causes wait. A cause that another core has handed back since is
// counted by that core.
func (p *parked) count() (n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for ref, of := range p.all {
		for seq, until := range of {
			if now.After(until) {
				delete(of, seq)
			}
		}
		if n += uint64(len(of)); len(of) == 0 {
			delete(p.all, ref)
		}
	}
	return n
}
