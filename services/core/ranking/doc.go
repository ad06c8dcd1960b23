// Package ranking ranks the tools of the running system for requests. It keeps what the
// pure package core/planner/match needs: the index of the catalog, the statistics of tools,
// and embeddings.
//
// [Ranker.Rank] answers from memory. [Ranker.Run] reads the statistics, and computes the
// embeddings of tools, once per digest; [Ranker.Await] computes that of a request. What is not
// there yet is matched by words, and the method of each candidate says so.
//
// Many encoders know one language, and give all texts in another script the same vector. A model
// that cannot tell a text in a script from one with other letters is not used for the script.
//
// # Failure
//
// If embeddings cannot be computed, ranking goes on by words; the log says when this begins
// and ends. If the statistics cannot be read, the last ones count. A changed model discards
// all embeddings of the one before.
package ranking
