package model

import "slices"

// Phase is what the open turn waits for.
type Phase uint8

// The phases of a session.
const (
	NoTurn   Phase = iota
	Planning       // the model's reply
	Parked         // a person's answer, or its timer (rule 12)
	Acting         // the results of calls
	Held           // the session to be resumed, with calls that may begin then (rule 19)
)

// InputState is the progress of an input.
type InputState uint8

// The states of an input.
const (
	Unseen InputState = iota
	Queued
	Current
	Ended
)

// Confirmation is the state of the turn's request for approval.
type Confirmation uint8

// The states of a confirmation.
const (
	NotAsked Confirmation = iota
	Pending
	Approved
	Over // denied, expired, or its turn ended
)

func (p Phase) String() string {
	return [...]string{"no-turn", "planning", "parked", "acting", "held"}[p]
}

func (i InputState) String() string {
	return [...]string{"-", "queued", "current", "ended"}[i]
}

func (c Confirmation) String() string {
	return [...]string{"-", "pending", "approved", "over"}[c]
}

// Deletion is how far the deletion of the session is.
type Deletion uint8

// The steps of a deletion.
const (
	Kept    Deletion = iota
	Deleted          // nothing starts any more, until it is undeleted
	Buried           // for good
)

func (d Deletion) String() string { return [...]string{"-", "deleted", "buried"}[d] }

// Call is the fold's state of one tool call.
type Call struct {
	Attempt uint8 // the current attempt, 0 before the first assignment
	Runner  uint8 // index of the runner it is assigned to
	Result  Result
	Results uint8 // how many results were committed
	Probed  bool  // the current attempt only finds out what became of earlier ones
}

// Fold is the session's state: a function of only the commits (rule 1).
type Fold struct {
	Cursor    uint8 // the last cause processed (rule 2)
	Inputs    [maxInputs + 1]InputState
	Terminals [maxInputs + 1]uint8 // terminal events, by input
	Phase     Phase
	Turn      uint8 // the input whose turn is open
	Calls     [maxCalls]Call
	Driver    uint8 // the cause whose holder must drive (rule 3)

	Confirmation Confirmation
	RequestedAt  uint8 // position of the commit that asks for approval
	Approvals    uint8
	Approvers    uint8 // who has approved, if two people must: bit 1 and bit 2
	Answered     uint8 // how many approvals were counted, if two people must

	Begun uint8 // how many cores have begun to decide the first cause, and are not done (rule 13)

	Deletion Deletion
	Paused   bool // nothing starts until the session is resumed (rule 19)

	Joined uint8 // the input that has joined the open turn, 0 if none (rule 20)

	// Must always be false; see check.go.
	LateApproval bool
	WrongTarget  bool
	FalsePoison  bool
	EarlyTomb    bool
	Revived      bool
	PausedStart  bool
}

// driven reports whether the turn needs a driver; a parked one needs only its timer, and one that is held
// needs only the command that resumes the session.
func (f *Fold) driven() bool { return f.Phase == Planning || f.Phase == Acting }

// open reports whether the call waits for a result.
func (f *Fold) open(call uint8) bool { return f.Phase == Acting && f.Calls[call].Result == NoResult }

// idle reports whether the session has neither an open turn nor a queued input.
func (f *Fold) idle() bool { return f.Phase == NoTurn && !slices.Contains(f.Inputs[:], Queued) }

// fold applies the commits among the first n log entries, as archive and log have them.
func (m *Model) fold(s *State, n uint8) (f Fold) {
	for i := range n {
		if e := &s.Log[i]; e.Kind == CommitEntry {
			f, _ = m.apply(s, f, e.Commit, i+1)
		}
	}
	return f
}

// hasEffect reports whether processing the cause at position at would change f.
// It is the verdict of rule 5, which must be permanent once a cause is acked.
func (m *Model) hasEffect(s *State, f Fold, at, delivery uint8) bool {
	_, changes := m.apply(s, f, causeDone(at, delivery), s.Len+1)
	return changes
}

// causeDone returns the commit for a cause that closes no running call.
func causeDone(cause, delivery uint8) Commit {
	return Commit{Kind: CauseDone, Cause: cause, Closed: [maxCalls]Result{NotRun, NotRun}, Driver: delivery}
}

// effect is what a commit does to the fold.
type effect uint8

const (
	nothing effect = iota
	queues         // changes only a queued input, not the driver (rule 3)
	changes
)

// folder applies one commit.
type folder struct {
	*Model
	Fold
	commit Commit
	at     uint8 // log position of the commit
}

// apply is one step of the fold. For a commit that would change nothing, it returns f
// unchanged and false.
func (m *Model) apply(s *State, f Fold, c Commit, at uint8) (Fold, bool) {
	t := folder{Model: m, Fold: f, commit: c, at: at}
	var did effect
	switch c.Kind {
	case CauseDone, CausePoison:
		if did = t.cause(s.Log[c.Cause-1], c.Cause); did != nothing {
			t.Cursor, t.Begun = c.Cause, 0
		}
	case Begun:
		if c.Cause > t.Cursor {
			t.Begun++
			did = queues
		}
	case Survived:
		if c.Cause > t.Cursor && t.Begun > 0 {
			t.Begun--
			did = queues
		}
	case ModelReply:
		did = t.modelReply()
	case CallResult:
		did = t.callResult()
	case Reassigned:
		if t.Phase == Acting && t.stillOpen(c.Call) {
			probes := c.Result == OutcomeUnknown
			t.PausedStart = t.PausedStart || t.Paused && !probes
			t.assign(c.Call)
			t.Calls[c.Call].Probed = probes
			did = changes
		}
	case Checkpoint:
		did = changes
	case Tombstone:
		t.bury()
		did = changes
	case TurnPoison:
		t.FalsePoison = true
		if t.Phase != NoTurn {
			t.end()
		}
		did = changes
	}
	if did == nothing {
		return f, false
	}
	// Rule 3: set by every commit that leaves the session open or parked,
	// unchanged by pure queueing, 0 when idle.
	if did != queues {
		t.Driver = t.commit.Driver
	}
	if t.Phase == NoTurn {
		t.Driver = 0
	}
	return t.Fold, true
}

