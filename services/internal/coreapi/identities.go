package coreapi

import (
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/rights"
)

// VerbIdentities lists and changes who from outside may connect to the bus:
// IdentitiesQuery -> IdentitiesPage; admin.
const VerbIdentities = "identities"

// IdentityOp is what to do with an identity.
type IdentityOp string

// The operations.
const (
	IdentityInvite IdentityOp = "invite" // make credentials for a charter
	IdentityRotate IdentityOp = "rotate" // make new credentials; the old ones end after a while
	IdentityRevoke IdentityOp = "revoke" // end all its credentials and connections, now
)

// IdentitiesQuery asks for the identities, and can change one before.
type IdentitiesQuery struct {
	Op      IdentityOp       `json:"op,omitempty"`
	Name    subject.Identity `json:"name,omitempty"`    // only this one
	Charter *rights.Charter  `json:"charter,omitempty"` // invite
	// Replace, with invite, gives an identity that exists the charter; its credentials stay valid.
	Replace  bool           `json:"replace,omitempty"`
	Bearer   bool           `json:"bearer,omitempty"`    // invite, rotate: a token that needs no signature
	OverlapS int64          `json:"overlap_s,omitempty"` // rotate: how long the old credentials stay valid, in seconds
	Caller   subject.Writer `json:"caller"`              // on whose behalf
}

// IdentitiesPage is a list of identities, by name.
type IdentitiesPage struct {
	// Rights says that the bus enforces rights. Without them there are no identities: who has the bus's
	// token may do everything.
	Rights      bool        `json:"rights"`
	Identities  []Identity  `json:"identities"`
	Credentials *Credential `json:"credentials,omitempty"` // of invite and rotate; they are not kept
}

// IdentityState is the state of an identity.
type IdentityState string

// The states.
const (
	IdentityActive  IdentityState = "active"
	IdentityExpired IdentityState = "expired"
	IdentityRevoked IdentityState = "revoked"
)

// Identity is who from outside may connect.
type Identity struct {
	// Muted is until when it can send no inputs, because it has sent them faster than they are answered.
	Muted     time.Time      `json:"muted,omitzero"`
	Charter   rights.Charter `json:"charter"`
	State     IdentityState  `json:"state"`
	Invited   time.Time      `json:"invited"`
	By        subject.Writer `json:"by"`
	Ended     time.Time      `json:"ended,omitzero"` // when it was revoked
	Valid     int            `json:"valid"`          // credentials that are valid
	Connected int            `json:"connected"`      // connections now
	Seen      time.Time      `json:"seen,omitzero"`  // when it was last connected; zero: never
	Refused   *Refusal       `json:"refused,omitempty"`
}

// Refusal is that the bus did not let in a client with credentials of an identity.
type Refusal struct {
	At    time.Time `json:"at"` // by the clock of the bus; the latest
	Cause string    `json:"cause"`
}

// Credential shows the server who connects. Exactly one is set.
type Credential struct {
	Token string `json:"token,omitempty"` // bearer token, in place of a token in the URL
	Creds string `json:"creds,omitempty"` // the text of a credentials file of NATS
}
