// Package chroma keeps the index of memories in a Chroma server, by its REST API v2. The
// server computes no embeddings: it gets them with the memories.
//
// # Collections
//
// All names begin with the prefix, "skandha-memory." unless configured:
//
//	entries         every memory and removal: its data, and its words as document
//	vectors.<hash>  the vectors of one model
//
// A record of the first collection has one dimension, which means nothing: Chroma 1.0 can
// store no record without an embedding, and one attempt spoils the collection. An entry with
// a vector names the collection of it by the server's id. So if vectors are lost, their
// entries count as not embedded.
//
// # Revisions
//
// Chroma cannot compare and set. So every revision of a memory is a separate record, and
// the newest one counts. A put removes the older ones that it sees; those that two writers
// leave are passed over when they are found, and removed by the next put.
//
// # Reach
//
// Vectors are found by the server's HNSW index, which is approximate. Words are found by
// $contains, and ranked here by BM25. Its weights come from the memories that share a word
// with the query, not from all of the agent's. A listing reads all memories of the agent,
// because Chroma cannot sort.
package chroma
