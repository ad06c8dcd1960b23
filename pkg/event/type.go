package event

import (
	"strconv"
	"strings"
)

// Type is the CloudEvents type of an event: skandha.<phase>.<event>.v1.
type Type string

// The types of causes, which arrive from outside.
const (
	TypeInput        Type = "skandha.sense.input.v1"
	TypeConfirmation Type = "skandha.sense.confirmation.v1"
	TypeCancel       Type = "skandha.sense.cancel.v1"
	TypeCommand      Type = "skandha.sense.command.v1"
	TypeTimer        Type = "skandha.sense.timer.v1"
)

// The types of events, which core decides.
const (
	TypeCommit          Type = "skandha.commit.v1"
	TypePerceived       Type = "skandha.sense.perceived.v1"
	TypePlanConsidered  Type = "skandha.plan.considered.v1"
	TypePlanRequested   Type = "skandha.plan.requested.v1"
	TypePlanCompleted   Type = "skandha.plan.completed.v1"
	TypeRecalled        Type = "skandha.plan.recalled.v1"
	TypeActRequested    Type = "skandha.act.requested.v1"
	TypeActApproved     Type = "skandha.act.approved.v1"
	TypeActConfirmed    Type = "skandha.act.confirmed.v1"
	TypeActCompleted    Type = "skandha.act.completed.v1"
	TypeAudited         Type = "skandha.security.audited.v1"
	TypeRecorded        Type = "skandha.reflect.recorded.v1"
	TypeTurnFailed      Type = "skandha.turn.failed.v1"
	TypeSessionLocked   Type = "skandha.session.locked.v1"
	TypeSessionReset    Type = "skandha.session.reset.v1"
	TypeSessionPaused   Type = "skandha.session.paused.v1"
	TypeCheckpoint      Type = "skandha.session.checkpoint.v1"
	TypeSummarized      Type = "skandha.session.summarized.v1"
	TypeUIMessage       Type = "skandha.ui.message.v1"
	TypeToolCallRequest Type = "skandha.ui.tool_call_request.v1"
	TypeUIReady         Type = "skandha.ui.ready.v1"
	TypeUIState         Type = "skandha.ui.state.v1"
)

// TypeDelta is the type of a token delta on stream.<agent>.<session>. It is never in the log.
const TypeDelta Type = "skandha.stream.delta.v1"

// TypeOutput is the type of the output of a running tool on stream.<agent>.<session>. It is
// never in the log.
const TypeOutput Type = "skandha.stream.output.v1"

// CauseTypes lists the types of causes.
func CauseTypes() []Type {
	return []Type{TypeInput, TypeConfirmation, TypeCancel, TypeCommand, TypeTimer}
}

// CommitTypes lists the types of the events that a commit may carry.
func CommitTypes() []Type {
	return []Type{
		TypePerceived, TypeRecalled, TypePlanConsidered, TypePlanRequested, TypePlanCompleted,
		TypeActRequested, TypeActApproved, TypeActConfirmed, TypeActCompleted, TypeAudited, TypeRecorded,
		TypeTurnFailed, TypeSessionLocked, TypeSessionReset, TypeSessionPaused, TypeCheckpoint,
		TypeSummarized, TypeUIMessage, TypeToolCallRequest, TypeUIReady, TypeUIState,
	}
}

// Phase returns the event's phase, such as "plan". The subject of the live copy contains the
// phase and the name.
func (t Type) Phase() string { phase, _ := t.split(); return phase }

// Name returns the event's name within its phase, such as "requested".
func (t Type) Name() string { _, name := t.split(); return name }

func (t Type) split() (phase, name string) {
	s := strings.TrimSuffix(strings.TrimPrefix(string(t), "skandha."), ".v1")
	phase, name, _ = strings.Cut(s, ".")
	return phase, name
}

// Terminal reports whether an event of this type ends an input: every stored
// input and command gets exactly one such event.
func (t Type) Terminal() bool { return t == TypeRecorded || t == TypeTurnFailed }

// TurnID returns the id of the turn of the input that is stored at a sequence.
func TurnID(seq uint64) string { return "t" + strconv.FormatUint(seq, 10) }

// SequenceOf returns the sequence of the input to whose turn a turn's id, plan or call belongs; 0 if
// it belongs to none.
func SequenceOf(id string) uint64 {
	id, _, _ = strings.Cut(id, "-")
	n, err := strconv.ParseUint(strings.TrimPrefix(id, "t"), 10, 64)
	if err != nil || TurnID(n) != id {
		return 0
	}
	return n
}

// Delivered reports whether the failure is delivered to where the input came from. A person who
// repeats, cancels, interrupts or clears knows it.
func (c FailCode) Delivered() bool {
	switch c {
	case FailDuplicate, FailInterrupted, FailReset, FailCancelled:
		return false
	}
	return true
}
