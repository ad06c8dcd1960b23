package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"skandha.dev/services/internal/store"
)

const (
	saveSQL = `
		INSERT INTO session (agent, session, rev, fold, digest, updated, phase, title, turns, data)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (agent, session) DO UPDATE SET
			rev = excluded.rev, fold = excluded.fold, digest = excluded.digest, updated = excluded.updated,
			phase = excluded.phase, title = excluded.title, turns = excluded.turns, data = excluded.data
		WHERE (excluded.rev, excluded.fold) > (rev, fold)`
	loadSQL = `
		SELECT rev, fold, digest, updated, phase, title, turns, data
		FROM session WHERE agent = ? AND session = ?`
	removeSQL = `DELETE FROM session WHERE agent = ? AND session = ?`

	listSQL = `
		SELECT agent, session, rev, phase, title, turns, updated FROM session
		WHERE updated <= ?1 AND (updated < ?1 OR (agent, session) > (?2, ?3))
		ORDER BY updated DESC, agent, session LIMIT ?4`
	listAgentSQL = `
		SELECT agent, session, rev, phase, title, turns, updated FROM session
		WHERE agent = ?5 AND updated <= ?1 AND (updated < ?1 OR (agent, session) > (?2, ?3))
		ORDER BY updated DESC, session LIMIT ?4`
)

// SaveSnapshot implements store.Store.
func (s *Store) SaveSnapshot(ctx context.Context, key store.Key, snap store.Snapshot) error {
	if err := errors.Join(key.Validate(), snap.Validate()); err != nil {
		return err
	}
	data := snap.Data
	if data == nil {
		data = []byte{} // NULL otherwise
	}
	return s.do(ctx, "save snapshot", func(db *database) error {
		_, err := db.save.ExecContext(ctx, key.Agent, key.Session, int64(snap.Rev), snap.FoldVersion, snap.Digest,
			store.Micros(snap.Updated), snap.Phase, snap.Title, snap.Turns, data)
		return err
	})
}

// LoadSnapshot implements store.Store.
func (s *Store) LoadSnapshot(ctx context.Context, key store.Key) (snap store.Snapshot, err error) {
	if err := key.Validate(); err != nil {
		return snap, err
	}
	err = s.do(ctx, "load snapshot", func(db *database) error {
		var updated int64
		err := db.load.QueryRowContext(ctx, key.Agent, key.Session).Scan(&snap.Rev, &snap.FoldVersion, &snap.Digest,
			&updated, &snap.Phase, &snap.Title, &snap.Turns, &snap.Data)
		if errors.Is(err, sql.ErrNoRows) {
			return store.ErrNotFound
		}
		snap.Updated = store.FromMicros(updated)
		return err
	})
	if err != nil {
		return store.Snapshot{}, err
	}
	return snap, nil
}

// DeleteSession implements store.Store.
func (s *Store) DeleteSession(ctx context.Context, key store.Key) error {
	if err := key.Validate(); err != nil {
		return err
	}
	return s.do(ctx, "delete session", func(db *database) error {
		_, err := db.remove.ExecContext(ctx, key.Agent, key.Session)
		return err
	})
}

// ListSessions implements store.Store.
func (s *Store) ListSessions(ctx context.Context, agent string, limit int, after string) (page []store.SessionInfo, next string, err error) {
	cursor, err := store.ParseCursor(after)
	if err != nil {
		return nil, "", err
	}
	limit = store.PageSize(limit)
	err = s.do(ctx, "list sessions", func(db *database) error {
		page, err = db.page(ctx, agent, limit+1, cursor)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if len(page) > limit {
		page = page[:limit]
		next = store.CursorOf(page[limit-1]).String()
	}
	return page, next, nil
}

func (db *database) page(ctx context.Context, agent string, limit int, after store.Cursor) ([]store.SessionInfo, error) {
	stmt, args := db.list, []any{after.Micros, after.Agent, after.Session, limit}
	if agent != "" {
		stmt, args = db.listAgent, append(args, agent)
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var page []store.SessionInfo
	for rows.Next() {
		var i store.SessionInfo
		var updated int64
		if err := rows.Scan(&i.Agent, &i.Session, &i.Rev, &i.Phase, &i.Title, &i.Turns, &updated); err != nil {
			return nil, err
		}
		i.Updated = store.FromMicros(updated)
		page = append(page, i)
	}
	return page, rows.Err()
}
