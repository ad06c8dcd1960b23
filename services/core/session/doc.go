// Package session holds the sessions that a core has open, and drives their turns. It
// follows the turn protocol, whose model is services/test/model; comments name its rules.
//
// A [Set] passes each delivery to its session. The session loads its state, calls package
// decide, appends commits with a fence, sends what they ask for to executors, and decides
// about the answers. Package loader folds states from the log, package directory picks
// executors and lends their slots, package plugins asks hooks, and package attempt sends.
//
// Consumes: causes, and answers of executors.
// Produces: commits, live copies of their events, timer schedules, requests to executors,
// dead letters.
//
// Delivery: a cause is acknowledged only when that is permanent (rule 4), so it
// is processed at least once, and the fence makes its effect exactly once.
// Order: per session, the order of the log. One goroutine serves a session, and
// only while the session has work.
//
// Failure: a core that dies or stalls loses its deliveries to another core after
// [AckWait]. The other core dispatches no open attempt again; it asks the executors
// about them (rule 7). A panic is recovered and counts against its cause (rule 13).
// While the bus is disconnected, the core decides nothing and gives up nothing.
package session
