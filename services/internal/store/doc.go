// Package store is the view of the log for fast reads: session snapshots, tool
// statistics and watermarks.
//
// It is never the source of truth. That is the stream SESSIONS: everything here can be
// folded from it again, and [Store.Wipe] costs a refold but no turn. So callers treat
// any error of a read as "ask the log", and never fail a turn because of one.
//
// # Guarantees
//
// Every implementation passes storetest.Run:
//
//   - Each method is atomic: it happens completely or not at all, even if the
//     process dies meanwhile. Only Wipe may stop half way; call it again then.
//   - After a method has returned nil, every later call of any process on the same
//     store sees its effect. The effect survives a crash of this process. It may not
//     survive a crash of the machine or of the database server; then it is restored
//     from the log.
//   - A session's snapshot, its statistics revision and a mark only increase, for all
//     writers: late, repeated and concurrent writes do no harm.
//   - A value that can't be read (garbage, a wrong type, incomplete) is removed, logged
//     once with its name, and reads as if it had never been written. The coverage is
//     removed with it, so that the owner of the log knows that something is missing.
//     Tool statistics are removed as a whole, with their revisions, because the rest
//     could not be completed exactly.
//   - All methods may be called from many goroutines at once.
//
// # Failure
//
// Errors are [ErrNotFound], [ErrInvalid], [ErrClosed], the context's own error or
// [ErrUnavailable]; test for them with errors.Is. A cancelled call may have taken
// effect. The store keeps Data unchanged and does not interpret it: the caller must
// check by digest whether a snapshot belongs to the log.
//
// # Implementations
//
// Package sqlite (embedded) and package redis (deployed). Package open selects one by
// URL; only mains and tests import it.
package store
