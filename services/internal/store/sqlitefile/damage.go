package sqlitefile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// ErrDamaged means that only a new file helps. A call returns it for content that it cannot
// read; [File.Do] then starts a new file.
var ErrDamaged = errors.New("damaged")

var (
	errForeign    = errors.New("database belongs to another program")
	errMoved      = fmt.Errorf("%w: the file was deleted or replaced while in use", ErrDamaged)
	errNoDatabase = fmt.Errorf("%w: not open since the last damage", ErrDamaged)
)

// damageError is damage found by a call, with the damaged database.
type damageError[D any] struct {
	db    *database[D]
	cause error
}

func (e *damageError[D]) Error() string { return e.cause.Error() }
func (e *damageError[D]) Unwrap() error { return e.cause }

// damaged reports whether only a new file can fix the error. Errors of a locked file or
// of a full or failing disk do not count.
func damaged(err error) bool {
	if errors.Is(err, ErrDamaged) {
		return true
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT:
			return true
		case sqlite3.SQLITE_ERROR:
			return missing.MatchString(e.Error())
		}
		return e.Code() == sqlite3.SQLITE_IOERR_SHORT_READ // the file ends too early
	}
	return false
}

// missing matches the errors of a changed schema, because all statements were compiled
// when the file was opened. SQLite's error code is ambiguous: after a full disk, for
// example, it means that there is no transaction to roll back.
var missing = regexp.MustCompile(`no such (table|column)|has no column`)

// moved reports whether the open file is no longer at the path. Processes that open the
// path would not see what is written to the open file.
func (db *database[D]) moved(path string) bool {
	now, err := os.Stat(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return !os.SameFile(now, db.files[""])
}

// leaveBehind prepares the path for another file, which must not find the write-ahead log
// of the earlier one. It does not remove files that belong to another database.
func (f *File[D]) leaveBehind(ctx context.Context, db *database[D]) error {
	f.log.ErrorContext(ctx, "store: the database was deleted or replaced while in use; "+
		"opening the file that is now at the path, which is refilled from "+f.cfg.Source, "path", f.path)
	for _, suffix := range []string{"-wal", "-shm"} {
		now, err := os.Stat(f.path + suffix)
		if err != nil || !os.SameFile(now, db.files[suffix]) {
			continue
		}
		if err := os.Remove(f.path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.MkdirAll(filepath.Dir(f.path), 0o700)
}

// schemaError marks the error of a statement that SQLite can't compile as damage: a table
// or column of the schema is missing.
func schemaError(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code()&0xff == sqlite3.SQLITE_ERROR {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// The parts of a SQLite file's header that identify the program that created it; see
// sqlite.org/fileformat.html.
const (
	magic         = "SQLite format 3\x00"
	headerSize    = 100
	applicationAt = 68
)

// inspect creates the file if there is none, readable only by this user, and checks
// whether SQLite may open it at all.
func (f *File[D]) inspect() error {
	if info, err := os.Stat(f.path); err == nil && !info.Mode().IsRegular() {
		return errors.New("is not a regular file")
	}
	file, err := os.OpenFile(f.path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // nothing was written
	if err := restrict(file); err != nil {
		f.log.Warn("store: other users may be able to read the database", "path", f.path, "error", err)
	}
	header := make([]byte, headerSize)
	switch n, err := io.ReadFull(file, header); {
	case n == 0 && errors.Is(err, io.EOF):
		return nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case n < headerSize || string(header[:len(magic)]) != magic:
		return fmt.Errorf("%w: no SQLite header", ErrDamaged)
	case binary.BigEndian.Uint32(header[applicationAt:]) != f.cfg.Application:
		return errForeign
	}
	return nil
}

// restrict removes the permissions of group and others.
func restrict(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return err
	}
	return f.Chmod(0o600)
}

// moveAside renames the file and those that belong to it. The main file is last: a log
// without its file is useless, and a new file must not find an old log.
func (f *File[D]) moveAside(ctx context.Context, why error) error {
	aside, err := freeName(f.path + ".aside-" + time.Now().UTC().Format("20060102T150405Z"))
	if err != nil {
		return err
	}
	for _, suffix := range []string{"-wal", "-shm", "-journal", ""} {
		err := os.Rename(f.path+suffix, aside+suffix)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("moving aside (%w): %w", why, err)
		}
	}
	f.log.ErrorContext(ctx, "store: database moved aside; starting a new one, which is refilled from "+f.cfg.Source,
		"path", f.path, "aside", aside, "error", why)
	return nil
}

func freeName(name string) (string, error) {
	for n := range 1000 {
		candidate := name
		if n > 0 {
			candidate = fmt.Sprintf("%s.%d", name, n)
		}
		if _, err := os.Lstat(candidate); errors.Is(err, fs.ErrNotExist) {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("no free name like %s", name)
}
