package model

import (
	"cmp"
	"fmt"
	"strings"
)

// The bounds of the world. Inputs, log positions, attempts and runners are counted
// from 1, so that zero always means "none".
const (
	maxLog      = 16
	maxInputs   = 2
	maxCalls    = 2
	maxAttempts = 3
	cores       = 2
	runners     = 2
	workers     = 2 // of retention: one is meant to run, another may be stalled
)

// EntryKind distinguishes causes from commits in the log of rule 1.
type EntryKind uint8

// The kinds of log entries. All but CommitEntry and NoiseEntry are causes.
const (
	NoEntry EntryKind = iota
	InputEntry
	CancelEntry
	AnswerEntry
	TimerEntry
	CommitEntry
	NoiseEntry // on the subject of the commits, by nobody: the server answered there
	DeleteEntry
	UndeleteEntry
	PauseEntry
	ResumeEntry
)

// Entry is one stored message of the session's log.
type Entry struct {
	Kind      EntryKind
	Input     uint8 // InputEntry: its number; CancelEntry: the input it names
	Interrupt bool  // InputEntry: ends the running turn
	Approve   bool  // AnswerEntry: approves, else denies
	Expired   bool  // AnswerEntry: its stream time is past expires_at
	Person    uint8 // AnswerEntry: who answers, if two people must: 1 or 2
	Commit    Commit
}

// CommitKind names what a commit decides.
type CommitKind uint8

// The kinds of commits.
const (
	NoCommit    CommitKind = iota
	CauseDone              // a cause is processed
	CausePoison            // an input is ended as poison without being parsed (rule 13)
	ModelReply             // the model's reply is recorded
	CallResult             // a call has its result
	Reassigned             // a call gets a new attempt; with Result OutcomeUnknown, one that probes
	Begun                  // a core is about to decide a suspected cause (rule 13)
	Survived               // the core is done without a decision, and hands the cause back (rule 13)
	TurnPoison             // mutation poisonDeliv: the running turn is ended as poison
	Checkpoint             // carries the whole state, so that folding may begin here (rule 17)
	Tombstone              // a checkpoint that keeps nothing of a deleted session's conversation (rule 17)
)

// Result is the outcome of a call, according to the log or an executor.
type Result uint8

// The results of a call.
const (
	NoResult Result = iota
	Succeeded
	OutcomeUnknown
	NotRun // cancelled, or it never ran
	Denied
)

// Commit is the decision part of the commits of rule 2.
type Commit struct {
	Kind   CommitKind
	Cause  uint8            // CauseDone, CausePoison, Begun, Survived: log position of the cause
	Of     uint8            // Checkpoint, Tombstone: log position of the commit whose state it carries
	Call   uint8            // CallResult, Reassigned: index of the call
	Result Result           // CallResult; Reassigned
	Closed [maxCalls]Result // CauseDone: the results of the calls it closes (rule 10)
	Runner [maxCalls]uint8  // index of the runner for each call assigned here (rule 7)
	Driver uint8            // the delivery the committing core holds (rule 3)
}

// processesCause reports whether the commit moves the cursor.
func (c Commit) processesCause() bool { return c.Kind == CauseDone || c.Kind == CausePoison }

// checkpoint reports whether folding may begin at the commit.
func (c Commit) checkpoint() bool { return c.Kind == Checkpoint || c.Kind == Tombstone }

// CorePhase is the progress of a core with the delivery it holds.
type CorePhase uint8

// The phases of a core.
const (
	Idle        CorePhase = iota
	Looking               // read the log; about to decide
	Closing               // asks runners to stop, one after the other (rule 10)
	Publishing            // decided; the commit is not stored yet
	Dispatching           // the commit is stored; its attempts are not dispatched yet
	ArmingLate            // mutation ackTimerLate: acked, the timer is not scheduled yet
)

// Core is the memory of one instance of the core. A crash loses all of it.
type Core struct {
	Phase    CorePhase
	Delivery uint8 // the cause whose delivery it holds
	Fence    uint8 // position of the last commit it has read
	Plan     Commit
	ToSend   [maxCalls]uint8 // attempts that only it may dispatch, and has not yet
	Sent     [maxCalls]uint8 // attempts that it has dispatched, and may dispatch again
	Begun    bool            // it has stored that it begins to decide the cause
	Handed   bool            // mutation noToken: its cause was queued into a driven session
}

// AttemptState is an entry of an executor's locked table (rule 8).
type AttemptState uint8

