// Package hub tells many UIs what happens in many sessions.
//
// One follower per session (services/internal/follow) is shared by all feeds of that
// session. What it brings becomes a notification once ([Notifications]), encoded once,
// and is handed to each feed, which has a queue of its own.
//
// # What it reads
//
//	agent.<agent>.<session>.*.*      live copies of events, plain
//	stream.<agent>.<session>         token deltas and what tools print, plain
//	agent.<agent>.<session>.commit   the log, for what is missing and what was before
//	service.core.session             where a session stands, when a feed begins
//
// It publishes nothing.
//
// # What is promised
//
// What stands in the log is told in its order, each once, to every feed: a feed that
// begins after an id gets exactly what follows it, from memory if that is recent,
// otherwise from the log, at the reader's own pace, until it has caught up. Deltas and
// output come between and are lossy; no delta comes after the text that
// replaces it.
//
// Nobody waits for a feed. Deltas and output are dropped when a feed's queue is half
// full. When it is full, a feed that is being read goes on from the log, at its own
// pace; one that nobody reads any more ends with [contract.CodeSlow] and names the id
// to go on after. Markdown is rendered in the readers' goroutines, or in one that
// gathers the deltas that come meanwhile, so that those who want none do not wait.
//
// # When something fails
//
// While the bus is away, feeds get one onBus and are then silent; afterwards they get
// another one and go on where they were. While the bus cannot store, onBus says why. A
// feed that was catching up tries again for [Config.Patience], then ends with
// [contract.CodeUnavailable]. When the log no longer holds what was sent to a session's
// feeds, because it was replaced, cut or restored from an older copy, they end with
// [contract.LostPlace]; attaching again after "0" sends all of the new log. This is
// checked after every reconnect, when a live copy contradicts what was sent, and when the
// last commit is before it. A commit that cannot be read is skipped, and logged.
//
// A session without feeds is let go after [Config.Idle].
package hub
