package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

const (
	busyTimeoutMS = 3000 // how long a write waits for another process
	readers       = 3
)

// database is an open file: one connection that writes, some that read, and every
// statement prepared.
type database struct {
	write, read *sql.DB

	files map[string]os.FileInfo // the open files, by suffix; other files may be at the paths later

	save, remove, counted, advance, addTool, setMark, cover, lease *sql.Stmt // write
	ping, load, head, list, listAgent, tools, mark, coverage       *sql.Stmt // read
}

func openDatabase(ctx context.Context, path string, log *slog.Logger) (*database, error) {
	if err := inspect(path, log); err != nil {
		return nil, err
	}
	if err := migrate(ctx, path); err != nil {
		return nil, err
	}
	db := &database{}
	err := db.connect(path)
	if err == nil {
		err = db.prepare(ctx)
	}
	if err == nil {
		err = db.identify(path)
	}
	if err != nil {
		return nil, errors.Join(err, db.close())
	}
	return db, nil
}

func (db *database) connect(path string) (err error) {
	if db.write, err = connect(path, 1, "_journal_mode=WAL", "_synchronous=NORMAL",
		"_pragma=journal_size_limit(67108864)"); err != nil {
		return err
	}
	db.read, err = connect(path, readers, "_query_only=1")
	return err
}

func (db *database) prepare(ctx context.Context) error {
	for _, p := range []struct {
		stmt **sql.Stmt
		on   *sql.DB
		text string
	}{
		{&db.save, db.write, saveSQL},
		{&db.remove, db.write, removeSQL},
		{&db.counted, db.write, countedSQL},
		{&db.advance, db.write, advanceSQL},
		{&db.addTool, db.write, addToolSQL},
		{&db.setMark, db.write, setMarkSQL},
		{&db.cover, db.write, coverSQL},
		{&db.lease, db.write, leaseSQL},
		{&db.ping, db.read, pingSQL},
		{&db.load, db.read, loadSQL},
		{&db.head, db.read, headSQL},
		{&db.list, db.read, listSQL},
		{&db.listAgent, db.read, listAgentSQL},
		{&db.tools, db.read, toolsSQL},
		{&db.mark, db.read, markSQL},
		{&db.coverage, db.read, coverageSQL},
	} {
		stmt, err := p.on.PrepareContext(ctx, p.text)
		if err != nil {
			return fmt.Errorf("preparing %.40q: %w", strings.TrimSpace(p.text), schemaError(err))
		}
		*p.stmt = stmt
	}
	return nil
}

// identify records which files are open.
func (db *database) identify(path string) error {
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

// close closes the readers first, so that the writer is the last connection and merges
// the write-ahead log into the file.
func (db *database) close() error {
	var errs []error
	for _, pool := range []*sql.DB{db.read, db.write} {
		if pool != nil {
			errs = append(errs, pool.Close())
		}
	}
	return errors.Join(errs...)
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
