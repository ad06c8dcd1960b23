// Package turn is what all readers of the log know of turns: how one input is followed to
// its end, which events, plans and calls are its own, what hooks' verdicts are about, and
// how a session's commits are read backwards.
package turn
