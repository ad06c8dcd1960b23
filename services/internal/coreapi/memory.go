package coreapi

import (
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
)

// VerbMemory lists, finds and changes what an agent remembers: MemoryQuery -> MemoryAnswer.
const VerbMemory = "memory"

// MemoryOp is what a [MemoryQuery] wants.
type MemoryOp string

// The operations.
const (
	MemoryList    MemoryOp = "list"    // the memories, newest first
	MemorySearch  MemoryOp = "search"  // those that match Text, best first
	MemoryStore   MemoryOp = "store"   // a new one; with an ID that exists, nothing changes
	MemoryCorrect MemoryOp = "correct" // replace the text, or pin or unpin it
	MemoryForget  MemoryOp = "forget"  // delete it for good
)

// MemoryQuery asks about the memory of one agent.
type MemoryQuery struct {
	Op     MemoryOp       `json:"op"`
	Agent  subject.Agent  `json:"agent"`
	Caller subject.Writer `json:"caller"`         // on whose behalf
	ID     string         `json:"id,omitempty"`   // correct, forget; store: absent means a new one
	Text   string         `json:"text,omitempty"` // search, store; correct: absent leaves it
	Kind   memory.Kind    `json:"kind,omitempty"` // store: default fact
	// Kinds limits list and search to these kinds; empty: all.
	Kinds  []memory.Kind  `json:"kinds,omitempty"`
	Pinned *bool          `json:"pinned,omitempty"` // store, correct: absent leaves it
	Source *memory.Source `json:"source,omitempty"` // store: absent means the caller's own words
	Limit  int            `json:"limit,omitempty"`  // list, search: default 20, at most 100
	After  string         `json:"after,omitempty"`  // list: cursor from the previous page
}

// Changes reports whether the query changes something, if it is valid.
func (q MemoryQuery) Changes() bool { return q.Op != MemoryList && q.Op != MemorySearch }

// MemoryAnswer is the answer to a [MemoryQuery].
type MemoryAnswer struct {
	Memories []memory.Memory `json:"memories,omitempty"` // list
	Next     string          `json:"next,omitempty"`     // list: cursor of the next page
	Hits     []memory.Hit    `json:"hits,omitempty"`     // search
	Memory   *memory.Memory  `json:"memory,omitempty"`   // store, correct: as it is now
	// Embedder is the model by whose vectors texts are found; empty: by words alone.
	Embedder string `json:"embedder,omitempty"`
	// Trouble is why less was found than there may be.
	Trouble string `json:"trouble,omitempty"`
}
