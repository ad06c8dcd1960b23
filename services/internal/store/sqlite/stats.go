package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"skandha.dev/services/internal/store"
)

const (
	countedSQL = `SELECT rev FROM recorded WHERE agent = ? AND session = ?`
	advanceSQL = `
		INSERT INTO recorded (agent, session, rev, total) VALUES (?, ?, ?, ?)
		ON CONFLICT (agent, session) DO UPDATE SET rev = excluded.rev, total = total + excluded.total`
	addToolSQL = `
		INSERT INTO tool (tool, used, succeeded, unknown, latency_ms, last_used) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (tool) DO UPDATE SET
			used = used + excluded.used, succeeded = succeeded + excluded.succeeded,
			unknown = unknown + excluded.unknown, latency_ms = latency_ms + excluded.latency_ms,
			last_used = max(last_used, excluded.last_used)`
	toolsSQL = `SELECT tool, used, succeeded, unknown, latency_ms, last_used FROM tool ORDER BY tool`

	setMarkSQL = `
		INSERT INTO mark (name, value) VALUES (?, ?)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE excluded.value > value`
	markSQL = `SELECT value FROM mark WHERE name = ?`

	pingSQL = `SELECT count(*) FROM sqlite_schema`
)

// wipeSQL empties every table of the schema.
var wipeSQL = []string{
	"DELETE FROM session", "DELETE FROM recorded", "DELETE FROM tool", "DELETE FROM mark",
	"DELETE FROM coverage", "DELETE FROM lease",
}

// resetToolsSQL removes the statistics, so that every commit counts again.
var resetToolsSQL = []string{"DELETE FROM recorded", "DELETE FROM tool", "DELETE FROM coverage"}

// verifyToolsSQL compares the sums with those of the sessions.
const verifyToolsSQL = `SELECT
	(SELECT coalesce(sum(used + succeeded + unknown + latency_ms), 0) FROM tool) =
	(SELECT coalesce(sum(total), 0) FROM recorded)`

// RecordTools implements store.Store, in one transaction.
func (s *Store) RecordTools(ctx context.Context, records []store.ToolRecord) (gaps []store.Key, err error) {
	if err := store.ValidateTools(records); err != nil {
		return nil, err
	}
	err = s.file.Do(ctx, "record tools", func(db *database) error {
		gaps = nil
		if len(records) == 0 {
			return nil
		}
		return db.conns.Transact(ctx, func(tx *sql.Tx) error {
			for _, r := range records {
				fits, err := db.record(ctx, tx, r)
				if err != nil {
					return err
				}
				if !fits && !slices.Contains(gaps, r.Key) {
					gaps = append(gaps, r.Key)
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return gaps, nil
}

// record returns false if records before this one are missing.
func (db *database) record(ctx context.Context, tx *sql.Tx, r store.ToolRecord) (fits bool, err error) {
	var at uint64
	err = tx.StmtContext(ctx, db.counted).QueryRowContext(ctx, r.Key.Agent, r.Key.Session).Scan(&at)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return false, err
	case at >= r.Rev: // counted before
		return true, nil
	case at < r.After:
		return false, nil
	}
	if _, err := tx.StmtContext(ctx, db.advance).ExecContext(ctx, r.Key.Agent, r.Key.Session, int64(r.Rev),
		r.Sum()); err != nil {
		return false, err
	}
	add := tx.StmtContext(ctx, db.addTool)
	for _, d := range r.Deltas {
		if _, err := add.ExecContext(ctx, d.Tool, d.Used, d.Succeeded, d.Unknown, d.LatencyMS,
			store.Micros(d.At)); err != nil {
			return false, err
		}
	}
	return true, nil
}

// VerifyTools implements store.Store.
func (s *Store) VerifyTools(ctx context.Context) (sound bool, err error) {
	err = s.file.Do(ctx, "verify tool statistics", func(db *database) error {
		return db.conns.Transact(ctx, func(tx *sql.Tx) error {
			if err := tx.QueryRowContext(ctx, verifyToolsSQL).Scan(&sound); err != nil || sound {
				return err
			}
			s.file.Logger().ErrorContext(ctx, "store: the tool statistics do not match those of the sessions; "+
				"removed, they are counted again from the log",
				"path", s.file.Path())
			return each(ctx, tx, resetToolsSQL)
		})
	})
	return sound && err == nil, err
}

// ResetTools implements store.Store.
func (s *Store) ResetTools(ctx context.Context) error {
	return s.file.Do(ctx, "reset tool statistics", func(db *database) error {
		return db.conns.Transact(ctx, func(tx *sql.Tx) error { return each(ctx, tx, resetToolsSQL) })
	})
}

// ToolStats implements store.Store.
func (s *Store) ToolStats(ctx context.Context) (stats []store.ToolStat, err error) {
	err = s.file.Do(ctx, "tool statistics", func(db *database) error {
		stats, err = db.toolStats(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return stats, nil
}

func (db *database) toolStats(ctx context.Context) ([]store.ToolStat, error) {
	rows, err := db.tools.QueryContext(ctx)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var stats []store.ToolStat
	for rows.Next() {
		var t store.ToolStat
		var last int64
		if err := rows.Scan(&t.Tool, &t.Used, &t.Succeeded, &t.Unknown, &t.TotalLatencyMS, &last); err != nil {
			return nil, err
		}
		t.LastUsed = store.FromMicros(last)
		stats = append(stats, t)
	}
	return stats, rows.Err()
}

// SetMark implements store.Store.
func (s *Store) SetMark(ctx context.Context, name string, value uint64) error {
	if err := store.ValidateMark(name, value); err != nil {
		return err
	}
	return s.file.Do(ctx, "set mark", func(db *database) error {
		_, err := db.setMark.ExecContext(ctx, name, int64(value))
		return err
	})
}

// Mark implements store.Store.
func (s *Store) Mark(ctx context.Context, name string) (value uint64, err error) {
	if err := store.ValidateMark(name, 0); err != nil {
		return 0, err
	}
	err = s.file.Do(ctx, "mark", func(db *database) error {
		err := db.mark.QueryRowContext(ctx, name).Scan(&value)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return value, err
}

// Wipe implements store.Store.
func (s *Store) Wipe(ctx context.Context) error {
	return s.file.Do(ctx, "wipe", func(db *database) error {
		return db.conns.Transact(ctx, func(tx *sql.Tx) error { return each(ctx, tx, wipeSQL) })
	})
}

func each(ctx context.Context, tx *sql.Tx, statements []string) error {
	for _, text := range statements {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}
