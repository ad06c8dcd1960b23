package model

import "fmt"

// Mutation is the protocol with one rule broken, or with a plausible mistake.
type Mutation uint8

// The mutations. Their names on the command line are in Mutations.
const (
	Sound Mutation = iota
	AckEarly
	NoDriver
	NoPosition
	AckTimerLate
	VolatileTimer
	ExpiryByOrder
	StaleVerdict
	CancelWithoutAsking
	NoRespondersNever
	InstantUnknown
	NoTombstone
	RefuseWithoutTombstone
	ForgetAttempts
	TakeoverDispatches
	StaleReply
	NoFence
	PoisonByDeliveries
	PoisonUnbegun
	BeginAgain
	HandsBackMarked
	CountTheLiving
	FirstResultEnds
	CloseFirstOnly
	RefuseSilently
	RefusalFrees
	OnePersonTwice
	FirstFrees
	LagIsDeletion
	ProbeWithoutFence
	NoiseBlocks
	NoiseBlind
	CheckpointUnfenced
	CheckpointStale
	CheckpointOpen
	CheckpointMovesCursor
	CheckpointDropsMarks
	PurgeBeyondCursor
	PurgeToLiveCursor
	PurgeLast
	PurgeUncheckpointed
	PurgeBeforeArchive
	PurgeTombstone
	TombstoneEarly
	UndeleteAfterTombstone
	DeletedStarts
	DeleteKeepsQueue
	PausedStarts
	PausedActs
	PausedRetries
	PausedAcks
	PauseFrees
	ResumeKeepsDriver
	JoinQueued
	JoinSilently
	JoinFrees
)

