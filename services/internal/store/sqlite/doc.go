// Package sqlite keeps the view in one SQLite file, for the embedded runtime.
//
// The file is in WAL mode with synchronous=NORMAL: a write costs no fsync, and a
// power cut may take the last ones back, never half of one. One connection
// writes, a few read beside it. Several processes may share a file.
//
// A file that is damaged, unreadable or made by a newer version is moved aside
// (name.aside-<time>, logged as an error) and a fresh one takes its place, when it
// is opened or when damage is met later: the log is the truth. What is left alone,
// with an error, is a healthy SQLite database of another program.
//
// If the file is deleted or replaced while it is open, the next call notices it and
// opens the file that is then at the path, or creates it.
package sqlite
