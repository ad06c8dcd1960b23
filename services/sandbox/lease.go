package sandbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	contract "skandha.dev/pkg/executor"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/sandbox/deps"
	"skandha.dev/services/sandbox/pool"
)

// remembered is how many sessions without a sandbox are kept, which only know why theirs is gone.
const remembered = 1 << 16

// session is what this instance knows of a session: its sandbox, or why it is gone.
type session struct {
	ref  subject.Ref
	turn chan struct{} // holds one element while a call works in the sandbox

	// Guarded by leases.mu.
	lease    string            // core's name for what is kept here; another one: the session was reset
	begun    beginning         // what made it begin here
	seq      uint64            // of the latest turn that was seen
	sandbox  *pool.Sandbox     // nil: none; changed by who has the turn, and by who ends it
	packages deps.Requirements // that the session has asked for
	calls    int               // that work or wait
	used     time.Time         // when the last of them ended
	lost     string            // why its files are gone, for the model; empty: it has lost none
}

// beginning is the turn in which a session came here, and who had it before. Calls
// that were assigned together say the same.
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

// enter finds the session of a call, whose sandbox ends first if what is in it is not what
// the call expects. Each enter wants a leave. It returns nil for a call of a session
// that was reset since.
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

// begin makes the session begin anew here: it was reset, or somebody else had it.
func (l *leases) begin(s *session, lease string, begun beginning) {
	l.drop(s, "")
	s.lease, s.begun, s.packages = lease, begun, nil
	if begun.before != "" && begun.before != l.self {
		s.lost = "another instance of the service had it, which is gone or takes no more calls"
	}
}

// await waits until no other call works in the session's sandbox. Each wants a done.
func (s *session) await(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *session) done() { <-s.turn }

// leave ends what enter began.
func (l *leases) leave(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.calls--
	s.used = time.Now()
	if s.calls == 0 && s.sandbox == nil && s.lost == "" && len(s.packages) == 0 {
		delete(l.all, s.ref)
	}
}

// current is the session's sandbox, if it still works. Who calls it has the turn.
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

// broken ends the lease of a sandbox that is of no more use.
func (l *leases) broken(s *session, sandbox *pool.Sandbox, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.sandbox == sandbox {
		l.drop(s, why.Error())
	}
}

// grant gives the session a sandbox. It reports false, and the sandbox is not the session's,
// when the session began anew meanwhile. notice is what the model has to know.
func (l *leases) grant(s *session, as tenure, sandbox *pool.Sandbox, packages deps.Requirements) (notice string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if as != (tenure{s.lease, s.begun}) {
		return "", false
	}
	if s.lost != "" {
		notice = fmt.Sprintf("this is a new sandbox; files of earlier calls are gone (reason: %s)", s.lost)
	}
	if s.sandbox != nil {
		l.pool.Discard(s.sandbox)
	}
	s.sandbox, s.packages, s.lost = sandbox, packages, ""
	return notice, true
}

// state is what a call needs to know before it asks for a sandbox.
func (l *leases) state(s *session) (as tenure, packages deps.Requirements) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return tenure{s.lease, s.begun}, s.packages
}

// tenure is for how long a session's sandbox is its own: until it begins anew.
type tenure struct {
	lease string
	begun beginning
}

// drop ends a lease; why is for the model's next call, empty: it need not know.
func (l *leases) drop(s *session, why string) {
	if s.sandbox != nil {
		l.pool.Discard(s.sandbox)
		s.sandbox, s.lost = nil, why
	} else if why == "" {
		s.lost = ""
	}
}

// end ends what a session had before the turn of this sequence: it was reset, or
// locked. Calls that still work in the sandbox have been given up by core.
func (l *leases) end(ref subject.Ref, seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.all[ref]
	if s == nil || s.seq >= seq {
		return // it has begun anew already
	}
	l.begin(s, "", beginning{})
	s.seq = seq
	if s.calls == 0 {
		delete(l.all, ref)
	}
}

// expire ends the leases that were idle for so long.
func (l *leases) expire(idle time.Duration) (ended int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		if s.sandbox != nil && s.calls == 0 && time.Since(s.used) >= idle {
			l.drop(s, fmt.Sprintf("nothing had used it for %v", idle))
			ended++
		}
	}
	return ended
}

// evict ends an idle lease for somebody who waits for a place, and reports whether there
// was one: of the owner with the most sandboxes, if those are more than the owner has who
// waits, the lease that was idle for the longest time. The owner with the most gives up one of its own.
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
	l.drop(victim, "its place was needed by another conversation")
	return true
}

// prune forgets sessions that have no sandbox, when there are very many.
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

// count is how many sessions have a sandbox.
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
