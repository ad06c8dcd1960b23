package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"skandha.dev/services/internal/store"
)

const (
	advanceSQL = `
		INSERT INTO recorded (agent, session, rev) VALUES (?, ?, ?)
		ON CONFLICT (agent, session) DO UPDATE SET rev = excluded.rev WHERE excluded.rev > rev`
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
var wipeSQL = []string{"DELETE FROM session", "DELETE FROM recorded", "DELETE FROM tool", "DELETE FROM mark"}

// RecordTools implements store.Store.
func (s *Store) RecordTools(ctx context.Context, key store.Key, rev uint64, deltas []store.ToolDelta) error {
	return s.RecordAll(ctx, []store.ToolRecord{{Key: key, Rev: rev, Deltas: deltas}})
}

// RecordAll implements store.Store, in one transaction.
func (s *Store) RecordAll(ctx context.Context, records []store.ToolRecord) error {
	some := false
	for _, r := range records {
		if err := store.ValidateTools(r.Key, r.Rev, r.Deltas); err != nil {
			return err
		}
		some = some || len(r.Deltas) > 0
	}
	if !some {
		return nil
	}
	return s.do(ctx, "record tools", func(db *database) error {
		return db.transact(ctx, func(tx *sql.Tx) error {
			for _, r := range records {
				if err := db.record(ctx, tx, r); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func (db *database) record(ctx context.Context, tx *sql.Tx, r store.ToolRecord) error {
	if len(r.Deltas) == 0 {
		return nil
	}
	res, err := tx.StmtContext(ctx, db.advance).ExecContext(ctx, r.Key.Agent, r.Key.Session, int64(r.Rev))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return err // recorded before
	}
	add := tx.StmtContext(ctx, db.addTool)
	for _, d := range r.Deltas {
		if _, err := add.ExecContext(ctx, d.Tool, d.Used, d.Succeeded, d.Unknown, d.LatencyMS, store.Micros(d.At)); err != nil {
			return err
		}
	}
	return nil
}

// ToolStats implements store.Store.
func (s *Store) ToolStats(ctx context.Context) (stats []store.ToolStat, err error) {
	err = s.do(ctx, "tool statistics", func(db *database) error {
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
	return s.do(ctx, "set mark", func(db *database) error {
		_, err := db.setMark.ExecContext(ctx, name, int64(value))
		return err
	})
}

// Mark implements store.Store.
func (s *Store) Mark(ctx context.Context, name string) (value uint64, err error) {
	if err := store.ValidateMark(name, 0); err != nil {
		return 0, err
	}
	err = s.do(ctx, "mark", func(db *database) error {
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
	return s.do(ctx, "wipe", func(db *database) error {
		return db.transact(ctx, func(tx *sql.Tx) error {
			for _, text := range wipeSQL {
				if _, err := tx.ExecContext(ctx, text); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// transact runs body in a write transaction: whole or not at all.
func (db *database) transact(ctx context.Context, body func(*sql.Tx) error) error {
	tx, err := db.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := body(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
