// Package store is the read-fast view of the log: session snapshots, tool
// statistics and watermarks.
//
// It is never the truth. The SESSIONS stream is; everything here can be folded
// from it again, and [Store.Wipe] costs a refold and no turn. So a caller treats
// any error of a read as "ask the log", and never fails a turn because of one.
//
// # Guarantees
//
// Every implementation passes storetest.Run:
//
//   - Each method is atomic: it happens whole or not at all, also when the
//     process dies in it (Wipe alone may stop half way, and is then repeated).
//   - What a returned nil promised is seen by every later call of any process on
//     the same store. It survives a crash of this process; it may not survive a
//     crash of the machine or of the database server, from which the log heals it.
//   - A session's snapshot, its statistics revision and a mark only grow, whoever
//     writes: late, repeated and concurrent writes do no harm.
//   - A value that can't be read (garbage, a wrong type, a half) is removed, logged
//     once with its name, and reads as if it had never been written; the coverage
//     goes with it, so that the owner of the log knows that something is missing.
//     Tool statistics are removed whole, with their revisions: what is left of them
//     could not be completed exactly.
//   - All methods may be called from many goroutines at once.
//
// # Failure
//
// Errors are [ErrNotFound], [ErrInvalid], [ErrClosed], the context's own error or
// [ErrUnavailable]; test them with errors.Is. A cancelled call may have happened.
// The store keeps Data as it was given and does not know what it means: whether a
// snapshot belongs to the log is for the caller to check, by digest.
//
// # Implementations
//
// Package sqlite (embedded) and package redis (deployed); package open picks one
// by URL and is imported by mains and tests only.
package store
