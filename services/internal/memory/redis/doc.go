// Package redis keeps the index of memories in Redis (4 or newer, or a compatible server), as
// a single server or a cluster. The server needs no search module: words and vectors are
// compared here.
//
// For this, every process keeps what it has searched: words, vectors and times of the
// memories of the last 64 agents. Before each search it reads what has changed since, which
// is one round trip if nothing has. The first search of an agent reads all of its memories:
// with 384 dimensions about 2 KB each.
//
// # Keys
//
// All begin with the prefix, "skandha:memory:" unless configured:
//
//	agents                set: agents that were ever written
//	models                hash: model -> dimension
//	position              string: revision up to which the index is complete
//	{<agent>}:revisions   hash: id -> revision; -revision of a removed memory
//	{<agent>}:memories    hash: id -> memory as JSON
//	{<agent>}:vectors     hash: id -> digest of the text, model, numbers
//	{<agent>}:changes     sorted set: id by the number of its last change
//	{<agent>}:changed     string: number of the last change
//	{<agent>}:epoch       string: random, made with the first of these keys
//
// So all keys that one call must change in one step are in one slot. Nothing expires; with a
// maxmemory-policy of allkeys-… the server drops keys, so use noeviction.
//
// A key or value that cannot be read is removed when it is found, together with all others
// of its agent and the position.
package redis
