// Package hub sends the notifications of many sessions to many UIs.
//
// All feeds of a session share one follower (services/internal/follow). Each item from the
// follower becomes a notification once, is encoded once, and goes to each
// feed, which has its own queue.
//
// # Subjects
//
//	agent.<agent>.<session>.*.*      live copies of events, plain
//	stream.<agent>.<session>         token deltas and tool output, plain
//	agent.<agent>.<session>.commit   the log, for gaps and history
//	service.core.session             the state of a session, when a feed begins
//
// The hub publishes nothing.
//
// # Guarantee
//
// Every feed gets the events in the log in order, each once. A feed that begins after an id
// gets exactly what follows it: from memory if that is recent, otherwise from the log, at
// the reader's pace, until it has caught up. Deltas and output come in between and are
// lossy; no delta comes after the text that replaces it.
//
// A slow feed delays nobody else. Deltas and output are dropped when a feed's queue is half
// full. When it is full, a feed that is still being read continues from the log, at its own
// pace; one that is no longer read ends with [contract.CodeSlow] and the id to continue
// after. Markdown is rendered in the readers' goroutines, or in one that gathers the deltas
// that arrive meanwhile, so that feeds without HTML do not wait.
//
// # Failure
//
// While the bus is away, feeds get one onBus and then nothing; when it is back, they get
// another one and continue where they were. While the bus cannot store, onBus reports why.
// A feed that was catching up retries for [Config.Patience], then ends with
// [contract.CodeUnavailable]. When the log no longer contains what was sent to a session's
// feeds, because it was replaced, cut or restored from an older copy, they end with
// [contract.LostPlace]; attaching again after "0" sends all of the new log. The hub checks
// this after every reconnect, when a live copy contradicts what was sent, and when the last
// commit precedes it. A commit that cannot be read is skipped, and logged.
//
// A session without feeds is released after [Config.Idle].
package hub
