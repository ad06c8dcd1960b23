package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

var (
	errDamaged    = errors.New("damaged")
	errForeign    = errors.New("is a database of another program")
	errMoved      = fmt.Errorf("%w: the file was deleted or replaced while in use", errDamaged)
	errNoDatabase = fmt.Errorf("%w: not open since the last damage", errDamaged)
)

// damageError is damage met by a call, with the database it was met in.
type damageError struct {
	db    *database
	cause error
}

func (e *damageError) Error() string { return e.cause.Error() }
func (e *damageError) Unwrap() error { return e.cause }

// damaged reports errors that only a fresh file cures. A locked, full or failing
// disk is none.
func damaged(err error) bool {
	if errors.Is(err, errDamaged) {
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

// missing matches a schema that is not ours any more: all statements were compiled when
// the file was opened. The code that SQLite gives it has other meanings: after a full
// disk, for example, that there is no transaction to roll back.
var missing = regexp.MustCompile(`no such (table|column)|has no column`)

// moved reports whether the path names another file than the open one, or none.
// Processes that open the path would not see what is written to the open file.
func (db *database) moved(path string) bool {
	now, err := os.Stat(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return !os.SameFile(now, db.files[""])
}

// leaveBehind makes way for another file at the path, which must not meet the
// write-ahead log of the earlier one. It leaves files that belong to another database.
func (s *Store) leaveBehind(ctx context.Context, db *database) error {
	s.log.ErrorContext(ctx, "store: the database was deleted or replaced while in use; "+
		"opening the file that is there now, which is refilled from the log",
		"path", s.path)
	for _, suffix := range []string{"-wal", "-shm"} {
		now, err := os.Stat(s.path + suffix)
		if err != nil || !os.SameFile(now, db.files[suffix]) {
			continue
		}
		if err := os.Remove(s.path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.MkdirAll(filepath.Dir(s.path), 0o700)
}

// schemaError says that a statement which SQLite can't compile met a schema that
// is not ours: a table or column is gone.
func schemaError(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code()&0xff == sqlite3.SQLITE_ERROR {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return err
}

// The places in a SQLite file's header that tell whose it is; see
// sqlite.org/fileformat.html.
const (
	magic         = "SQLite format 3\x00"
	headerSize    = 100
	applicationAt = 68
)

// inspect makes the file if there is none, for this user alone, and looks whether
// SQLite may touch it at all.
func inspect(path string, log *slog.Logger) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return errors.New("is not a regular file")
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	if err := restrict(f); err != nil {
		log.Warn("store: others may read the database", "path", path, "error", err)
	}
	header := make([]byte, headerSize)
	switch n, err := io.ReadFull(f, header); {
	case n == 0 && errors.Is(err, io.EOF):
		return nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case n < headerSize || string(header[:len(magic)]) != magic:
		return fmt.Errorf("%w: no SQLite header", errDamaged)
	case binary.BigEndian.Uint32(header[applicationAt:]) != applicationID:
		return errForeign
	}
	return nil
}

// restrict takes the rights of group and others away.
func restrict(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return err
	}
	return f.Chmod(0o600)
}

// moveAside renames the file and what belongs to it. The main file goes last: a
// log without its file is nothing, a fresh file must not meet an old log.
func (s *Store) moveAside(ctx context.Context, why error) error {
	aside, err := freeName(s.path + ".aside-" + time.Now().UTC().Format("20060102T150405Z"))
	if err != nil {
		return err
	}
	for _, suffix := range []string{"-wal", "-shm", "-journal", ""} {
		err := os.Rename(s.path+suffix, aside+suffix)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("moving aside (%w): %w", why, err)
		}
	}
	s.log.ErrorContext(ctx, "store: database moved aside, starting a fresh one; it refills from the log",
		"path", s.path, "aside", aside, "error", why)
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