func (t *folder) cause(e Entry, position uint8) effect {
	switch e.Kind {
	case InputEntry:
		return t.input(e)
	case CancelEntry:
		return t.cancel(e)
	case AnswerEntry:
		return t.answer(e, position)
	case TimerEntry:
		// Rule 12: when the timer fires, it denies the request that is pending under its id.
		if t.Confirmation != Pending || t.Phase != Parked {
			return nothing
		}
		t.deny()
	case DeleteEntry:
		return t.delete()
	case UndeleteEntry:
		return t.undelete()
	case PauseEntry:
		return t.pause()
	case ResumeEntry:
		return t.resume()
	}
	return changes
}

// input starts a turn, queues the input or, for an interrupt, ends the running turn.
// Every input gets exactly one terminal event; a repeated one changes nothing (rule 5).
func (t *folder) input(e Entry) effect {
	switch {
	case t.Inputs[e.Input] != Unseen:
		return nothing
	case t.commit.Kind == CausePoison: // rule 13
		t.FalsePoison = t.FalsePoison || !t.cfg.Poison
		t.Inputs[e.Input] = Ended
		t.Terminals[e.Input]++
		return queues
	case t.Deletion != Kept && !t.broken(DeletedStarts): // rule 17: refused
		t.Inputs[e.Input] = Ended
		t.Terminals[e.Input]++
		return queues
	}
	t.Inputs[e.Input] = Queued
	switch {
	case t.Paused && !t.broken(PausedStarts): // rule 19: an interrupt waits, too
		return queues
	case t.Phase == NoTurn:
		t.start(e.Input)
	case e.Interrupt: // rule 10: closes and starts the next input in one commit
		t.cut()
	default:
		return queues
	}
	return changes
}

// cancel names its input; a queued one is ended in place (rule 5).
func (t *folder) cancel(e Entry) effect {
	switch {
	case t.broken(NoPosition): // it hits any running turn
		if t.Phase == NoTurn {
			return nothing
		}
		t.WrongTarget = t.WrongTarget || t.Turn != e.Input
		t.cut()
	case t.named(e.Input):
		t.cut()
	case t.Inputs[e.Input] == Queued:
		t.Inputs[e.Input] = Ended
		t.Terminals[e.Input]++
		return queues
	default:
		return nothing
	}
	return changes
}

// answer counts only if the request's commit is earlier, the request is still pending,
// and the answer's stream time is before expires_at (rule 5). The approval and the first
// assignment are one commit (rule 7).
func (t *folder) answer(e Entry, position uint8) effect {
	before := t.RequestedAt > position
	if t.Confirmation != Pending || t.Phase != Parked || before && !t.broken(NoPosition) {
		return t.refuse()
	}
	switch {
	case e.Approve && (!e.Expired || t.broken(ExpiryByOrder)):
		if t.cfg.TwoPeople && t.first(e.Person) {
			return t.keeps()
		}
		t.Confirmation = Approved
		t.Approvals++
		t.LateApproval = e.Expired
		t.actOrHold(t.assignAll)
	case !e.Approve:
		t.deny()
	default:
		return t.refuse()
	}
	t.WrongTarget = t.WrongTarget || before
	return changes
}

// first notes an approval, and reports whether it is only the first of two people. The same person
// counts once.
func (t *folder) first(person uint8) bool {
	t.Approvers |= 1 << person
	t.Answered++
	if t.broken(OnePersonTwice) {
		return t.Answered < 2
	}
	return t.Approvers != 1<<1|1<<2
}

// keeps is a commit that moves the cursor and keeps the driver, like one that only queues.
func (t *folder) keeps() effect {
	if t.broken(FirstFrees) {
		t.commit.Driver = 0
		return changes
	}
	return queues
}

// refuse audits an answer that does not count: the commit moves the cursor and keeps the
// driver, like one that only queues. In a session without a commit it does nothing
// (rule 5).
func (t *folder) refuse() effect {
	switch {
	case t.Cursor == 0, t.broken(RefuseSilently):
		return nothing
	case t.broken(RefusalFrees):
		t.commit.Driver = 0
		return changes
	}
	return queues
}

// modelReply ends the turn, or begins its calls.
func (t *folder) modelReply() effect {
	if t.Phase != Planning {
		return nothing
	}
	if t.Turn == t.caller() && t.cfg.Calls > 0 && t.Calls[0].Result == NoResult {
		t.actOrHold(t.act)
	} else {
		t.end()
	}
	return changes
}

// callResult records a result; the turn ends with its last one.
func (t *folder) callResult() effect {
	if t.Phase != Acting || !t.stillOpen(t.commit.Call) {
		return nothing
	}
	t.record(t.commit.Call, t.commit.Result)
	for call := range t.calls() {
		if t.Calls[call].Result == NoResult && !t.broken(FirstResultEnds) {
			return changes
		}
	}
	if t.cfg.Steer {
		t.askAgain()
	} else {
		t.end()
	}
	return changes
}

// stillOpen is the guard of rule 6 for replies; without fences it does not exist.
func (t *folder) stillOpen(call uint8) bool {
	return t.Calls[call].Result == NoResult || t.broken(NoFence)
}