// Mutations lists all mutations by number, with their names and the rules they break.
var Mutations = [...]struct{ Name, Rule, Doc string }{
	Sound:         {"", "", "the protocol as it is"},
	AckEarly:      {"ackEarly", "4", "a cause is acked once it is processed"},
	NoDriver:      {"noToken", "3", "no commit names a driver: any holder of a cause drives"},
	NoPosition:    {"noPos", "5", "cancels and answers hit any running turn or pending request"},
	AckTimerLate:  {"ackTimerLate", "12", "the parking cause is acked before its timer is stored"},
	VolatileTimer: {"volatileTimer", "12", "the timer may get lost"},
	ExpiryByOrder: {
		"expiryByOrder", "5", "an approval counts if it precedes the timer, regardless of its stream time",
	},
	StaleVerdict:           {"staleNoop", "5", "\"no effect\" is read from a fold without the last commit"},
	CancelWithoutAsking:    {"cancelNoAsk", "10", "calls are closed without asking their runners"},
	NoRespondersNever:      {"503never", "9", "no responders always means that it never ran"},
	InstantUnknown:         {"instantUnknown", "9", "an unreachable runner means outcome_unknown at once"},
	NoTombstone:            {"noTomb", "8", "the answer `never` leaves no tombstone"},
	RefuseWithoutTombstone: {"refuseNoTomb", "8", "a refusal leaves no tombstone"},
	ForgetAttempts:         {"forget", "8", "a runner forgets the id with the result"},
	TakeoverDispatches:     {"takeoverDispatch", "7", "a core that takes over dispatches instead of asking"},
	StaleReply:             {"staleReply", "6", "a reply in hand counts for any attempt"},
	NoFence:                {"noFence", "2", "commits are not fenced"},
	PoisonByDeliveries:     {"poisonDeliv", "13", "the third delivery of a committed cause is poison, too"},
	PoisonUnbegun: {
		"poisonUnbegun", "13", "the third delivery of a cause is poison, whether or not a core began to decide it",
	},
	BeginAgain:      {"beginAgain", "13", "a core that lost the fence stores again that it begins"},
	HandsBackMarked: {"handsBackMarked", "13", "a core that is stopped leaves its mark"},
	CountTheLiving:  {"countTheLiving", "13", "the marks of cores that live count, too"},
	FirstResultEnds: {"firstEnds", "-", "of two calls, the first result ends the turn"},
	CloseFirstOnly:  {"closeFirst", "10", "of two open calls, only the runner of the first is asked to stop"},
	RefuseSilently:  {"refuseSilently", "5", "an answer that does not count needs no commit"},
	RefusalFrees:    {"refusalFrees", "3", "the commit of a refused answer names no driver, as if nothing ran"},
	OnePersonTwice:  {"onePersonTwice", "5", "two approvals are enough, of one person, too"},
	FirstFrees:      {"firstFrees", "3", "the commit of the first of two approvals names no driver, as if nothing ran"},
	LagIsDeletion: {
		"lagDeleted", "5", "a delivered cause that is not yet in a copy of the log counts as deleted",
	},
	NoiseBlocks:        {"noiseBlocks", "2", "a commit is refused for noise after the last one, as for a commit"},
	NoiseBlind:         {"noiseBlind", "2", "a refused commit is sent again, whatever was stored meanwhile"},
	CheckpointUnfenced: {"checkpointUnfenced", "17", "checkpoints are not fenced"},
	CheckpointStale: {
		"checkpointStale", "17", "a checkpoint follows the last commit, and carries the state before it",
	},
	CheckpointOpen:        {"checkpointOpen", "17", "an open turn may be checkpointed, too, and keeps its driver"},
	CheckpointMovesCursor: {"checkpointMovesCursor", "17", "a checkpoint carries the last cause before it as its cursor"},
	CheckpointDropsMarks:  {"checkpointDropsMarks", "17", "a checkpoint drops the marks of rule 13, as /repair does"},
	PurgeBeyondCursor:     {"purgeBeyondCursor", "17", "causes up to the checkpoint itself are deleted"},
	PurgeToLiveCursor:     {"purgeToLiveCursor", "17", "causes up to the cursor of the last commit are deleted"},
	PurgeLast:             {"purgeLast", "17", "the checkpoint is deleted, too"},
	PurgeUncheckpointed:   {"purgeUncheckpointed", "17", "of an idle session, what is below any commit is deleted"},
	PurgeBeforeArchive:    {"purgeBeforeArchive", "17", "messages are deleted before they are in the archive"},
	PurgeTombstone:        {"purgeTombstone", "17", "a tombstone below a checkpoint is deleted"},
	TombstoneEarly:        {"tombstoneEarly", "17", "a tombstone is stored once the delete is, and not yet committed"},
	UndeleteAfterTombstone: {
		"undeleteAfterTombstone", "17", "a session is undeleted that has a tombstone",
	},
	DeletedStarts:     {"deletedStarts", "17", "an input starts a turn of a deleted session"},
	DeleteKeepsQueue:  {"deleteKeepsQueue", "17", "a delete closes the turn, and does not end queued inputs"},
	PausedStarts:      {"pausedStarts", "19", "an input starts a turn of a paused session"},
	PausedActs:        {"pausedActs", "19", "calls begin after a model's reply or an approval, although the session is paused"},
	PausedRetries:     {"pausedRetries", "19", "a call of a paused session gets another attempt"},
	PausedAcks:        {"pausedAcks", "19", "a pause acks the driver's cause, whatever still runs"},
	PauseFrees:        {"pauseFrees", "19", "the commit of a pause names no driver, as if nothing ran"},
	ResumeKeepsDriver: {"resumeKeepsDriver", "19", "the commit of a resume keeps the driver, whose cause may be acked"},
	JoinQueued:        {"joinQueued", "20", "an input that joins a turn still waits for its own"},
	JoinSilently:      {"joinSilently", "20", "an input that joins a turn has its terminal event at no time"},
	JoinFrees:         {"joinFrees", "20", "the commit with which an input joins a turn names no driver, as if it had ended"},
	ProbeWithoutFence: {"probeNoFence", "18", "a probe finds that a call has not begun, and does not close it"},
}

func (m Mutation) String() string { return Mutations[m].Name }

// ParseMutation returns the mutation with the name.
func ParseMutation(name string) (Mutation, error) {
	for m := range Mutations {
		if Mutations[m].Name == name {
			return Mutation(m), nil
		}
	}
	return Sound, fmt.Errorf("%w: unknown mutation %q", ErrUsage, name)
}
