package store

import (
	"context"
	"time"

	"skandha.dev/pkg/subject"
)

// Key names one session. Both parts are any non-empty strings and are compared
// byte by byte.
type Key struct{ Agent, Session string }

// KeyOf returns the key of a session of the log.
func KeyOf(ref subject.Ref) Key {
	return Key{Agent: string(ref.Agent), Session: string(ref.Session)}
}

// Snapshot is the folded state of one session at a revision of the log.
type Snapshot struct {
	FoldVersion int       // version of the fold that produced it, not negative
	Rev         uint64    // stream sequence of its last commit, 1 to MaxRev
	Digest      string    // digest in that commit
	Updated     time.Time // kept in UTC to the microsecond
	Phase       string    // for listings: idle, planning, ...
	Title       string    // for listings: the first input, shortened
	Turns       int       // for listings, not negative
	Commits     uint64    // number of commits folded into it, at most MaxRev
	Above       string    // for listings: agent/session of the one that it works for; empty: none
	Data        []byte    // the encoded state, at most MaxData bytes
}

// SessionInfo is a snapshot without its data, for listings.
type SessionInfo struct {
	Key
	Rev     uint64
	Phase   string
	Title   string
	Turns   int
	Updated time.Time
	Above   string
}

// Head describes which part of a session the view covers.
type Head struct {
	Rev         uint64 // of the snapshot; 0 if there is none, or it is not listed
	FoldVersion int
	Commits     uint64
	Counted     uint64 // the statistics revision; 0 if nothing was recorded
}

// Lease names the process that does a job for all processes.
type Lease struct {
	Holder string // not empty
	Note   string // written by the holder, for others to show
}

// Store is the view. The package documentation lists the guarantees of all methods.
type Store interface {
	// SaveSnapshot stores s as the session's snapshot unless the existing one is newer:
	// its Rev is larger, or its Rev is the same and its FoldVersion is larger. In that
	// case it does nothing and returns nil. To return to an earlier revision, delete the
	// session first. Data is not retained.
	SaveSnapshot(ctx context.Context, key Key, s Snapshot) error

	// LoadSnapshot returns the session's snapshot or ErrNotFound. Data belongs to
	// the caller.
	LoadSnapshot(ctx context.Context, key Key) (Snapshot, error)

	// ListSessions returns the sessions that have a snapshot, of one agent or
	// (agent "") of all: most recently updated first, then by agent and session.
	// It returns at most limit of them (limit <= 0 means DefaultPage, and never
	// more than MaxPage) beginning after the cursor, "" for the first page.
	// next is the following page's cursor and "" after the last; a page may be
	// shorter than limit and still have a next. A session that is updated between two
	// pages moves to the front, so it may be missed but is not repeated further down.
	ListSessions(ctx context.Context, agent string, limit int, after string) (page []SessionInfo, next string, err error)

	// DeleteSession removes the session's snapshot. If there is none, that is not an
	// error. The session's tool statistics and its statistics revision stay, so folding
	// it again counts nothing twice.
	DeleteSession(ctx context.Context, key Key) error

	// Heads returns which part of each session the store covers, in the given order. A
	// session that is not listed has the zero Head except for Counted.
	Heads(ctx context.Context, keys []Key) ([]Head, error)

	// RecordTools adds the tool statistics of commits, exactly once. A record applies
	// only if the session's statistics revision is in [After, Rev), and sets it to Rev
	// in the same step. At Rev or above, the record was counted before. Below After,
	// earlier commits are not counted yet: the record does not apply, and its session
	// is one of the gaps, each returned once. After an error some records may have
	// been applied; call RecordTools again with all of them.
	RecordTools(ctx context.Context, records []ToolRecord) (gaps []Key, err error)

	// ToolStats returns the sums over all sessions, ordered by tool.
	ToolStats(ctx context.Context) ([]ToolStat, error)

	// VerifyTools checks that the sums match the records of the sessions. If they do not,
	// parts were lost or overwritten: it removes the statistics and their revisions, as
	// ResetTools does, and returns false.
	VerifyTools(ctx context.Context) (sound bool, err error)

	// ResetTools removes the tool statistics and all statistics revisions, so that
	// every commit counts again, and the coverage.
	ResetTools(ctx context.Context) error

	// SetCoverage records what the store covers. The text is opaque to the store.
	SetCoverage(ctx context.Context, what string) error

	// Coverage returns the text of the last SetCoverage. It is empty if there was
	// none, or if the store has since lost or removed anything that the caller did not
	// ask it to remove.
	Coverage(ctx context.Context) (string, error)

	// Lease acquires or extends the store's only lease, unless another holder has it; ttl
	// 0 releases it. It returns the resulting lease. A lease does not keep others from
	// writing: it only avoids duplicate work.
	Lease(ctx context.Context, want Lease, ttl time.Duration) (Lease, error)

	// SetMark raises a watermark, for example a consumer's ack floor, to value (at
	// most MaxRev). A value below the current one changes nothing.
	SetMark(ctx context.Context, name string, value uint64) error

	// Mark returns a watermark, or 0 if it was never set.
	Mark(ctx context.Context, name string) (uint64, error)

	// Wipe removes everything that this store has stored, and nothing else in the same
	// database. After an error, call it again. Concurrent writes may or may not
	// survive it.
	Wipe(ctx context.Context) error

	// Ping returns an error unless the store can serve a read now.
	Ping(ctx context.Context) error

	// Close waits for pending calls and releases all resources. Later calls return
	// ErrClosed; closing again returns nil.
	Close() error
}
