package plugin

import (
	"encoding/json"

	"skandha.dev/pkg/subject"
)

// StorageVerb is an operation of a storage backend.
type StorageVerb string

// The verbs. Put and Delete are idempotent.
const (
	Put    StorageVerb = "put"    // store Value under Key
	Get    StorageVerb = "get"    // return the value under Key
	Delete StorageVerb = "delete" // delete Key
	Search StorageVerb = "search" // return the entries that match Query best
)

// StorageRequest is the request to a storage plugin on storage.<plugin>.<verb>.
type StorageRequest struct {
	Verb       StorageVerb     `json:"verb"`            // as in the subject
	Agent      subject.Agent   `json:"agent"`           // the data's owner: agents never see each other's data
	Collection string          `json:"collection"`      // an id: a set of entries
	Key        string          `json:"key,omitempty"`   // put, get, delete
	Value      json.RawMessage `json:"value,omitempty"` // put: any JSON value
	Text       string          `json:"text,omitempty"`  // put: the text that search uses; if empty, the value itself
	Query      string          `json:"query,omitempty"` // search
	Limit      int             `json:"limit,omitempty"` // search: maximum number of entries; default 5
}

// StorageReply is the reply to a StorageRequest; empty for put and delete.
type StorageReply struct {
	Found   bool            `json:"found,omitempty"`   // get
	Value   json.RawMessage `json:"value,omitempty"`   // get, when found
	Entries []StorageEntry  `json:"entries,omitempty"` // search: best first
}

// StorageEntry is one result of a search.
type StorageEntry struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
	Score float64         `json:"score,omitempty"` // higher is better
}
