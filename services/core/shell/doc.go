// Package shell is the thin, impure part of core. It consumes causes, loads
// states, calls package decide, appends commits with a fence, dispatches what
// they ask for and feeds the answers back. It follows the turn protocol, whose
// model is services/test/model; comments name its rules.
//
// It wires other packages of core together: states come from package loader,
// executors and their slots from package directory, hooks and guides from package
// plugins, and package view writes what is read without the log. What is left here is
// the sessions, which drive turns, and the requests that core answers.
//
// Consumes: causes (durable pull consumer "core", shared by all replicas),
// fired timers, announcements of executors, answers under its own reply prefix,
// requests to service.core.<verb>.
// Produces: commits, live copies of their events, timer schedules, timer
// causes, requests to executors, dead letters.
//
// Delivery: a cause is acknowledged only when that is permanent (rule 4), so it
// is processed at least once, and the fence makes its effect exactly once.
// Order: per session, the order of the log. One goroutine serves a session, and
// only while the session has work.
//
// Failure: a core that dies or stalls loses its deliveries to another core after
// AckWait. The other core dispatches no open attempt again; it asks the executors
// about them (rule 7). A panic is recovered and counts against its cause (rule 13).
// While the bus is disconnected, the core decides nothing and gives up nothing.
package shell
