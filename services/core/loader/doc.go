// Package loader brings the state of a session up to date with the log: from a cached
// state, the snapshot in the view, or the first commit.
//
// Reads: the commits of one session, and its snapshot. It writes nothing, except that it
// deletes or saves snapshots, which the log can always replace.
//
// Failure: a state or snapshot that the log does not confirm is not used. A log that
// cannot be folded to its end, or lacks commits that it once held, is a [*Damage]; what
// to do about it is the caller's decision.
//
// Testing: over an embedded server, through package shell (damage_test.go).
package loader
