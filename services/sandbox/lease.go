package sandbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"skandha.dev/pkg/subject"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/sandbox/deps"
	"skandha.dev/services/sandbox/pool"
)

// remembered bounds the sessions without a sandbox that are kept only for the reason why
// theirs ended.
const remembered = 1 << 16

// session is what this instance knows about a session: its sandbox, or why it ended.
type session struct {
	ref  subject.Ref
	turn chan struct{} // holds one element while a call works in the sandbox

	// Guarded by leases.mu.
	lease    string            // core's name for the state here; a different one: the session was reset
	begun    beginning         // the turn that made it begin here
	seq      uint64            // of the latest turn seen
	sandbox  *pool.Sandbox     // nil: none; changed by the call that has the turn, and by whatever ends the lease
	kept     *kept             // what is saved of its files; nil: they are not
	packages deps.Requirements // requested by the session
	calls    int               // working or waiting
	used     time.Time         // when the last call ended
	lost     loss              // its last sandbox, as long as it has no other
}

// beginning is the turn in which a session arrived at this instance, and the instance that
// had it before. Calls that were assigned together have the same one.
type beginning struct {
	turn   string
	before subject.Instance
}

// leases are the sessions of an instance.
type leases struct {
	self subject.Instance
	pool *pool.Pool

	mu  sync.Mutex
	all map[subject.Ref]*session
}

// enter finds the session of a call. If the session's sandbox does not hold what the call
// expects, that sandbox ends first. Each enter requires a leave. It returns nil if the
// session was reset after the call was made.
func (l *leases) enter(ref subject.Ref, c *contract.ToolCall) *session {
	seq := turnSequence(c.Turn)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.all[ref]
	if s == nil {
		l.prune()
		s = &session{ref: ref, turn: make(chan struct{}, 1)}
		l.all[ref] = s
	}
	begun := beginning{c.Turn, c.Before}
	switch {
	case s.lease == c.Lease && (c.Before == "" || c.Before == l.self || begun == s.begun):
	case seq < s.seq:
		return nil
	default:
		l.begin(s, c.Lease, begun)
	}
	s.calls++
	s.seq = max(s.seq, seq)
	return s
}

// begin restarts the session here: it was reset, or another instance had it.
func (l *leases) begin(s *session, lease string, begun beginning) {
	l.drop(s, "")
	s.lease, s.begun, s.packages = lease, begun, nil
	if begun.before != "" && begun.before != l.self {
		s.lost = loss{why: "it was on another instance of the service, which has stopped or accepts no more calls"}
	}
}

// await waits until no other call works in the session's sandbox. Each await requires a done.
func (s *session) await(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *session) done() { <-s.turn }

// leave undoes enter.
func (l *leases) leave(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.used = time.Now()
	l.out(s)
}

// leaveQuietly is leave after a visit that was no call: the session stays as idle as it was.
func (l *leases) leaveQuietly(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out(s)
}

func (l *leases) out(s *session) {
	s.calls--
	if s.calls == 0 && s.sandbox == nil && s.lost.why == "" && len(s.packages) == 0 {
		delete(l.all, s.ref)
	}
}

// current returns the session's sandbox, if it still works. The caller has the turn.
func (l *leases) current(s *session) *pool.Sandbox {
	l.mu.Lock()
	sandbox := s.sandbox
	l.mu.Unlock()
	if sandbox == nil {
		return nil
	}
	if err := sandbox.Ended(); err != nil {
		l.broken(s, sandbox, err)
		return nil
	}
	return sandbox
}

// broken ends the lease of a sandbox that can no longer be used.
func (l *leases) broken(s *session, sandbox *pool.Sandbox, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.sandbox == sandbox {
		l.drop(s, why.Error())
	}
}

