// Package sqlite keeps the view in one SQLite file, for the embedded runtime.
//
// The file is in WAL mode with synchronous=NORMAL: a write costs no fsync, and a
// power failure may undo the last writes, but never part of one. One connection
// writes, a few others read. Several processes may share a file.
//
// A file that is damaged, unreadable or written by a newer version is moved aside
// (name.aside-<time>, logged as an error) and replaced by a new one, when it is opened
// or when damage is found later, because the log is the source of truth. An intact
// SQLite database of another program is not touched; opening it fails.
//
// If the file is deleted or replaced while it is open, the next call notices that and
// opens the file that is now at the path, or creates it.
package sqlite
