// Package redis keeps the view in Redis (4 or newer, or a compatible server), as a
// single server, a master that Sentinel names, or a cluster, for a deployment with several
// cores. What a failover loses, core writes again: the view is never the truth.
//
// # Keys
//
// All begin with the prefix, "skandha:" unless configured:
//
//	agents                     set: agents that were ever written
//	marks                      hash: name -> value
//	coverage                   string: what the view covers
//	lease                      hash: holder, note; expires
//	{<agent>}:sessions         sorted set: session by minus its update time
//	{<agent>}:session:<id>     hash: a snapshot
//	{<agent>}:counted          hash: rev:<session> -> statistics revision, sum:<session>
//	                           -> all it added to the sums
//	{<agent>}:tools            hash: used:<tool>, succeeded:<tool>, ... -> sum
//
// The agent, percent-encoded, is the hash tag. So all keys that one call must change in
// one step are in one slot, and every guarantee also holds in a cluster. A cluster
// distributes agents, not the sessions of one agent.
//
// Only the lease expires. With a maxmemory-policy of allkeys-… the server drops keys,
// which are then folded from the log again and again; use noeviction.
//
// A key of the wrong type, or a value that should be a number but is not, is removed
// when it is found, together with the coverage.
package redis
