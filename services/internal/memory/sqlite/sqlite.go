package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	lru "github.com/hashicorp/golang-lru/v2"

	"skandha.dev/pkg/subject"
	index "skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/store/sqlitefile"
)

// Config configures the index.
type Config struct {
	Path   string       // the file; missing directories are created, readable only by this user
	Logger *slog.Logger // default: slog.Default()
}

// Store is a memory.Store in a SQLite file.
type Store struct {
	file *sqlitefile.File[*database]
}

var _ index.Store = (*Store)(nil)

// Open opens the file, or creates it.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	file, err := sqlitefile.Open(ctx, sqlitefile.Config[*database]{
		Path: cfg.Path, Logger: cfg.Logger, Application: applicationID, Migrations: migrations, PageSize: pageSize,
		Source: "the bucket of memories", Prepare: prepare,
	})
	if err != nil {
		return nil, err
	}
	return &Store{file}, nil
}

// database is every statement prepared.
type database struct {
	conns   *sqlitefile.Conns
	mirrors *lru.Cache[subject.Agent, *mirror]

	known, save, remove, change, unword, word, model, addModel, setPosition     *sql.Stmt // write
	ping, get, list, unembedded, exact, lacks, shared, found, modelOf, position *sql.Stmt // read
	changes, size, changed                                                      *sql.Stmt // read, for mirrors
}

func prepare(ctx context.Context, c *sqlitefile.Conns) (*database, error) {
	mirrors, err := lru.New[subject.Agent, *mirror](maxMirrors)
	if err != nil {
		return nil, err
	}
	db := &database{conns: c, mirrors: mirrors}
	return db, c.Prepare(ctx,
		sqlitefile.Statement{Into: &db.known, On: c.Write, Text: knownSQL},
		sqlitefile.Statement{Into: &db.save, On: c.Write, Text: saveSQL},
		sqlitefile.Statement{Into: &db.remove, On: c.Write, Text: removeSQL},
		sqlitefile.Statement{Into: &db.change, On: c.Write, Text: changeSQL},
		sqlitefile.Statement{Into: &db.unword, On: c.Write, Text: unwordSQL},
		sqlitefile.Statement{Into: &db.word, On: c.Write, Text: wordSQL},
		sqlitefile.Statement{Into: &db.model, On: c.Write, Text: modelSQL},
		sqlitefile.Statement{Into: &db.addModel, On: c.Write, Text: addModelSQL},
		sqlitefile.Statement{Into: &db.setPosition, On: c.Write, Text: setPositionSQL},
		sqlitefile.Statement{Into: &db.ping, On: c.Read, Text: pingSQL},
		sqlitefile.Statement{Into: &db.get, On: c.Read, Text: getSQL},
		sqlitefile.Statement{Into: &db.list, On: c.Read, Text: listSQL},
		sqlitefile.Statement{Into: &db.unembedded, On: c.Read, Text: unembeddedSQL},
		sqlitefile.Statement{Into: &db.exact, On: c.Read, Text: exactSQL},
		sqlitefile.Statement{Into: &db.lacks, On: c.Read, Text: lacksSQL},
		sqlitefile.Statement{Into: &db.shared, On: c.Read, Text: sharedSQL},
		sqlitefile.Statement{Into: &db.found, On: c.Read, Text: foundSQL},
		sqlitefile.Statement{Into: &db.modelOf, On: c.Read, Text: modelSQL},
		sqlitefile.Statement{Into: &db.position, On: c.Read, Text: positionSQL},
		sqlitefile.Statement{Into: &db.changes, On: c.Read, Text: changesSQL},
		sqlitefile.Statement{Into: &db.size, On: c.Read, Text: sizeSQL},
		sqlitefile.Statement{Into: &db.changed, On: c.Read, Text: changedSQL},
	)
}

// Ping implements memory.Store.
func (s *Store) Ping(ctx context.Context) error {
	return s.file.Do(ctx, "ping", func(db *database) error {
		var tables int
		return db.ping.QueryRowContext(ctx).Scan(&tables)
	})
}

// Close implements memory.Store.
func (s *Store) Close() error { return s.file.Close() }

// SetPosition implements memory.Store.
func (s *Store) SetPosition(ctx context.Context, revision uint64) error {
	if err := index.CheckPosition(revision); err != nil {
		return err
	}
	return s.file.Do(ctx, "set position", func(db *database) error {
		_, err := db.setPosition.ExecContext(ctx, int64(revision))
		return err
	})
}

// Position implements memory.Store. It is lost together with the file.
func (s *Store) Position(ctx context.Context) (revision uint64, err error) {
	err = s.file.Do(ctx, "position", func(db *database) error {
		revision = 0
		err := db.position.QueryRowContext(ctx).Scan(&revision)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return revision, err
}

// Wipe implements memory.Store.
func (s *Store) Wipe(ctx context.Context) error {
	return s.file.Do(ctx, "wipe", func(db *database) error {
		return db.conns.Transact(ctx, func(tx *sql.Tx) error {
			models, err := numbers(tx.QueryContext(ctx, modelsSQL))
			if err != nil {
				return err
			}
			for _, no := range models {
				if _, err := tx.ExecContext(ctx, fmt.Sprintf(dropVectorsSQL, no)); err != nil {
					return err
				}
			}
			for _, text := range wipeSQL {
				if _, err := tx.ExecContext(ctx, text); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// numbers reads a column of integers.
func numbers(rows *sql.Rows, err error) (out []int64, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, rows.Err()
}
