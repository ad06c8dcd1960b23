package contract

import (
	"context"
	"encoding/json"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// Backend is what doors stand on. Every method checks the principal's rights first,
// and returns *Error for what the caller is to be told.
type Backend interface {
	// Attach begins to tell what happens in a session. The feed ends with ctx.
	Attach(ctx context.Context, p Principal, a Attachment) (Feed, error)
	// Submit stores an input, or a slash command if its text begins with "/". When it
	// returns without error, the bus has acknowledged it.
	Submit(ctx context.Context, p Principal, in Submission) (Receipt, error)
	// Confirm stores an answer to a confirmation request, and waits a little for core's
	// judgement: the receipt says whether it counted. All connections are notified, too: of the
	// first answer as onConfirmationResolved, of one that core refuses as onAudit. A session
	// without history is CodeNotFound.
	Confirm(ctx context.Context, p Principal, a Answer) (Receipt, error)
	// Cancel stores the wish to stop a turn.
	Cancel(ctx context.Context, p Principal, c Cancellation) (Receipt, error)
	// Methods are what can be called by name beside these, such as listSessions.
	Methods() map[string]Method
}

// Method is something that can be called by its name, by JSON-RPC and POST.
type Method struct {
	Name  string
	Right Right // checked before Call
	// Call decodes its own parameters, a JSON object or empty, and refuses unknown fields.
	Call func(ctx context.Context, p Principal, params json.RawMessage) (any, error)
}

// Attachment says what one wants to be told.
type Attachment struct {
	Ref subject.Ref
	// After is the id of the last notification that was seen: what follows it is told.
	// "" begins with what comes now, "0" with the session's first event.
	After   string
	Commits bool   // onCommit too
	HTML    bool   // Markdown comes rendered, too
	Name    string // of the connection, for logs
}

// Feed tells what happens in a session, in order, each once.
type Feed interface {
	// Next waits for the next notification. The error is ctx's, or *Error with
	// CodeSlow if the caller did not keep up, CodeUnavailable, or that of LostPlace if
	// the log was replaced.
	Next(ctx context.Context) (Notification, error)
	// Close ends it. It may be called at any time, more than once.
	Close()
}

// Submission is something that a person says.
type Submission struct {
	Ref    subject.Ref
	Text   string
	ID     string // the sender's own; a repeated one is not taken twice; default a random one
	Mode   event.InputMode
	Source string // the UI, e.g. "web"
}

// Receipt is what the bus acknowledged.
type Receipt struct {
	Agent    subject.Agent   `json:"agent"`
	Session  subject.Session `json:"session"`
	Sequence uint64          `json:"sequence"` // of the cause: onInput and onTurnEnd carry it
	Turn     string          `json:"turn,omitempty"`
	ID       string          `json:"id,omitempty"` // of the input
	// Counted says of an answer whether core took it, and Reason why not. It is absent if
	// core has not judged it yet.
	Counted *bool  `json:"counted,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Answer is a person's answer to a confirmation request.
type Answer struct {
	Ref            subject.Ref
	ConfirmationID string
	Hash           string // of what was shown
	Approved       bool
	Reason         string
	Always         *event.Grant // one of those that were offered; with Approved
	Source         string       // the UI
}

// Cancellation names the turn to stop: by the sequence of its input's receipt, by the
// id that the same principal gave the input, or, with neither, the one that runs.
type Cancellation struct {
	Ref      subject.Ref
	Sequence uint64
	InputID  string
	Reason   string
}
