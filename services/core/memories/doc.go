// Package memories keeps what agents remember beyond a session: facts, notes, experiences,
// lessons and proven capabilities.
//
// The truth is the bucket "memories" on JetStream, a key for each memory. The index
// (package internal/memory: SQLite, Redis, Chroma or a storage plugin) is filled from it, and
// can be wiped. Vectors are only in the index: they are computed again when it is filled
// again, or when another embedder is configured.
//
// # Subjects
//
// service.admin.memory, answered by package shell through [Memories.Do].
//
// # Guarantee
//
// An experience is written once: its id follows from the commit that ended the turn, and a
// key that exists is not created again, not even after somebody has deleted the memory.
// It is in the bucket as soon as possible after the end of its turn, and within a second in the
// index, together with others. What [Memories.Do] has acknowledged is in the bucket, and can be
// found by the same core. Recall never fails a turn: it finds
// less, and says why.
//
// # Order
//
// An index applies changes in the order of the bucket's revisions, which it also keeps: an
// older change that arrives late does nothing.
//
// # Failure
//
// While the index is away, changes go to the bucket, and the index catches up. Without an
// answer of the embedder, texts are found by words.
//
// # Testing
//
// Against the real bus and the SQLite index; the turn around it in package shell.
package memories
