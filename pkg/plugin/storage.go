package plugin

import (
	"encoding/json"

	"skandha.dev/pkg/subject"
)

// StorageVerb is what a storage backend is asked to do.
type StorageVerb string

// The verbs. Put and Delete are idempotent.
const (
	Put    StorageVerb = "put"    // keep Value under Key
	Get    StorageVerb = "get"    // the value under Key
	Delete StorageVerb = "delete" // forget Key
	Search StorageVerb = "search" // what fits Query best
)

// StorageRequest is the request to a storage plugin on storage.<plugin>.<verb>.
type StorageRequest struct {
	Verb       StorageVerb     `json:"verb"`            // as in the subject
	Agent      subject.Agent   `json:"agent"`           // whose data it is: agents never see each other
	Collection string          `json:"collection"`      // an id: a set of entries
	Key        string          `json:"key,omitempty"`   // put, get, delete
	Value      json.RawMessage `json:"value,omitempty"` // put: any JSON value
	Text       string          `json:"text,omitempty"`  // put: what search looks at; empty: the value itself
	Query      string          `json:"query,omitempty"` // search
	Limit      int             `json:"limit,omitempty"` // search: most entries to return; default 5
}

// StorageReply is its answer; empty for put and delete.
type StorageReply struct {
	Found   bool            `json:"found,omitempty"`   // get
	Value   json.RawMessage `json:"value,omitempty"`   // get, when found
	Entries []StorageEntry  `json:"entries,omitempty"` // search: best first
}

// StorageEntry is a hit.
type StorageEntry struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
	Score float64         `json:"score,omitempty"` // higher is better
}
