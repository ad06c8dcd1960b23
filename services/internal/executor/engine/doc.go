// Package engine is the engine shared by all executors: tool runners, sandboxes
// and providers. It implements the executor's side of the turn protocol (rules 7
// to 11), so that the work itself is one plain function.
//
// # Subjects
//
// It answers requests on runner.<instance> or provider.<instance>, under the
// name of the instance: reply.<caller>.<instance>.…. It publishes on
// announce.<kind>.<instance>, and listens on discover.<kind>.
//
// # Guarantee
//
// A (call, attempt) starts at most once, not after its start_by, and never after
// any caller was informed that it will not: start, tombstone and refusal pass
// through one locked [Attempts]. Ids are kept for the life of the instance (some 30
// bytes each), results until core releases them or not_after and executor.Skew have
// passed; then the answer is "unknown". Several callers may attach to an attempt;
// the latest [MaxWatchers] of them get its answers.
//
// # Order
//
// Requests are handled concurrently. Attempts that wait for a slot get it in the
// order of their arrival, per pool. A caller never gets "running" after a final
// answer.
//
// # Failure
//
// Work that certainly had no effect returns [DidNotRun], and the attempt is refused
// even though it began. If work panics, its attempt finishes with a failure. If work
// ignores the end of its context, the engine answers for it after [Grace], and the
// work holds its slot until it returns. If the process dies, core learns it from
// silence or from the server ("no responders"), and the ids end with the instance.
// An answer that could not be sent because the connection was lost is sent when core
// asks again.
package engine
