package contract

import (
	"context"
	"encoding/json"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
)

// Backend is what the transports call. Every method checks the principal's rights first,
// and returns *Error for errors that the caller should see.
type Backend interface {
	// Attach begins a feed of a session's notifications. The feed ends with ctx.
	Attach(ctx context.Context, p Principal, a Attachment) (Feed, error)
	// Submit stores an input, or a slash command if its text begins with "/". When it
	// returns without error, the bus has acknowledged it.
	Submit(ctx context.Context, p Principal, in Submission) (Receipt, error)
	// Confirm stores an answer to a confirmation request, and waits briefly for core's
	// decision: the receipt reports whether the answer counted. All connections are
	// notified, too: of the first answer by onConfirmationResolved, of one that core refuses
	// by onAudit. For a session without history the error is CodeNotFound.
	Confirm(ctx context.Context, p Principal, a Answer) (Receipt, error)
	// Cancel stores a request to stop a turn.
	Cancel(ctx context.Context, p Principal, c Cancellation) (Receipt, error)
	// Methods returns the further methods that clients can call by name, such as
	// listSessions.
	Methods() map[string]Method
}

// Method can be called by its name, over JSON-RPC and POST.
type Method struct {
	Name  string
	Right Right // checked before Call
	// Call decodes its own parameters, a JSON object or nothing, and refuses unknown fields.
	Call func(ctx context.Context, p Principal, params json.RawMessage) (any, error)
}

// Attachment selects the notifications of a feed.
type Attachment struct {
	Ref subject.Ref
	// After is the id of the last notification that the client has seen: the feed continues
	// after it. "" begins with new notifications, "0" with the session's first event.
	After   string
	Commits bool   // include onCommit
	HTML    bool   // include Markdown rendered as HTML
	Name    string // name of the connection, for logs
}

// Feed delivers a session's notifications in order, each once.
type Feed interface {
	// Next waits for the next notification. It returns ctx's error, or an *Error: CodeSlow
	// if the caller did not keep up, CodeUnavailable, or the error of LostPlace if the log
	// was replaced.
	Next(ctx context.Context) (Notification, error)
	// Close ends the feed. It may be called at any time, and more than once.
	Close()
}

// Submission is an input from a person.
type Submission struct {
	Ref    subject.Ref
	Text   string
	ID     string // chosen by the sender; a repeated one is not accepted twice; default: a random one
	Mode   event.InputMode
	Source string          // the UI, e.g. "web"
	Files  []provider.File // artifacts of the session
}

// Receipt describes what the bus acknowledged.
type Receipt struct {
	Agent    subject.Agent   `json:"agent"`
	Session  subject.Session `json:"session"`
	Sequence uint64          `json:"sequence"` // of the cause; onInput and onTurnEnd carry it
	Turn     string          `json:"turn,omitempty"`
	ID       string          `json:"id,omitempty"` // of the input
	// Counted reports whether core accepted an answer, and Reason why it did not. Counted is
	// absent if core has not decided yet.
	Counted *bool  `json:"counted,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Left    int    `json:"left,omitempty"` // how many more people must approve, after an approval that counts
}

// Answer is a person's answer to a confirmation request.
type Answer struct {
	Ref            subject.Ref
	ConfirmationID string
	Hash           string // of the request that was shown
	Approved       bool
	Reason         string
	Always         *event.Grant // one of those that the request offered; only with Approved
	Source         string       // the UI
	Passkey        *Proof       // the assertion of a passkey for this approval; nil: none
}

// Proof is what a browser brings back of a ceremony with a passkey.
type Proof struct {
	State      string          `json:"state"`      // as the bridge gave it
	Credential json.RawMessage `json:"credential"` // the browser's PublicKeyCredential
}

// Cancellation names the turn to stop: by the sequence in its input's receipt, by the id
// that the same principal gave the input, or, with neither, the running one.
type Cancellation struct {
	Ref      subject.Ref
	Sequence uint64
	InputID  string
	Reason   string
}
