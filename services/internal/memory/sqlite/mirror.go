package sqlite

import (
	"context"
	"database/sql"
	"sync"

	"skandha.dev/pkg/subject"
	index "skandha.dev/services/internal/memory"
)

// Of the agents that it has searched last, a process keeps the memories of those with few:
// comparing them here takes a fraction of the time that SQLite does.
const (
	maxMirrors = 32      // agents
	maxItems   = 4096    // memories of one
	maxBytes   = 8 << 20 // of their vectors and texts
	maxOthers  = 256     // memories without a vector; more are ranked by SQLite
)

// mirror is what a process keeps of an agent's memories.
type mirror struct {
	mu    sync.Mutex
	epoch int64
	at    int64 // number of the last change that it has; -1: it was never read
	large bool  // in this epoch, the agent had more than is kept
	items index.Items
}

// look returns the agent's memories as they are now, newest first; false if they are too many.
func (db *database) look(ctx context.Context, agent subject.Agent) (items []*index.Item, kept bool, err error) {
	m, found := db.mirrors.Get(agent)
	if !found {
		m = &mirror{at: -1}
		if other, was, _ := db.mirrors.PeekOrAdd(agent, m); was {
			m = other
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := db.follow(ctx, agent, m); err != nil || m.large {
		return nil, false, err
	}
	return m.items.Newest(), true, nil
}

// follow reads into a mirror what has changed.
func (db *database) follow(ctx context.Context, agent subject.Agent, m *mirror) error {
	var epoch, last int64
	if err := db.changes.QueryRowContext(ctx).Scan(&epoch, &last); err != nil {
		return err
	}
	if m.at < 0 || m.epoch != epoch {
		var memories, size int64
		if err := db.size.QueryRowContext(ctx, agent, maxItems+1).Scan(&memories, &size); err != nil {
			return err
		}
		m.items, m.epoch, m.at, m.large = index.Items{Whole: true}, epoch, -1, memories > maxItems || size > maxBytes
	}
	if m.large {
		m.at = last
	}
	if m.at == last {
		return nil
	}
	ids, entries, at, err := changed(db.changed.QueryContext(ctx, agent, m.at))
	if err != nil {
		return err
	}
	m.at = max(at, last)
	if len(ids) == 0 {
		return nil
	}
	m.items.Change(ids, entries)
	if m.large = m.items.Bytes() > maxBytes || len(m.items.Newest()) > maxItems; m.large {
		m.items = index.Items{}
	}
	return nil
}

// changed returns the memories that have changed, the entries of those that there are, and the
// number of the last change among them.
func changed(rows *sql.Rows, err error) (ids []string, entries []index.Entry, at int64, _ error) {
	if err != nil {
		return nil, nil, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		id, e, change, err := changedRow(rows)
		if err != nil {
			return nil, nil, 0, err
		}
		ids, at = append(ids, id), max(at, change)
		if e != nil {
			entries = append(entries, *e)
		}
	}
	return ids, entries, at, rows.Err()
}

// changedRow returns one of them; no entry if the memory was removed.
func changedRow(rows *sql.Rows) (id string, _ *index.Entry, change int64, err error) {
	var e index.Entry
	var data string
	var removed bool
	var dimension int
	var vector sql.RawBytes
	err = rows.Scan(&id, &removed, &data, &e.Revision, &e.Model, &dimension, &vector, &change)
	if err != nil || removed {
		return id, nil, change, err
	}
	if vector != nil {
		e.Vector, err = vectorOf(vector, dimension)
	}
	if err == nil {
		e.Memory, err = decode(data)
	}
	return id, &e, change, err
}