// The states of an attempt at a runner.
const (
	NotSeen AttemptState = iota
	Running
	Finished
	Tombstoned // it will never run: refused, or asked about before it arrived
	Dropped    // it ran, its result is lost
	Stopped    // it was stopped while running
	Waiting    // with a probe: it runs; its effect is not recorded as begun
	Marked     // it is recorded that its effect begins, which has not happened yet
	FoundNot   // a probe: the call has not begun, and never will
	FoundNone  // a probe: it has begun, and the other system does not say what became of it
)

// Runner is one executor instance. A dead one stays dead: a restart is a new
// instance (rule 8).
type Runner struct {
	Dead, Unreachable bool
	WasUnreachable    bool // at any time, or dead
	Table             [maxCalls][maxAttempts + 1]AttemptState
}

// Deadline tells which processes know that start_by has passed: first the runner, and
// the cores after the skew.
type Deadline uint8

// The steps of start_by passing.
const (
	InTime Deadline = iota
	PassedAtRunner
	PassedAtCore
)

// Attempt is the global state of one attempt, which no single process knows.
type Attempt struct {
	Runner   uint8 // 1 + index of the runner it is assigned to
	StartBy  Deadline
	InFlight bool // a dispatch is in flight, and may arrive arbitrarily late
	Refused  bool // mutation refuseNoTomb: the refusal is in flight
	Probe    bool // it only finds out what became of earlier attempts
}

// Mark is the durable record of a call whose tool has a probe.
type Mark uint8

// The marks.
const (
	NoMark Mark = iota
	Begins
	Closed // by a probe, before it began
)

// Budget bounds the faults that may still happen.
type Budget struct {
	Crashes       uint8 // of cores
	RunnerCrashes uint8 // permanent
	Partitions    uint8 // between the cores and one runner
	Duplicates    uint8 // of dispatches
	ForgottenAcks uint8 // times the bus forgets all acks of the session
	NetFaults     uint8 // busy runners, lost dispatches, PubAcks lost and buried
	Noise         uint8 // messages on the subject of the commits that are none
	Stale         uint8 // decisions of cores on a state that is not the latest
	Checkpoints   uint8 // attempts at a checkpoint or a tombstone; not faults
	Purges        uint8 // runs of a retention worker; not faults
}

// State is one state of the world: the bus, the cores, the runners, time and
// the people outside.
type State struct {
	Log     [maxLog]Entry
	Len     uint8
	Acks    uint16 // by log position
	Purged  uint16 // by log position: not in the log any more
	Archive uint16 // by log position: a copy is in the archive
	Workers [workers]uint8
	Cores   [cores]Core
	Runners [runners]Runner

	Attempts [maxCalls][maxAttempts + 1]Attempt
	Effects  [maxCalls]uint8 // how many times each call's effect has begun
	Marks    [maxCalls]Mark

	TimerSet    bool // stored in the stream TIMERS
	TimerFired  uint8
	Expired     bool  // the confirmation's expires_at has passed
	Deliveries  uint8 // of the first cause, where they are counted
	InputsSent  uint8
	AnswersSent uint8
	CancelSent  bool
	Commands    uint8 // sent so far: a delete, then an undelete; or a pause, then a resume

	LateEffect      bool // an effect began after its call was closed
	NeedlessUnknown bool // outcome_unknown although the reachable runner knew

	Left Budget
}

func (s *State) acked(at uint8) bool { return s.Acks&(1<<(at-1)) != 0 }
func (s *State) ack(at uint8)        { s.Acks |= 1 << (at - 1) }

func (s *State) purged(at uint8) bool { return s.Purged&(1<<(at-1)) != 0 }

func (s *State) isCause(at uint8) bool {
	kind := s.Log[at-1].Kind
	return kind != CommitEntry && kind != NoiseEntry
}

func (s *State) reachable(runner uint8) bool {
	return !s.Runners[runner].Dead && !s.Runners[runner].Unreachable
}

// atRunner returns the entry for a call's attempt in the table of its runner.
func (s *State) atRunner(runner, call, attempt uint8) *AttemptState {
	return &s.Runners[runner].Table[call][attempt]
}

// lastCommit returns the position of the session's last commit: the fence of rule 2. That one is
// never purged (rule 17).
func (s *State) lastCommit() uint8 {
	for at := s.Len; at > 0; at-- {
		if s.Log[at-1].Kind == CommitEntry {
			return at
		}
	}
	return 0
}

