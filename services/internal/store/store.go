package store

import (
	"context"
	"time"
)

// Key names one session. Both parts are any non-empty strings and are compared
// byte by byte.
type Key struct{ Agent, Session string }

// Snapshot is the folded state of one session at a revision of the log.
type Snapshot struct {
	FoldVersion int       // version of the fold that made it, not negative
	Rev         uint64    // stream sequence of the commit it stands at, 1 to MaxRev
	Digest      string    // digest that commit carries
	Updated     time.Time // kept in UTC to the microsecond
	Phase       string    // for listings: idle, planning, ...
	Title       string    // for listings: the first input, cut
	Turns       int       // for listings, not negative
	Commits     uint64    // how many commits of the log it folds, at most MaxRev
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
}

// Head says which part of a session the view covers.
type Head struct {
	Rev         uint64 // of the snapshot; 0 if there is none, or it is not listed
	FoldVersion int
	Commits     uint64
	Counted     uint64 // the statistics revision; 0 if nothing was recorded
}

// Lease names the process that does a job for all processes.
type Lease struct {
	Holder string // not empty
	Note   string // from the holder, for others to show
}

// Store is the view. Package documentation says what holds for all methods.
type Store interface {
	// SaveSnapshot keeps s as the session's snapshot unless the existing one is newer:
	// its Rev is larger, or its Rev is the same and its FoldVersion is larger. Then it
	// does nothing and returns nil. To go back to an earlier revision, delete the
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
	// shorter than limit and still have a next. A session that is updated
	// while somebody pages moves to the front, so that page by page it may be missed
	// but is not repeated further down.
	ListSessions(ctx context.Context, agent string, limit int, after string) (page []SessionInfo, next string, err error)

	// DeleteSession removes the session's snapshot; no snapshot is no error. What
	// the session added to the tool statistics stays, and so does its statistics
	// revision: folding it again counts nothing twice.
	DeleteSession(ctx context.Context, key Key) error

	// Heads says which part of each session the store covers, in the given order. A
	// session that it does not list has the zero Head except for Counted.
	Heads(ctx context.Context, keys []Key) ([]Head, error)

	// RecordTools adds what commits say about tools, exactly once. A record applies
	// only if the session's statistics revision is in [After, Rev), and sets it to Rev
	// in the same step. At Rev or above, the record was counted before. Below After,
	// earlier commits are not counted yet: the record does not apply, and its session
	// is one of the gaps, each returned once. After an error some records may have
	// been applied; call it again with all of them.
	RecordTools(ctx context.Context, records []ToolRecord) (gaps []Key, err error)

	// ToolStats returns the sums over all sessions, ordered by tool.
	ToolStats(ctx context.Context) ([]ToolStat, error)

	// VerifyTools checks that the sums match what was recorded session by session. If
	// they do not, parts were lost or overwritten: it removes the statistics and their
	// revisions, as ResetTools does, and returns false.
	VerifyTools(ctx context.Context) (sound bool, err error)

	// ResetTools removes the tool statistics and all statistics revisions, so that
	// every commit counts again, and the coverage.
	ResetTools(ctx context.Context) error

	// SetCoverage records what the store covers, as a text of the caller.
	SetCoverage(ctx context.Context, what string) error

	// Coverage returns the text of the last SetCoverage. It is empty if there was
	// none, or if the store has since lost or removed anything that the caller did not
	// ask it to remove.
	Coverage(ctx context.Context) (string, error)

	// Lease takes or extends the store's only lease, unless another holder has it; ttl
	// 0 releases it. It returns the resulting lease. A lease does not keep others from
	// writing: it only avoids duplicate work.
	Lease(ctx context.Context, want Lease, ttl time.Duration) (Lease, error)

	// SetMark raises a watermark, a consumer's ack floor for example, to value (at
	// most MaxRev). A smaller value than the present one changes nothing.
	SetMark(ctx context.Context, name string, value uint64) error

	// Mark returns a watermark, 0 when it was never set.
	Mark(ctx context.Context, name string) (uint64, error)

	// Wipe removes everything this store keeps, and nothing else in the same
	// database. After an error, call it again. Writes that run meanwhile may or
	// may not survive it.
	Wipe(ctx context.Context) error

	// Ping says whether the store would answer a read now.
	Ping(ctx context.Context) error

	// Close waits for calls under way and releases everything. Later calls
	// return ErrClosed; closing again returns nil.
	Close() error
}
