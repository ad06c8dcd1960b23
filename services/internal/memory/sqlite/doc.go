// Package sqlite keeps the index of memories in one SQLite file, for the embedded runtime.
// Package sqlitefile says what becomes of a file that is damaged, deleted or replaced.
//
// Words are found by FTS5. It gets the terms of package lexical, so its own tokenizer only
// splits at spaces. Their BM25 weights come from the memories of all agents in the file.
//
// Vectors are found by sqlite-vec, in one table per model. It holds them as 8-bit integers,
// a quarter of the bytes to read. The best candidates, twice as many as wanted and 16 more,
// are ranked again by the exact cosine similarity. So a memory is missed only if that many
// others are about equally near.
//
// Of the agents that it has searched last, a process also keeps the memories of those with at
// most 4,096 of them and 8 MB in all, and compares their exact vectors by itself. Before
// each search it reads what has changed, also by other processes.
package sqlite
