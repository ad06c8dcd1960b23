package contract

import (
	"context"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// Gateway is a [Listener] that also delivers messages to people: the answers to its inputs that
// have a ReplyTo, requests for approval, and notices. The listener service offers it as the
// internal tool deliver:<name>; the outbox calls that, in order for each destination, until it
// succeeds.
type Gateway interface {
	Listener
	// Deliver sends a message. It calls [Outgoing.Begin] right before the first act that cannot
	// be taken back. A failure is tried again later, unless its metadata has
	// [tool.MetadataPermanent]; [tool.MetadataRetryAfter] says when. A failure with
	// [tool.CodeOutcomeUnknown] is probed.
	Deliver(ctx context.Context, m Outgoing) tool.Result
	// Probe finds out what became of a Deliver that had begun and whose result is unknown, as
	// the probe of a tool does: a success, or a failure with [tool.CodeNotRun] if the message
	// was certainly not sent and never will be, or with [tool.CodeOutcomeUnknown], which is
	// probed again unless it is [NeverKnown].
	Probe(ctx context.Context, m Outgoing, b tool.Begun) tool.Result
}

// NeverKnown is the result of a Probe if nothing can tell what became of the message: it is not
// probed again.
func NeverKnown(why string) tool.Result {
	r := tool.Failure(tool.CodeOutcomeUnknown, why)
	r.Metadata = map[string]any{tool.MetadataPermanent: true}
	return r
}

// Outgoing is a message to deliver.
type Outgoing struct {
	tool.Delivery
	Agent   subject.Agent
	Session subject.Session
	// Key names the message towards other systems. It is the same whenever the message is
	// delivered or probed, and unguessable.
	Key string
	// Attempt names this attempt at delivering it; see [tool.Begun].
	Attempt string
	// Begin records that the message is about to leave. After an error it must not leave.
	Begin func(ctx context.Context) error
}

// Answerer stores what people answer to requests for approval. An [Emitter] that a gateway gets is
// one.
type Answerer interface {
	// Confirm stores an answer and returns its sequence once the log has acknowledged it. The errors
	// are those of EmitInput.
	Confirm(ctx context.Context, ref subject.Ref, a event.Confirmation) (sequence uint64, err error)
}
