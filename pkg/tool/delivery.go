package tool

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/subject"
)

// DeliverPrefix begins the names of the tools with which messages leave: the messages for a
// listener's senders are given to the internal tool "deliver:" followed by the listener's name.
const DeliverPrefix = "deliver:"

// Delivery is the arguments of a tool that delivers a message to people.
type Delivery struct {
	Kind DeliveryKind `json:"kind"`
	// To is where, in the words of the tool that delivers: the reply_to of the input that it is about,
	// or as the configuration of notifications says.
	To   string `json:"to"`
	Text string `json:"text"` // Markdown
	// InReplyTo is the id that the listener gave the input; empty if it had none.
	InReplyTo string `json:"in_reply_to,omitempty"`
	Turn      string `json:"turn,omitempty"`
	// Approval is what a person is asked, with KindApproval. The text says it, too, without how
	// to answer.
	Approval *Approval `json:"approval,omitempty"`
	// Link opens the page at the message's session, if the configuration says where the page is.
	Link string `json:"link,omitempty"`
}

// DeliveryKind is why a message is delivered.
type DeliveryKind string

// The kinds.
const (
	KindAnswer   DeliveryKind = "answer"   // the agent's answer to the input
	KindFailure  DeliveryKind = "failure"  // the input ended without an answer; Text says why
	KindApproval DeliveryKind = "approval" // a person must approve a call
	KindNotice   DeliveryKind = "notice"   // anything else
)

// Approval is a pending confirmation request.
type Approval struct {
	ConfirmationID string          `json:"confirmation_id"`
	Hash           string          `json:"hash"`
	Tool           string          `json:"tool"`
	Args           json.RawMessage `json:"args"`
	ExpiresAt      time.Time       `json:"expires_at"`
	Warning        string          `json:"warning,omitempty"`
	// Needs says in words what an approval takes; empty: one answer.
	Needs string `json:"needs,omitempty"`
}

// MetadataPermanent is the key of the metadata of a failed delivery that a repetition cannot mend,
// with the value true. MetadataRetryAfter is the key of the number of milliseconds after which a
// repetition may succeed.
const (
	MetadataPermanent  = "permanent"
	MetadataRetryAfter = "retry_after_ms"
)

// Deliverer returns the name of the tool that delivers for a listener.
func Deliverer(w subject.Writer) string { return DeliverPrefix + string(w) }
