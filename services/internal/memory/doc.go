// Package memory is the index of what agents remember: it lists memories and finds them by
// words and by the distance of embeddings.
//
// It is never the source of truth. That is the bucket of memories on JetStream, from which
// an index is filled and, after [Store.Wipe] or a loss, filled again. The revision of an
// entry is the sequence of its message in that bucket.
//
// # Guarantee
//
// Every implementation passes memorytest.Run:
//
//   - An entry's revision only increases, for all writers: late, repeated and concurrent
//     puts and removals do no harm. A removal is remembered until Wipe, so an earlier put
//     that arrives later does not bring the memory back.
//   - After a method has returned nil, every later call of any process on the same store
//     sees its effect. The effect survives a crash of this process.
//   - No call sees memories of another agent, except Unembedded.
//   - If anything was lost that the caller did not remove, Position is 0 as soon as the
//     store notices, so that the index is filled again.
//   - All methods may be called from many goroutines at once.
//
// # Order
//
// The order of an answer depends on the index and the query alone. Equal scores are
// ordered by time, newest first, then by id.
//
// # Failure
//
// Errors are [ErrNotFound], [ErrInvalid], [ErrClosed], the context's own error or
// [ErrUnavailable]; test for them with errors.Is. A cancelled call may have taken effect.
//
// # Implementations
//
// Packages sqlite (embedded), redis and chroma (deployed), and plugin (storage plugins).
// Package open selects one by URL; only mains and tests import it.
package memory
