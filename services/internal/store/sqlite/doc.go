// Package sqlite keeps the view in one SQLite file, for the embedded runtime. Package
// sqlitefile says what becomes of a file that is damaged, deleted or replaced.
package sqlite
