// Package redis keeps the view in Redis (4 or newer, or what speaks like it),
// alone or as a cluster, for a deployment with several cores.
//
// # Keys
//
// All begin with the prefix, "skandha:" unless configured:
//
//	agents                     set: agents that were ever written
//	marks                      hash: name -> value
//	{<agent>}:sessions         sorted set: session by minus its update time
//	{<agent>}:session:<id>     hash: a snapshot
//	{<agent>}:recorded         hash: session -> statistics revision
//	{<agent>}:tools            hash: used:<tool>, succeeded:<tool>, ... -> sum
//
// The agent, percent-encoded, is the hash tag: what one call must change in one
// step lies in one slot, so every guarantee holds in a cluster too, and a cluster
// spreads agents, not the sessions of one agent.
//
// Nothing expires. Under a maxmemory-policy of allkeys-… the server may drop a
// statistics revision and keep the sums, and a refold then counts twice; use
// noeviction.
package redis
