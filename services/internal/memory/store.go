package memory

import (
	"context"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
)

// Key names one memory.
type Key struct {
	Agent subject.Agent
	ID    string
}

// Entry is a memory as it is indexed.
type Entry struct {
	memory.Memory

	Revision uint64    // sequence of its message in the bucket, 1 to MaxRevision
	Model    string    // that computed Vector; "" if there is none
	Vector   []float32 // embedding of Text, stored with length 1; nil if there is none
}

// Key returns the name of the entry's memory.
func (e Entry) Key() Key { return Key{Agent: e.Agent, ID: e.ID} }

// Query describes the memories to find. Text, Vector or both are needed.
type Query struct {
	Agent  subject.Agent
	Text   string        // to share words with
	Vector []float32     // to be near to; nil: only words count
	Model  string        // that computed Vector
	Kinds  []memory.Kind // empty: all
	Limit  int           // most hits; 0 means DefaultHits, more than MaxHits means MaxHits
}

// Store is an index. The package documentation lists the guarantees of all methods.
type Store interface {
	// Put stores entries, each unless the store knows a newer revision of its memory or
	// a removal of it at this or a newer revision. A revision that is known already is
	// stored again only to add its vector. An entry without a vector keeps the stored one
	// if the text is the same. The first vector of a model sets the dimension
	// for all of its vectors; one of another dimension is ErrInvalid. After an error some
	// entries may have been stored; call Put again with all of them.
	Put(ctx context.Context, entries []Entry) error

	// Remove removes a memory, unless the store knows a newer revision of it. It is not
	// an error if there is none.
	Remove(ctx context.Context, key Key, revision uint64) error

	// Get returns the entry or ErrNotFound.
	Get(ctx context.Context, key Key) (Entry, error)

	// List returns the agent's memories of some kinds (none: all) by the time of their
	// creation, newest first, then by id. It returns at most limit of them (limit <= 0
	// means DefaultPage, and never more than MaxPage) beginning after the cursor, "" for
	// the first page. next is the following page's cursor and "" after the last; a page
	// may be shorter than limit and still have a next.
	List(ctx context.Context, agent subject.Agent, kinds []memory.Kind, limit int, after string) (
		page []memory.Memory, next string, err error)

	// Search returns the memories that match the query best, best first. Without a vector,
	// memories are ranked by the words that they share with the text (BM25). With a vector,
	// those with a vector of the same model are ranked by cosine similarity, and the others
	// by words; the two rankings are merged as [Merge] describes.
	Search(ctx context.Context, q Query) ([]memory.Hit, error)

	// Unembedded returns entries that have no vector of the model, of all agents, by their
	// revision, beginning after the given one. At most limit of them (as for List).
	Unembedded(ctx context.Context, model string, after uint64, limit int) ([]Entry, error)

	// SetPosition records that the index is complete up to a revision of the bucket. A
	// revision below the current one changes nothing.
	SetPosition(ctx context.Context, revision uint64) error

	// Position returns the revision up to which the index is complete. It is 0 if none was
	// recorded, or if the store has since lost anything.
	Position(ctx context.Context) (uint64, error)

	// Wipe removes everything that this store has stored, and nothing else in the same
	// database. After an error, call it again. Concurrent writes may or may not survive it.
	Wipe(ctx context.Context) error

	// Ping returns an error unless the store can serve a read now.
	Ping(ctx context.Context) error

	// Close waits for pending calls and releases all resources. Later calls return
	// ErrClosed; closing again returns nil.
	Close() error
}
