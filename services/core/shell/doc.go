// Package shell is the thin, impure part of core: it consumes causes, loads
// states, lets package decide decide, appends commits with a fence, dispatches
// what they ask for and feeds the answers back. It follows the turn protocol,
// whose model is services/core/model; comments name its rules.
//
// Consumes: causes (durable pull consumer "core", shared by all replicas),
// fired timers, announcements of executors, answers under its own reply prefix.
// Produces: commits, live copies of their events, timer schedules, timer
// causes, requests to executors, dead letters.
//
// Delivery: a cause is acknowledged only when that is permanent (rule 4), so it
// is processed at least once, and the fence makes its effect exactly once.
// Order: per session, the order of the log. One goroutine serves one session,
// and only while there is something to do for it.
//
// Failure: a core that dies or stalls loses its deliveries to another after
// AckWait; that one goes on as a stranger, asking executors what became of
// their attempts. A panic is recovered and counts as a failed delivery. While
// the bus is away nothing is decided and nothing is given up.
package shell
