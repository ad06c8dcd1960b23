package sqlitefile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite/vec" // the virtual table vec0, for vectors
)

const (
	busyTimeoutMS = 3000 // how long a write waits for another process
	readers       = 3
)

// Conns is the connections of an open file: one that writes, some that read.
type Conns struct {
	Write, Read *sql.DB
}

// Statement is a statement to prepare.
type Statement struct {
	Into **sql.Stmt
	On   *sql.DB
	Text string
}

// Prepare compiles statements. One that SQLite cannot compile means damage: a table or
// column of the schema is missing.
func (c *Conns) Prepare(ctx context.Context, statements ...Statement) error {
	for _, s := range statements {
		stmt, err := s.On.PrepareContext(ctx, s.Text)
		if err != nil {
			return fmt.Errorf("preparing %.40q: %w", strings.TrimSpace(s.Text), schemaError(err))
		}
		*s.Into = stmt
	}
	return nil
}

// Transact runs body in a write transaction.
func (c *Conns) Transact(ctx context.Context, body func(*sql.Tx) error) error {
	tx, err := c.Write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := body(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// close closes the readers first, so that the writer is the last connection and merges
// the write-ahead log into the file.
func (c *Conns) close() error {
	var errs []error
	for _, pool := range []*sql.DB{c.Read, c.Write} {
		if pool != nil {
			errs = append(errs, pool.Close())
		}
	}
	return errors.Join(errs...)
}

// database is an open file.
type database[D any] struct {
	Conns

	prepared D
	files    map[string]os.FileInfo // the open files, by suffix; other files may be at the paths later
}

func (f *File[D]) openDatabase(ctx context.Context) (*database[D], error) {
	if err := f.inspect(); err != nil {
		return nil, err
	}
	if err := f.migrate(ctx); err != nil {
		return nil, err
	}
	db := &database[D]{}
	err := db.connect(f.path)
	if err == nil {
		db.prepared, err = f.cfg.Prepare(ctx, &db.Conns)
	}
	if err == nil {
		err = db.identify(f.path)
	}
	if err != nil {
		return nil, errors.Join(err, db.close())
	}
	return db, nil
}

func (c *Conns) connect(path string) (err error) {
	if c.Write, err = connect(path, 1, "_journal_mode=WAL", "_synchronous=NORMAL",
		"_pragma=journal_size_limit(67108864)"); err != nil {
		return err
	}
	c.Read, err = connect(path, readers, "_query_only=1")
	return err
}

// identify records which files are open.
func (db *database[D]) identify(path string) error {
	db.files = map[string]os.FileInfo{}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if err == nil {
			db.files[suffix] = info
		} else if suffix == "" {
			return err
		}
	}
	return nil
}

// connect returns a pool of at most size connections, which stay open.
func connect(path string, size int, settings ...string) (*sql.DB, error) {
	settings = append(settings, fmt.Sprintf("_busy_timeout=%d", busyTimeoutMS), "_txlock=immediate", "_dqs=0",
		"_error_rc=1")
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // C:/… as a URI
	}
	dsn := "file://" + (&url.URL{Path: slashed}).EscapedPath() + "?" + strings.Join(settings, "&")
	pool, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(size)
	pool.SetMaxIdleConns(size)
	return pool, nil
}
