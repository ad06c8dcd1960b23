package sqlite

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

// Config configures the store.
type Config struct {
	Path   string       // the file; missing directories are created, readable only by this user
	Logger *slog.Logger // default: slog.Default()
}

// Store is a store.Store in a SQLite file.
type Store struct {
	path string
	log  *slog.Logger

	mu     sync.RWMutex // read-locked by every call, locked to replace db
	db     *database    // nil after a restart that failed; the next call tries again
	closed bool
}

var _ store.Store = (*Store)(nil)

// Open opens the file, or creates it.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Path == "" {
		return nil, fmt.Errorf("%w: no path for the SQLite file", store.ErrInvalid)
	}
	path, err := resolve(cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("%w: sqlite file %q: %w", store.ErrUnavailable, cfg.Path, err)
	}
	s := &Store{path: path, log: cfg.Logger}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.db, err = s.open(ctx); err != nil {
		return nil, s.explain(ctx, "open", err)
	}
	return s, nil
}

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
func (s *Store) open(ctx context.Context) (*database, error) {
	db, err := openDatabase(ctx, s.path, s.log)
	if !damaged(err) {
		return db, err
	}
	if err := s.moveAside(ctx, err); err != nil {
		return nil, err
	}
	return openDatabase(ctx, s.path, s.log)
}

// Ping implements store.Store.
func (s *Store) Ping(ctx context.Context) error {
	return s.do(ctx, "ping", func(db *database) error {
		var one int
		return db.ping.QueryRowContext(ctx).Scan(&one)
	})
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	db := s.db
	s.db, s.closed = nil, true
	if db == nil {
		return nil
	}
	return db.close()
}

// do runs one call. If the call finds damage, do starts a new file and repeats the call
// on that.
func (s *Store) do(ctx context.Context, op string, call func(*database) error) error {
	err := ctx.Err()
	if err == nil {
		err = s.try(call)
	}
	if damaged(err) {
		if err = s.restart(context.WithoutCancel(ctx), err); err == nil {
			err = s.try(call)
		}
	}
	return s.explain(ctx, op, err)
}

func (s *Store) try(call func(*database) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.closed:
		return store.ErrClosed
	case s.db == nil:
		return errNoDatabase
	case s.db.moved(s.path):
		return &damageError{db: s.db, cause: errMoved}
	}
	err := call(s.db)
	if damaged(err) {
		return &damageError{db: s.db, cause: err}
	}
	return err
}

// restart replaces the database that a call found damaged, unless another call
// has done so already.
func (s *Store) restart(ctx context.Context, found error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	if at, ok := errors.AsType[*damageError](found); ok && s.db == at.db {
		s.db = nil
		if err := at.db.close(); err != nil {
			s.log.WarnContext(ctx, "store: closing a damaged database", "path", s.path, "error", err)
		}
		if err := s.makeWay(ctx, at); err != nil {
			return err
		}
	}
	if s.db != nil {
		return nil
	}
	var err error
	s.db, err = s.open(ctx)
	return err
}

// makeWay clears the path after a database was abandoned.
func (s *Store) makeWay(ctx context.Context, given *damageError) error {
	if errors.Is(given, errMoved) {
		return s.leaveBehind(ctx, given.db)
	}
	return s.moveAside(ctx, given.cause)
}

// explain maps an error to the contract's, with the operation and file.
func (s *Store) explain(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrClosed):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("store: %s: %w", op, ctx.Err())
	}
	return fmt.Errorf("%w: %s %s: %w", store.ErrUnavailable, op, s.path, err)
}
