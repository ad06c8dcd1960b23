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

// Store is the view. Package documentation says what holds for all methods.
type Store interface {
	// SaveSnapshot keeps s as the session's snapshot if it is newer than the one
	// that is kept: its Rev is larger, or its Rev is the same and its FoldVersion
	// is larger. Otherwise it does nothing and returns nil. To go back to an
	// earlier revision, delete the session first. Data is not retained.
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

	// RecordTools adds what the commit at rev says about tools, exactly once: it
	// applies only if rev (1 to MaxRev) is larger than the session's statistics
	// revision, which it then becomes, in one step. So a session's commits are
	// recorded in order, all deltas of one commit in one call. No deltas, no
	// effect.
	RecordTools(ctx context.Context, key Key, rev uint64, deltas []ToolDelta) error

	// RecordAll records many commits, each as RecordTools does and in the order
	// given, at a fraction of the cost. After an error some may be recorded; call
	// it again with all of them.
	RecordAll(ctx context.Context, records []ToolRecord) error

	// ToolStats returns the sums over all sessions, ordered by tool.
	ToolStats(ctx context.Context) ([]ToolStat, error)

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
