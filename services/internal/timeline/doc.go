// Package timeline reads turns from the log: one turn as a tree of spans, from its commits, and the turns of a
// session as rows, latest first. Both are pure functions of commits.
package timeline
