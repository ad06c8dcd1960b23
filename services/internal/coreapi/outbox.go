package coreapi

import (
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// VerbOutbox lists and changes the messages to people that are not delivered.
const VerbOutbox = "outbox" // OutboxQuery -> OutboxPage

// DeliveriesAtOnce is how many messages core delivers through one listener at once.
const DeliveriesAtOnce = 64

// OutboxState is the state of a message to people.
type OutboxState string

// The states. A delivered message disappears.
const (
	OutboxWaiting OutboxState = "waiting" // to be sent, or sent again
	OutboxSending OutboxState = "sending" // it is being sent, or it may have been sent
	OutboxDead    OutboxState = "dead"    // given up; a person decides
)

// OutboxAction is what to do with a message.
type OutboxAction string

// The actions.
const (
	OutboxResend OutboxAction = "resend" // a dead message, although it may have been sent
	OutboxDrop   OutboxAction = "drop"   // a message that is not being sent
)

// OutboxQuery asks for messages, and can change one before.
type OutboxQuery struct {
	Action OutboxAction   `json:"action,omitempty"` // with ID
	ID     string         `json:"id,omitempty"`     // only this one
	State  OutboxState    `json:"state,omitempty"`  // only of this state
	Limit  int            `json:"limit,omitempty"`  // default 100, at most 1000
	Caller subject.Writer `json:"caller,omitempty"` // with Action: on whose behalf
}

// OutboxPage is a list of messages, by destination and in order.
type OutboxPage struct {
	Messages []OutboxMessage `json:"messages"`
	More     bool            `json:"more,omitempty"` // there are more than the limit
}

// OutboxMessage is a message that is not delivered.
type OutboxMessage struct {
	ID string `json:"id"`
	subject.Ref
	Via      subject.Writer    `json:"via"` // the listener that delivers it
	To       string            `json:"to"`
	Kind     tool.DeliveryKind `json:"kind"`
	Text     string            `json:"text"`
	State    OutboxState       `json:"state"`
	Attempts int               `json:"attempts,omitempty"` // that have failed
	Error    string            `json:"error,omitempty"`    // of the last one, or why it is dead
	Next     time.Time         `json:"next,omitzero"`      // not before
	Stored   time.Time         `json:"stored"`
}
