package workspace

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/subject"
)

// MaxChunk is the maximum size of a chunk and of a pack before compression, in bytes. A compressed pack fits into
// a message of any server.
const MaxChunk = 512 << 10

// Head is what is stored of a session, and by which instance.
type Head struct {
	Version int             `json:"version"`
	Agent   subject.Agent   `json:"agent"`
	Session subject.Session `json:"session"`
	// Lease is core's name for what is kept for the session; it changes when the session is reset.
	Lease string `json:"lease"`
	// Epoch counts the instances that had the lease, and Token is unique to this one's packs.
	Epoch    uint64           `json:"epoch"`
	Token    string           `json:"token"`
	Instance subject.Instance `json:"instance"`
	// Call is the call after which the files were as they are here.
	Call  string    `json:"call"`
	Turn  uint64    `json:"turn"` // the sequence of its turn
	Taken time.Time `json:"taken"`
	// Unsaved is a later call that has changed files, if these changes are not stored.
	Unsaved  string   `json:"unsaved,omitempty"`
	Packages []string `json:"packages,omitempty"` // installed for the session
	Files    int      `json:"files"`
	Bytes    int64    `json:"bytes"`
	Index    []string `json:"index"` // the packs that hold the index

	Revision uint64 `json:"-"` // of the head; 0: it is not stored
}

// version of Head and Index.
const version = 1

// Ref returns the session.
func (h Head) Ref() subject.Ref { return subject.Ref{Agent: h.Agent, Session: h.Session} }

// Index is the content of a snapshot.
type Index struct {
	Files []File `json:"files"` // in the order of paths; a directory precedes what is in it
	Packs []Pack `json:"packs"`
}

// File is a file, directory or link. Path and Target are JSON strings, since a name need not be UTF-8.
type File struct {
	Path   json.RawMessage `json:"p"`
	Target json.RawMessage `json:"to,omitempty"`
	Kind   string          `json:"k"` // "f", "d" or "l"
	Mode   uint32          `json:"m"`
	Time   int64           `json:"t"` // nanoseconds since 1970
	Size   int64           `json:"s,omitempty"`
	Chunks []Chunk         `json:"c,omitempty"`
}

// Chunk is a part of a file's content.
type Chunk struct {
	Pack   int    `json:"p"` // in Index.Packs
	Offset int    `json:"o"` // in the pack
	Size   int    `json:"n"`
	Digest Digest `json:"d"`
}

// Pack is a stored pack.
type Pack struct {
	Name string `json:"name"`
	Size int    `json:"size"` // before compression
}
