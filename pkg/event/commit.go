package event

import (
	"encoding/json"
	"fmt"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
)

// TriggerKind is the kind of a [Trigger].
type TriggerKind string

// The kinds of trigger.
const (
	ByCause    TriggerKind = "cause"    // a stored cause, at Sequence
	ByReply    TriggerKind = "reply"    // an executor's answer to (Call, Attempt)
	ByProgress TriggerKind = "progress" // an executor started or stopped, or a deadline passed
	ByPoison   TriggerKind = "poison"   // the cause at Sequence cannot be handled
	// a core begins to decide Sequence, which another process may have tried to decide
	ByBegin TriggerKind = "begin"
	// the session's earlier commits are to leave the log, so this one holds its state
	ByRetention TriggerKind = "retention"
)

// Trigger is what made core decide, as far as the log must record it.
type Trigger struct {
	Kind     TriggerKind       `json:"kind"`
	Sequence uint64            `json:"sequence,omitempty"` // cause, poison, begin
	Cause    subject.CauseKind `json:"cause,omitempty"`    // cause
	Writer   subject.Writer    `json:"writer,omitempty"`   // cause: from the subject, so it cannot be forged
	Call     string            `json:"call,omitempty"`     // reply
	Attempt  string            `json:"attempt,omitempty"`  // reply
	Core     subject.Instance  `json:"core,omitempty"`     // begin: the process that decides
	Over     bool              `json:"over,omitempty"`     // begin: it is done, without a decision
}

// Header is the first element of a commit's batch.
type Header struct {
	CommitID string  `json:"commit_id"` // random: identifies the writer's commit after a lost acknowledgement
	Prev     uint64  `json:"prev"`      // sequence of the session's previous commit; 0 for the first
	Trigger  Trigger `json:"trigger"`
	Cursor   uint64  `json:"cursor"`             // every cause up to here is processed
	Driver   uint64  `json:"driver"`             // the cause whose holder must drive; 0 when idle
	Delivery uint64  `json:"delivery,omitempty"` // how often the driver has been delivered so far
	// the cause's stream time, or the deciding core's clock; never decreases
	Now         time.Time      `json:"now"`
	Hooks       []hook.Verdict `json:"hooks,omitempty"`
	FoldVersion int            `json:"fold_version"`
	Digest      string         `json:"digest"` // of the state after this commit
}

// EventType implements Payload.
func (Header) EventType() Type { return TypeCommit }

// Commit is one decision: one message on agent.<agent>.<session>.commit.
type Commit struct {
	Ref    subject.Ref
	Header Header
	Events []Event
}

// Source is the CloudEvents source of the events that core writes.
const Source = "skandha/core"

// Encode returns the commit as a CloudEvents batch.
func (c Commit) Encode() ([]byte, error) {
	head, err := json.Marshal(c.Header)
	if err != nil {
		return nil, fmt.Errorf("encoding commit header: %w", err)
	}
	size := len(head) + 256
	for i := range c.Events {
		size += len(c.Events[i].Data) + 256
	}
	b := make([]byte, 0, size)
	b = append(b, '[')
	b = Event{
		SpecVersion: SpecVersion, ID: c.Header.CommitID, Source: Source, Type: TypeCommit, Time: c.Header.Now,
		Agent: c.Ref.Agent, Session: c.Ref.Session, Data: head,
	}.AppendJSON(b)
	for i := range c.Events {
		b = append(b, ',')
		b = c.Events[i].AppendJSON(b)
	}
	return append(b, ']'), nil
}

// DecodeCommit decodes a batch that was stored on the commit subject of ref. A body that
// names another session is an error.
func DecodeCommit(ref subject.Ref, b []byte) (Commit, error) {
	batch, ok := parseBatch(b)
	if !ok {
		batch = nil
		if err := json.Unmarshal(b, &batch); err != nil {
			return Commit{}, fmt.Errorf("%w: commit batch: %w", ErrMalformed, err)
		}
	}
	if len(batch) == 0 || batch[0].Type != TypeCommit {
		return Commit{}, fmt.Errorf("%w: a commit begins with %s", ErrMalformed, TypeCommit)
	}
	c := Commit{Ref: ref, Events: batch[1:]}
	if err := batch[0].DataAs(&c.Header); err != nil {
		return Commit{}, err
	}
	if batch[0].ID != c.Header.CommitID {
		return Commit{}, fmt.Errorf("%w: commit_id is %q, the header's id is %q", ErrMalformed, c.Header.CommitID,
			batch[0].ID)
	}
	if err := checkTime("now", c.Header.Now); err != nil {
		return Commit{}, err
	}
	for i := range batch {
		if err := batch[i].Check(); err != nil {
			return Commit{}, fmt.Errorf("element %d: %w", i, err)
		}
		if batch[i].Ref() != ref {
			return Commit{}, fmt.Errorf("%w: element %d belongs to %s, not to %s", ErrMalformed, i, batch[i].Ref(), ref)
		}
	}
	return c, nil
}
