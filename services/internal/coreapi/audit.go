package coreapi

import (
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/audit"
)

// VerbAudit lists who did what: AuditQuery -> AuditPage; admin.
const VerbAudit = "audit"

// MaxAudit is how many entries an [AuditPage] has at most.
const MaxAudit = 1000

// AuditQuery asks for entries of the audit log: the latest ones that match, or those from a number on.
type AuditQuery struct {
	Since   time.Time       `json:"since,omitzero"`
	Until   time.Time       `json:"until,omitzero"` // entries before it
	By      string          `json:"by,omitempty"`   // name, writer or sender of who did it
	Verb    audit.Verb      `json:"verb,omitempty"`
	Agent   subject.Agent   `json:"agent,omitempty"`
	Session subject.Session `json:"session,omitempty"`
	Limit   int             `json:"limit,omitempty"` // default 100, at most 1000
	// Before asks for entries before this number, 0: up to the last one; the latest are returned.
	Before uint64 `json:"before,omitempty"`
	// From asks for entries from this number on instead; the earliest are returned.
	From uint64 `json:"from,omitempty"`
	// Verify has core recompute the whole chain first.
	Verify bool `json:"verify,omitempty"`
}

// AuditPage is a list of entries, in the order of their numbers.
type AuditPage struct {
	// Lines are the entries as they were written, byte for byte, each an [audit.Entry] in JSON.
	Lines []string `json:"lines"`
	// Next is Before or From of the next page; 0: there is none.
	Next uint64 `json:"next,omitempty"`
	// First and Last are the entries that are kept; Last is absent if there is none.
	First uint64      `json:"first,omitempty"`
	Last  *audit.Head `json:"last,omitempty"`
	// Damage says what is known to be wrong with the log; empty: nothing.
	Damage   string `json:"damage,omitempty"`
	Verified bool   `json:"verified,omitempty"` // the whole chain was recomputed for this answer
}
