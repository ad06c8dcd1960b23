package decide

import (
	"fmt"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
)

// Breaker counts the failures of tools, per session, and locks the session after too
// many (ADR 0016). Failures of the infrastructure do not count.
type Breaker struct {
	Hash        string `json:"hash,omitempty"` // of the last failed call
	Same        int    `json:"same"`           // how many times in a row exactly that call failed
	Consecutive int    `json:"consecutive"`    // failures of tools in a row
	Recent      []bool `json:"recent,omitempty"`
	// Trips counts the locks since a trial call last succeeded.
	Trips int `json:"trips,omitempty"`
	// Until is when a locked session accepts an input again.
	Until time.Time `json:"until,omitzero"`
	// HalfOpen lets calls through one at a time, until one succeeds.
	HalfOpen bool `json:"half_open,omitempty"`
}

// errStreak is how many failures in a row make core ask a person.
const errStreak = 5

// lockAt is how many failures among the last breakerHistory outcomes lock the session.
const lockAt = 8

// sameFailures is how many failures of exactly the same call make core warn the model.
const sameFailures = 3

// How long the session is locked: at first, and at most. The time doubles whenever a
// trial call fails.
const (
	lockFirst = 30 * time.Second
	lockMax   = 15 * time.Minute
)

// faultOf returns FaultTool if the tool itself reported that the call failed. Failures
// that core, a hook, a runner or the bus report do not count.
func faultOf(st *Step, a executor.Answer) event.Fault {
	if a.State != executor.Finished || a.Attempt != st.Attempt || a.Result == nil || executor.OfAgents(st.Tool) {
		return "" // that another agent did not succeed is no fault of the tool
	}
	if r := reported(*a.Result); !r.Success && isToolFault(r.Error.Code) {
		return event.FaultTool
	}
	return ""
}

// isToolFault reports whether a finished call's code means that the tool itself failed.
func isToolFault(c tool.Code) bool {
	switch c {
	case tool.CodeFailed, tool.CodeInternal:
		return true
	case tool.CodeTimeout: // a lost connection or plugin is outcome_unknown (ADR 0008)
		return true
	case tool.CodeOutcomeUnknown: // the request or the answer was lost
	case tool.CodeTooLarge: // it ran; its result could not be stored
	case tool.CodeInvalidArgs, tool.CodeUnknownTool, tool.CodeInvalidPlan: // core refused it
	case tool.CodeDenied, tool.CodeExpired, tool.CodeCancelled, tool.CodeNotRun, tool.CodeSkipped: // it did not run
	}
	return false
}

// repeats reports whether the same call would fail again in the same way.
func repeats(r tool.Result, f event.Fault) bool {
	if r.Success || r.Error == nil {
		return false
	}
	switch r.Error.Code {
	case tool.CodeInvalidArgs, tool.CodeUnknownTool, tool.CodeInvalidPlan:
		return true
	}
	return f == event.FaultTool
}

// count updates the breaker with a call's result.
func (b *Breaker) count(p event.ActCompleted) {
	switch {
	case p.Result.Success && p.Attempt != "": // a hook's answer instead of the tool does not count
		if b.HalfOpen {
			*b = Breaker{}
		}
		b.Same, b.Consecutive, b.Hash = 0, 0, ""
		b.remember(true)
	case p.Fault == event.FaultTool:
		b.Consecutive++
		b.remember(false)
	}
	if !repeats(p.Result, p.Fault) {
		return
	}
	if b.Hash != p.Hash {
		b.Hash, b.Same = p.Hash, 0
	}
	b.Same++
}

func (b *Breaker) remember(ok bool) {
	b.Recent = append(b.Recent, ok)
	if len(b.Recent) > breakerHistory {
		b.Recent = b.Recent[1:]
	}
}

func (b *Breaker) failures() int {
	n := 0
	for _, ok := range b.Recent {
		if !ok {
			n++
		}
	}
	return n
}

// tripped reports whether the session must be locked, and why.
func (b *Breaker) tripped() (why string, tripped bool) {
	if b.HalfOpen && b.Consecutive > 0 {
		return "the trial tool call failed", true
	}
	n := b.failures()
	return fmt.Sprintf("%d of the last %d tool calls failed", n, len(b.Recent)), n >= lockAt
}

// wait returns how long a lock would last now.
func (b *Breaker) wait() time.Duration {
	w := lockFirst
	for range b.Trips {
		if w *= 2; w >= lockMax {
			return lockMax
		}
	}
	return w
}

// lock locks the session and ends the turn.
func (b *builder) lock(why string) {
	// Rounded up to whole seconds, as shown to users.
	until := b.head.Now.Add(b.s.Breaker.wait() + time.Second - time.Millisecond).Truncate(time.Second)
	b.emit(event.SessionLocked{Reason: why, Until: until})
	b.failTurn(event.FailBreaker, b.s.LockedWhy())
}

// firstWithUntil is the first fold version in which the breaker's locks expire.
const firstWithUntil = 4

func (s *State) onSessionLocked(p event.SessionLocked) {
	until := p.Until
	if s.version < firstWithUntil && s.Locked == "" { // by the breaker: after a checkpoint it is locked already
		until = s.Now.Add(lockFirst)
	}
	s.Locked = p.Reason
	if p.Deleted != nil {
		s.Deleted, s.Breaker, s.Damage = &Deleted{Deletion: *p.Deleted}, Breaker{}, nil
	}
	if !until.IsZero() {
		s.Breaker.Trips++
		s.Breaker.Until = until
	}
}

// lockedAt reports whether the session refuses an input at that time.
func (s *State) lockedAt(now time.Time) bool {
	return s.Locked != "" && (s.Breaker.Until.IsZero() || now.Before(s.Breaker.Until))
}

// reopen unlocks the session and lets calls through one at a time. Until one succeeds,
// the next failure locks the session for longer.
func (s *State) reopen() {
	s.Locked, s.Breaker = "", Breaker{Trips: s.Breaker.Trips, HalfOpen: true}
}

// LockedWhy explains why a session is locked, and how to unlock it.
func (s *State) LockedWhy() string {
	if s.Deleted != nil {
		return s.Locked
	}
	if s.Breaker.Until.IsZero() {
		return s.Locked + "; /reset unlocks the session"
	}
	return fmt.Sprintf("%s; the session is locked until %s, "+
		"then it accepts the next input and tries one tool call; /reset unlocks it at once",
		s.Locked, s.Breaker.Until.Format(time.RFC3339))
}

// trying reports whether a call is in progress or about to run.
func (t *Turn) trying() bool {
	for i := range t.Steps {
		switch t.Steps[i].Status {
		case Assigned, Confirming, Approved:
			return true
		}
	}
	return false
}

// holds reports whether the breaker currently holds back further calls.
func (s *State) holds() bool { return s.Breaker.HalfOpen && s.Turn.trying() }
