// Package executor is the engine that every executor shares: tool runners,
// sandboxes and providers. It keeps the promises of the turn protocol towards
// core (rules 7 to 11), so that what executes is one plain function.
//
// # Subjects
//
// It answers requests on runner.<instance> or provider.<instance>, under the
// name of the instance: reply.<instance>.<caller>.<n>. It publishes on
// announce.<kind>.<instance>, and listens on discover.<kind>.
//
// # Guarantee
//
// A (call, attempt) starts at most once, not after its start_by, and never once
// anybody was told that it never will: start, tombstone and refusal pass through
// one locked [Attempts]. Ids are kept for the life of the instance (some 30 bytes
// each), results until core releases them or not_after and executor.Skew have
// passed; then the answer is "unknown". Several callers may attach to an attempt;
// the latest [MaxWatchers] of them are told.
//
// # Order
//
// Requests are handled concurrently. Attempts that wait for a slot get it in the
// order in which they came, per pool. To one caller, no "running" follows a final
// answer.
//
// # Failure
//
// Work that finds that it cannot have had any effect says [DidNotRun], and the
// attempt is refused even though it began. Work that panics is finished with a
// failure. Work that ignores its context is
// answered for after a grace of [Grace], and holds its slot until it returns.
// When the process dies, core learns it from silence or from the server ("no
// responders"), and the ids are gone with the instance's id. An answer that could
// not be sent, because the connection was lost, is given when core asks again.
package executor
