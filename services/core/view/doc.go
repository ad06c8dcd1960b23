// Package view writes what Redis or SQLite holds about sessions, so that lists, statistics
// and snapshots can be read without the log. All of it can be made again from the log, but the statistics of turns that
// have left it.
//
// [Writer] writes snapshots, tool statistics and the ack floor of what this core stores,
// asynchronously: nothing waits for it. What turns leave for the memory it writes at once, the
// rest when a second has gathered. [Refill] looks at the start for what a killed core has not
// written. Then it compares the view with the log, for all cores at once, and folds what is
// missing. [Store] remembers the last fault for status.
//
// Guarantee: what was committed is in the view in the end, once; every write is idempotent.
// Order: none between sessions. Within one, statistics are written before the snapshot.
// Failure: turns continue without the view, and Refill completes it later.
//
// Testing: against both stores, through package shell (refill_test.go, view_test.go).
package view