// grant gives the session a sandbox. It reports false, and the session does not own the
// sandbox, when the session was restarted in the meantime.
func (l *leases) grant(s *session, as tenure, at place, packages deps.Requirements) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if as != (tenure{s.lease, s.begun}) {
		return false
	}
	if s.sandbox != nil {
		l.pool.Discard(s.sandbox)
	}
	s.sandbox, s.kept, s.packages, s.lost = at.sandbox, at.kept, packages, loss{}
	return true
}

// held returns the session's sandbox and what is saved of its files. The caller has the turn.
func (l *leases) held(s *session) (*pool.Sandbox, *kept) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.sandbox, s.kept
}

// unsaved enters the sessions in which no call works and whose files are to be saved; each requires a
// leaveQuietly. finally asks for all with files that are not saved.
func (l *leases) unsaved(finally bool) (out []*session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		if s.kept != nil && s.calls == 0 && s.kept.due(finally) {
			s.calls++
			out = append(out, s)
		}
	}
	return out
}

// state returns what a call must know before it requests a sandbox.
func (l *leases) state(s *session) (as tenure, packages deps.Requirements, lost loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return tenure{s.lease, s.begun}, s.packages, s.lost
}

// tenure identifies the period between two restarts of a session, in which it owns its sandbox.
type tenure struct {
	lease string
	begun beginning
}

// drop ends a lease; why is for the model's next call; empty: no notice.
func (l *leases) drop(s *session, why string) {
	if s.sandbox != nil {
		l.pool.Discard(s.sandbox)
		lost := loss{why: why}
		if s.kept != nil {
			lost.unsaved, lost.cause = s.kept.unsaved()
		}
		s.sandbox, s.kept, s.lost = nil, nil, lost
	} else if why == "" {
		s.lost = loss{}
	}
}

// end ends what a session had before the turn with this sequence: it was reset, or locked.
// Core has already given up the calls that still work in the sandbox.
func (l *leases) end(ref subject.Ref, seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.all[ref]
	if s == nil || s.seq >= seq {
		return // already restarted
	}
	l.begin(s, "", beginning{})
	s.seq = seq
	if s.calls == 0 {
		delete(l.all, ref)
	}
}

// expire ends the leases that have been idle for at least that long. It enters those whose files are to be saved
// first, as unsaved does.
func (l *leases) expire(idle time.Duration) (ended int, first []*session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		if s.sandbox != nil && s.calls == 0 && time.Since(s.used) >= idle {
			if s.kept != nil && s.kept.due(true) {
				s.calls++
				first = append(first, s)
				continue
			}
			l.drop(s, fmt.Sprintf("it was idle for %v", idle))
			ended++
		}
	}
	return ended, first
}

// evict ends an idle lease for an owner that waits for a place, and reports whether there
// was one. The victim is the longest idle lease of the owner with the most sandboxes, if
// that owner has more than the waiting one. The owner with the most gives up one of its
// sandboxes itself.
func (l *leases) evict(want pool.Want) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := map[string]int{}
	for _, s := range l.all {
		if s.sandbox != nil {
			held[s.sandbox.Owner]++
		}
	}
	var victim *session
	for _, s := range l.all {
		if s.sandbox == nil || s.calls > 0 {
			continue
		}
		owner := s.sandbox.Owner
		if owner != want.Owner && (want.Own || held[owner] <= held[want.Owner]) {
			continue
		}
		if victim == nil || held[owner] > held[victim.sandbox.Owner] ||
			held[owner] == held[victim.sandbox.Owner] && s.used.Before(victim.used) {
			victim = s
		}
	}
	if victim == nil {
		return false
	}
	l.drop(victim, "another session needed its place")
	return true
}

// prune forgets sessions without a sandbox when there are too many.
func (l *leases) prune() {
	if len(l.all) < remembered {
		return
	}
	for ref, s := range l.all {
		if s.sandbox == nil && s.calls == 0 {
			delete(l.all, ref)
		}
	}
}

// count returns how many sessions have a sandbox.
func (l *leases) count() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		if s.sandbox != nil {
			n++
		}
	}
	return n
}
