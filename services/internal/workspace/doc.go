// Package workspace stores snapshots of the workspaces of sandboxes, so that a session's files survive the sandbox
// and the machine that held them.
//
// A snapshot is a [Head], an [Index] and packs, in the bucket "files" under <agent>.<session>. Contents are split
// into chunks of at most [MaxChunk] bytes, and chunks are put into packs, so that a thousand small files are a few
// messages. The index says of each file which chunks it has, and where they are. Packs are never changed. A session
// has one head, which replaces the one before.
//
// # Guarantee
//
// Packs are stored first, then the index, then the head, and what the head no longer refers to is removed last: a
// crash at any point leaves a snapshot that can be restored. A head is stored only if it follows the one that its
// writer knows ([Store.Commit]); a writer that was overtaken, or whose session was deleted, gets [bus.ErrFenceLost].
// It must then store everything anew, since what it has stored may be gone. A writer removes only what was stored
// before its own head, and so nothing of a writer that is still to commit.
//
// # Trust
//
// The content of a snapshot comes from code of models. Nothing here opens a path: the files are written by the agent
// in a sandbox. Only services may write the bucket: sandbox services, and core, which deletes (schemas/rights.yaml); a digest of
// each chunk shows damage, and not forgery. Snapshots share nothing across sessions.
package workspace
