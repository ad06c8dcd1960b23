// Package turn follows one input through the events of its session: which turn is its own,
// which events belong to it, and how it ended.
package turn
