package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"skandha.dev/services/internal/store"
)

const (
	saveSQL = `
		INSERT INTO session (agent, session, rev, fold, digest, updated, phase, title, turns, commits, data, above)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (agent, session) DO UPDATE SET
			rev = excluded.rev, fold = excluded.fold, digest = excluded.digest, updated = excluded.updated,
			phase = excluded.phase, title = excluded.title, turns = excluded.turns, commits = excluded.commits,
			data = excluded.data, above = excluded.above
		WHERE (excluded.rev, excluded.fold) >= (rev, fold)`
	loadSQL = `
		SELECT rev, fold, digest, updated, phase, title, turns, commits, data, above
		FROM session WHERE agent = ? AND session = ?`
	headSQL = `
		SELECT coalesce(s.rev, 0), coalesce(s.fold, 0), coalesce(s.commits, 0), coalesce(r.rev, 0)
		FROM (SELECT ?1 AS agent, ?2 AS session) AS k
		LEFT JOIN session AS s ON s.agent = k.agent AND s.session = k.session
		LEFT JOIN recorded AS r ON r.agent = k.agent AND r.session = k.session`
	removeSQL = `DELETE FROM session WHERE agent = ? AND session = ?`

	listSQL = `
		SELECT agent, session, rev, phase, title, turns, updated, above FROM session
		WHERE updated <= ?1 AND (updated < ?1 OR (agent, session) > (?2, ?3))
		ORDER BY updated DESC, agent, session LIMIT ?4`
	listAgentSQL = `
		SELECT agent, session, rev, phase, title, turns, updated, above FROM session
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
	return s.file.Do(ctx, "save snapshot", func(db *database) error {
		_, err := db.save.ExecContext(ctx, key.Agent, key.Session, int64(snap.Rev), snap.FoldVersion, snap.Digest,
			store.Micros(snap.Updated), snap.Phase, snap.Title, snap.Turns, int64(snap.Commits), data, snap.Above)
		return err
	})
}

// LoadSnapshot implements store.Store.
func (s *Store) LoadSnapshot(ctx context.Context, key store.Key) (snap store.Snapshot, err error) {
	if err := key.Validate(); err != nil {
		return snap, err
	}
	err = s.file.Do(ctx, "load snapshot", func(db *database) error {
		var updated int64
		err := db.load.QueryRowContext(ctx, key.Agent, key.Session).Scan(&snap.Rev, &snap.FoldVersion, &snap.Digest,
			&updated, &snap.Phase, &snap.Title, &snap.Turns, &snap.Commits, &snap.Data, &snap.Above)
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

// Heads implements store.Store.
func (s *Store) Heads(ctx context.Context, keys []store.Key) (heads []store.Head, err error) {
	if err := store.ValidateKeys(keys); err != nil {
		return nil, err
	}
	err = s.file.Do(ctx, "heads", func(db *database) error {
		heads = make([]store.Head, len(keys))
		for i, k := range keys {
			h := &heads[i]
			if err := db.head.QueryRowContext(ctx, k.Agent, k.Session).Scan(&h.Rev, &h.FoldVersion, &h.Commits,
				&h.Counted); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return heads, nil
}

// DeleteSession implements store.Store.
func (s *Store) DeleteSession(ctx context.Context, key store.Key) error {
	if err := key.Validate(); err != nil {
		return err
	}
	return s.file.Do(ctx, "delete session", func(db *database) error {
		_, err := db.remove.ExecContext(ctx, key.Agent, key.Session)
		return err
	})
}

// ListSessions implements store.Store.
func (s *Store) ListSessions(
	ctx context.Context, agent string, limit int, after string,
) (page []store.SessionInfo, next string, err error) {
	cursor, err := store.ParseCursor(after)
	if err != nil {
		return nil, "", err
	}
	limit = store.PageSize(limit)
	err = s.file.Do(ctx, "list sessions", func(db *database) error {
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

func (db *database) page(
	ctx context.Context, agent string, limit int, after store.Cursor,
) ([]store.SessionInfo, error) {
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
		if err := rows.Scan(&i.Agent, &i.Session, &i.Rev, &i.Phase, &i.Title, &i.Turns, &updated, &i.Above); err != nil {
			return nil, err
		}
		i.Updated = store.FromMicros(updated)
		page = append(page, i)
	}
	return page, rows.Err()
}