// lastStored returns the position of the last message on the subject of the commits, which the server compares
// with the fence.
func (s *State) lastStored() uint8 {
	for at := s.Len; at > 0; at-- {
		if !s.isCause(at) && !s.purged(at) {
			return at
		}
	}
	return 0
}

// compare orders cores, idle ones first, so that states that differ only in the names
// of the cores are one state.
func (k *Core) compare(o *Core) int {
	if *k == *o {
		return 0
	}
	if d := cmp.Compare(k.Phase, o.Phase); d != 0 {
		return d
	}
	a, b := k.key(), o.key()
	for i := range a {
		if d := cmp.Compare(a[i], b[i]); d != 0 {
			return d
		}
	}
	return 0
}

func (k *Core) key() [18]uint8 {
	p, handed := &k.Plan, uint8(0)
	if k.Handed {
		handed = 1
	}
	if k.Begun {
		handed += 2
	}
	return [...]uint8{
		k.Delivery, k.Fence, k.ToSend[0], k.ToSend[1], k.Sent[0], k.Sent[1], handed,
		uint8(p.Kind), p.Cause, p.Of, p.Call, uint8(p.Result), uint8(p.Closed[0]), uint8(p.Closed[1]),
		p.Runner[0], p.Runner[1], p.Driver, uint8(k.Phase),
	}
}

func (r Result) String() string {
	return [...]string{"-", "succeeded", "outcome_unknown", "not-run", "denied"}[r]
}

func (a AttemptState) String() string {
	return [...]string{
		"-", "running", "finished", "tombstoned", "dropped", "stopped", "waiting", "marked",
		"found-not", "found-none",
	}[a]
}

func (p CorePhase) String() string {
	return [...]string{"idle", "looking", "closing", "publishing", "dispatching", "arming-late"}[p]
}

func (c Commit) String() string {
	to := fmt.Sprintf("runners %v, driver #%d", c.Runner, c.Driver)
	switch c.Kind {
	case CauseDone:
		return fmt.Sprintf("cause #%d done (closing as %v, %s)", c.Cause, c.Closed, to)
	case CausePoison:
		return fmt.Sprintf("cause #%d is poison (%s)", c.Cause, to)
	case Begun:
		return fmt.Sprintf("cause #%d is begun", c.Cause)
	case Survived:
		return fmt.Sprintf("cause #%d is not decided", c.Cause)
	case ModelReply:
		return fmt.Sprintf("model reply (%s)", to)
	case CallResult:
		return fmt.Sprintf("call %d %s (%s)", c.Call, c.Result, to)
	case Reassigned:
		return fmt.Sprintf("call %d assigned again (%s)", c.Call, to)
	case TurnPoison:
		return "turn is poison"
	case Checkpoint:
		return fmt.Sprintf("checkpoint of #%d", c.Of)
	case Tombstone:
		return fmt.Sprintf("tombstone of #%d", c.Of)
	}
	return "no commit"
}

func (e Entry) String() string {
	switch e.Kind {
	case InputEntry:
		return fmt.Sprintf("input %d (interrupt %t)", e.Input, e.Interrupt)
	case CancelEntry:
		return fmt.Sprintf("cancel of input %d", e.Input)
	case AnswerEntry:
		return fmt.Sprintf("answer (approve %t, after expiry %t, person %d)", e.Approve, e.Expired, e.Person)
	case TimerEntry:
		return "timer"
	case CommitEntry:
		return "COMMIT " + e.Commit.String()
	case NoiseEntry:
		return "noise"
	case DeleteEntry:
		return "delete"
	case UndeleteEntry:
		return "undelete"
	case PauseEntry:
		return "pause"
	case ResumeEntry:
		return "resume"
	}
	return "no entry"
}

// describe renders a state for a trace.
func (s *State) describe(f Fold) string {
	var b strings.Builder
	for at := uint8(1); at <= s.Len; at++ {
		fmt.Fprintf(&b, "#%d %v", at, s.Log[at-1])
		if s.isCause(at) && s.acked(at) {
			b.WriteString(", acked")
		}
		if s.purged(at) {
			b.WriteString(", purged")
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "fold    %+v\n", f)
	for _, k := range s.Cores {
		fmt.Fprintf(&b, "core    %+v\n", k)
	}
	for _, r := range s.Runners {
		fmt.Fprintf(&b, "runner  %+v\n", r)
	}
	fmt.Fprintf(&b, "workers %v, archive %b\n", s.Workers, s.Archive)
	fmt.Fprintf(&b, "effects %v, timer set %t", s.Effects, s.TimerSet)
	return b.String()
}
