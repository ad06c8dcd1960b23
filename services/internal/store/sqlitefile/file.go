package sqlitefile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"skandha.dev/services/internal/store"
)

// Config configures a file whose calls get a D, such as a struct of prepared statements.
type Config[D any] struct {
	Path   string       // the file; missing directories are created, readable only by this user
	Logger *slog.Logger // default: slog.Default()

	Application uint32   // the application id in the file's header
	Migrations  []string // [i] brings a file from user_version i to i+1; append, never edit
	PageSize    int      // of a new file, in bytes; 0 means SQLite's default
	Source      string   // what the file is refilled from, for messages: "the log"

	// Prepare makes what the calls get, once per opened file. Statements that cannot be
	// compiled mean damage; see [Conns.Prepare].
	Prepare func(context.Context, *Conns) (D, error)
}

// File is a SQLite file of derived data. Its methods may be called from many goroutines.
type File[D any] struct {
	cfg  Config[D]
	path string
	log  *slog.Logger

	mu     sync.RWMutex // read-locked by every call, locked to replace db
	db     *database[D] // nil after a restart that failed; the next call tries again
	closed bool
}

// Open opens the file, or creates it.
func Open[D any](ctx context.Context, cfg Config[D]) (*File[D], error) {
	if cfg.Path == "" {
		return nil, fmt.Errorf("%w: no path for the SQLite file", store.ErrInvalid)
	}
	path, err := resolve(cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("%w: sqlite file %q: %w", store.ErrUnavailable, cfg.Path, err)
	}
	f := &File[D]{cfg: cfg, path: path, log: cfg.Logger}
	if f.log == nil {
		f.log = slog.Default()
	}
	if f.db, err = f.open(ctx); err != nil {
		return nil, f.explain(ctx, "open", err)
	}
	return f, nil
}

// Path returns where the file is, without links.
func (f *File[D]) Path() string { return f.path }

// Logger returns the logger of the configuration.
func (f *File[D]) Logger() *slog.Logger { return f.log }

// resolve makes the path absolute and follows links, so that a damaged file is moved
// aside in its own directory.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	return path, nil
}

// open opens the file or, if it is damaged, a new one.
func (f *File[D]) open(ctx context.Context) (*database[D], error) {
	db, err := f.openDatabase(ctx)
	if !damaged(err) {
		return db, err
	}
	if err := f.moveAside(ctx, err); err != nil {
		return nil, err
	}
	return f.openDatabase(ctx)
}

// Close closes the file. Later calls return store.ErrClosed; closing again returns nil.
func (f *File[D]) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	db := f.db
	f.db, f.closed = nil, true
	if db == nil {
		return nil
	}
	return db.close()
}

// Do runs one call. If the call finds damage, Do starts a new file and repeats the call
// on that. The error is one of package store, with the operation and the file.
func (f *File[D]) Do(ctx context.Context, op string, call func(D) error) error {
	err := ctx.Err()
	if err == nil {
		err = f.try(call)
	}
	if damaged(err) {
		if err = f.restart(context.WithoutCancel(ctx), err); err == nil {
			err = f.try(call)
		}
	}
	return f.explain(ctx, op, err)
}

func (f *File[D]) try(call func(D) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	switch {
	case f.closed:
		return store.ErrClosed
	case f.db == nil:
		return errNoDatabase
	case f.db.moved(f.path):
		return &damageError[D]{db: f.db, cause: errMoved}
	}
	err := call(f.db.prepared)
	if damaged(err) {
		return &damageError[D]{db: f.db, cause: err}
	}
	return err
}

// restart replaces the database that a call found damaged, unless another call
// has done so already.
func (f *File[D]) restart(ctx context.Context, found error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return store.ErrClosed
	}
	if at, ok := errors.AsType[*damageError[D]](found); ok && f.db == at.db {
		f.db = nil
		if err := at.db.close(); err != nil {
			f.log.WarnContext(ctx, "store: closing a damaged database", "path", f.path, "error", err)
		}
		if err := f.makeWay(ctx, at); err != nil {
			return err
		}
	}
	if f.db != nil {
		return nil
	}
	var err error
	f.db, err = f.open(ctx)
	return err
}

// makeWay clears the path after a database was abandoned.
func (f *File[D]) makeWay(ctx context.Context, given *damageError[D]) error {
	if errors.Is(given, errMoved) {
		return f.leaveBehind(ctx, given.db)
	}
	return f.moveAside(ctx, given.cause)
}

// explain maps an error to the contract's, with the operation and file.
func (f *File[D]) explain(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrClosed):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("store: %s: %w", op, ctx.Err())
	}
	return fmt.Errorf("%w: %s %s: %w", store.ErrUnavailable, op, f.path, err)
}
