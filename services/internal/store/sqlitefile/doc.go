// Package sqlitefile keeps a SQLite file that holds derived data: what can be computed
// from its source again.
//
// The file is in WAL mode with synchronous=NORMAL: a write costs no fsync, and a
// power failure may undo the last writes, but never part of one. One connection
// writes, a few others read. Several processes may share a file.
//
// A file that is damaged, unreadable or written by a newer version is moved aside
// (name.aside-<time>, logged as an error) and replaced by a new one, when it is opened
// or when damage is found later, because its source is the truth. An intact
// SQLite database of another program is not touched; opening it fails.
//
// If the file is deleted or replaced while it is open, the next call notices that and
// opens the file that is now at the path, or creates it.
//
// # Failure
//
// Errors are those of package store. The tests are those of the packages that use it.
package sqlitefile
