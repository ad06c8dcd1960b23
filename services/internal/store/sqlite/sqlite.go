package sqlite

import (
	"context"
	"database/sql"
	"log/slog"

	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/sqlitefile"
)

// Config configures the store.
type Config struct {
	Path   string       // the file; missing directories are created, readable only by this user
	Logger *slog.Logger // default: slog.Default()
}

// Store is a store.Store in a SQLite file.
type Store struct {
	file *sqlitefile.File[*database]
}

var _ store.Store = (*Store)(nil)

// Open opens the file, or creates it.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	file, err := sqlitefile.Open(ctx, sqlitefile.Config[*database]{
		Path: cfg.Path, Logger: cfg.Logger, Application: applicationID, Migrations: migrations, Source: "the log",
		Prepare: prepare,
	})
	if err != nil {
		return nil, err
	}
	return &Store{file}, nil
}

// Ping implements store.Store.
func (s *Store) Ping(ctx context.Context) error {
	return s.file.Do(ctx, "ping", func(db *database) error {
		var one int
		return db.ping.QueryRowContext(ctx).Scan(&one)
	})
}

// Close implements store.Store.
func (s *Store) Close() error { return s.file.Close() }

// database is every statement prepared.
type database struct {
	conns *sqlitefile.Conns

	save, remove, counted, advance, addTool, setMark, cover, lease *sql.Stmt // write
	ping, load, head, list, listAgent, tools, mark, coverage       *sql.Stmt // read
}

func prepare(ctx context.Context, c *sqlitefile.Conns) (*database, error) {
	db := &database{conns: c}
	return db, c.Prepare(ctx,
		sqlitefile.Statement{Into: &db.save, On: c.Write, Text: saveSQL},
		sqlitefile.Statement{Into: &db.remove, On: c.Write, Text: removeSQL},
		sqlitefile.Statement{Into: &db.counted, On: c.Write, Text: countedSQL},
		sqlitefile.Statement{Into: &db.advance, On: c.Write, Text: advanceSQL},
		sqlitefile.Statement{Into: &db.addTool, On: c.Write, Text: addToolSQL},
		sqlitefile.Statement{Into: &db.setMark, On: c.Write, Text: setMarkSQL},
		sqlitefile.Statement{Into: &db.cover, On: c.Write, Text: coverSQL},
		sqlitefile.Statement{Into: &db.lease, On: c.Write, Text: leaseSQL},
		sqlitefile.Statement{Into: &db.ping, On: c.Read, Text: pingSQL},
		sqlitefile.Statement{Into: &db.load, On: c.Read, Text: loadSQL},
		sqlitefile.Statement{Into: &db.head, On: c.Read, Text: headSQL},
		sqlitefile.Statement{Into: &db.list, On: c.Read, Text: listSQL},
		sqlitefile.Statement{Into: &db.listAgent, On: c.Read, Text: listAgentSQL},
		sqlitefile.Statement{Into: &db.tools, On: c.Read, Text: toolsSQL},
		sqlitefile.Statement{Into: &db.mark, On: c.Read, Text: markSQL},
		sqlitefile.Statement{Into: &db.coverage, On: c.Read, Text: coverageSQL},
	)
}
