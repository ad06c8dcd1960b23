package event

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/subject"
)

// SessionLocked reports that the session accepts no inputs, because the circuit breaker
// opened or the log is damaged. In the second case /repair unlocks it, too.
type SessionLocked struct {
	// Stops are the tasks of other sessions that are cancelled, if the session was deleted.
	Stops  []Task `json:"stops,omitempty"`
	Reason string `json:"reason"`
	// Until is when the session accepts inputs again, to try one tool call; absent if only
	// /reset unlocks it.
	Until time.Time `json:"until,omitzero"`
	// Deleted is set if somebody has deleted the session; only /undelete unlocks it.
	Deleted *Deletion `json:"deleted,omitempty"`
}

// Deletion is the deletion of a session, whose content is removed later.
type Deletion struct {
	By    subject.Writer `json:"by"`
	Until time.Time      `json:"until"` // until when /undelete brings the session back
}

// SessionReset reports that the conversation was cleared.
type SessionReset struct {
	By subject.Writer `json:"by"`
	// Stops are the tasks of other sessions that are cancelled with it.
	Stops []Task `json:"stops,omitempty"`
}

// SessionPaused reports that the session was paused, or resumed. In a paused session nothing starts:
// inputs wait, and so does whatever follows what was running.
type SessionPaused struct {
	By     subject.Writer `json:"by"`
	Paused bool           `json:"paused"` // false: it was resumed
}

// Checkpoint carries the full state of a session, so that a fold can start here.
type Checkpoint struct {
	State  json.RawMessage `json:"state"` // in the format of the fold's version; only for core
	Reason string          `json:"reason"`
}
