package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	index "skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/sqlitefile"
)

// Get implements memory.Store.
func (s *Store) Get(ctx context.Context, key index.Key) (e index.Entry, err error) {
	if err := key.Check(); err != nil {
		return e, err
	}
	err = s.file.Do(ctx, "get", func(db *database) error {
		var data string
		var vector []byte
		e = index.Entry{}
		err := db.get.QueryRowContext(ctx, key.Agent, key.ID).Scan(&data, &e.Revision, &e.Model, &vector)
		if errors.Is(err, sql.ErrNoRows) {
			return index.ErrNotFound
		}
		if err != nil {
			return err
		}
		if vector != nil {
			if e.Vector, err = decodeVector(vector); err != nil {
				return err
			}
		}
		e.Memory, err = decode(data)
		return err
	})
	if err != nil {
		return index.Entry{}, err
	}
	return e, nil
}

func decodeVector(b []byte) ([]float32, error) {
	v, err := index.DecodeVector(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", sqlitefile.ErrDamaged, err)
	}
	return v, nil
}

// List implements memory.Store.
func (s *Store) List(ctx context.Context, agent subject.Agent, kinds []memory.Kind, limit int, after string) (
	page []memory.Memory, next string, err error,
) {
	from, err := index.Page(agent, kinds, after)
	if err != nil {
		return nil, "", err
	}
	limit = index.PageSize(limit)
	err = s.file.Do(ctx, "list", func(db *database) error {
		page, err = memories(db.list.QueryContext(ctx, agent, from.Micros, from.ID, joined(kinds), limit+1))
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if len(page) > limit {
		page = page[:limit]
		next = index.CursorOf(page[limit-1]).String()
	}
	return page, next, nil
}

// joined returns the kinds as the statements look for them.
func joined(kinds []memory.Kind) string {
	var b strings.Builder
	for _, k := range kinds {
		b.WriteString("/" + string(k) + "/")
	}
	return b.String()
}

// vectorOf returns a vector that must have a dimension.
func vectorOf(b []byte, dimension int) ([]float32, error) {
	v, err := decodeVector(b)
	if err == nil && len(v) != dimension {
		err = fmt.Errorf("%w: a vector has %d dimensions, not %d", sqlitefile.ErrDamaged, len(v), dimension)
	}
	return v, err
}

func memories(rows *sql.Rows, err error) (page []memory.Memory, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var data string
		if err := rows.Scan(&data); err != nil {
			return nil, err
		}
		m, err := decode(data)
		if err != nil {
			return nil, err
		}
		page = append(page, m)
	}
	return page, rows.Err()
}

// Unembedded implements memory.Store.
func (s *Store) Unembedded(ctx context.Context, model string, after uint64, limit int) (out []index.Entry, err error) {
	if err := index.CheckModel(model); err != nil {
		return nil, err
	}
	err = s.file.Do(ctx, "unembedded", func(db *database) error {
		no, _, err := db.find(ctx, model)
		if err != nil {
			return err
		}
		if no == 0 {
			no = -1 // no entry's
		}
		out, err = unembedded(db.unembedded.QueryContext(ctx, no, int64(min(after, index.MaxRevision)),
			index.PageSize(limit)))
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func unembedded(rows *sql.Rows, err error) (out []index.Entry, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var e index.Entry
		var data string
		if err := rows.Scan(&data, &e.Revision); err != nil {
			return nil, err
		}
		if e.Memory, err = decode(data); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, rows.Err()
}

// find returns the number of a model, 0 if no vector of it was ever stored.
func (db *database) find(ctx context.Context, name string) (no int64, dimension int, err error) {
	err = db.modelOf.QueryRowContext(ctx, name).Scan(&no, &dimension)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, 0, nil
	}
	return no, dimension, err
}

// Search implements memory.Store.
func (s *Store) Search(ctx context.Context, q index.Query) (hits []memory.Hit, err error) {
	if q, err = q.Prepare(); err != nil {
		return nil, err
	}
	err = s.file.Do(ctx, "search", func(db *database) error {
		hits, err = db.search(ctx, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	return hits, nil
}

// search ranks memories by their vectors, and those that have none by words. Unless this process
// keeps the agent's memories, it ranks ids, and reads only the memories that are best.
func (db *database) search(ctx context.Context, q index.Query) (hits []memory.Hit, err error) {
	var model int64
	var near []memory.Hit
	if q.Vector != nil {
		if model, err = db.modelFor(ctx, q); err != nil {
			return nil, err
		}
	}
	if model != 0 {
		items, kept, err := db.look(ctx, q.Agent)
		if err != nil {
			return nil, err
		}
		if near, others := index.Nearest(items, q); kept && len(others) <= maxOthers {
			return index.Merge(near, index.Sharing(others, q), q.Limit), nil
		}
		if near, err = db.near(ctx, q, model); err != nil {
			return nil, err
		}
	}
	shared, err := db.sharing(ctx, q, model)
	if err != nil {
		return nil, err
	}
	return db.complete(ctx, q.Agent, index.Merge(near, shared, q.Limit))
}

// modelFor returns the number of the query's model, 0 if no vector of it was ever stored.
func (db *database) modelFor(ctx context.Context, q index.Query) (model int64, err error) {
	model, dimension, err := db.find(ctx, q.Model)
	if err == nil && model != 0 && dimension != len(q.Vector) {
		err = index.WrongDimension(q.Model, len(q.Vector), dimension)
	}
	return model, err
}

// complete reads the memories of hits that have only ids. One that was just removed is left out.
func (db *database) complete(ctx context.Context, agent subject.Agent, hits []memory.Hit) ([]memory.Hit, error) {
	if len(hits) == 0 {
		return hits, nil
	}
	ids := make([]string, len(hits))
	for i, h := range hits {
		ids[i] = h.ID
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	found, err := memories(db.found.QueryContext(ctx, agent, string(list)))
	if err != nil {
		return nil, err
	}
	of := make(map[string]memory.Memory, len(found))
	for _, m := range found {
		of[m.ID] = m
	}
	out := hits[:0]
	for _, h := range hits {
		if m, is := of[h.ID]; is {
			h.Memory = m
			out = append(out, h)
		}
	}
	return out, nil
}

// near ranks the memories that have a vector of the query's model.
func (db *database) near(ctx context.Context, q index.Query, model int64) ([]memory.Hit, error) {
	nos, err := db.candidates(ctx, q, model)
	if err != nil {
		return nil, err
	}
	return db.similar(ctx, q, model, nos)
}

// candidates returns the numbers of the entries that are nearest by the quantised vectors.
func (db *database) candidates(ctx context.Context, q index.Query, model int64) (nos []int64, err error) {
	k := 2*q.Limit + 16 // sqlite-vec takes longer for more
	query := fmt.Sprintf(nearSQL, model)
	args := []any{quantise(q.Vector), k, q.Agent}
	if len(q.Kinds) == 0 {
		return numbers(db.conns.Read.QueryContext(ctx, query, args...))
	}
	for _, kind := range q.Kinds {
		found, err := numbers(db.conns.Read.QueryContext(ctx, query+" AND kind = ?", append(args[:3:3], kind)...))
		if err != nil {
			return nil, err
		}
		nos = append(nos, found...)
	}
	return nos, nil
}

// similar ranks candidates by their exact vectors.
func (db *database) similar(ctx context.Context, q index.Query, model int64, nos []int64) ([]memory.Hit, error) {
	var hits []memory.Hit
	list, err := json.Marshal(nos)
	if err != nil {
		return nil, err
	}
	rows, err := db.exact.QueryContext(ctx, model, string(list))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		hit, err := exact(rows, q.Vector)
		if err != nil {
			return nil, err
		}
		hits = append(hits, hit)
	}
	return index.Rank(hits, q.Limit), rows.Err()
}

func exact(rows *sql.Rows, query []float32) (hit memory.Hit, err error) {
	var created int64
	var raw sql.RawBytes
	if err := rows.Scan(&hit.ID, &created, &raw); err != nil {
		return hit, err
	}
	v, err := vectorOf(raw, len(query))
	if err != nil {
		return hit, err
	}
	hit.Created, hit.Score, hit.Match = store.FromMicros(created), index.Dot(v, query), memory.Semantic
	return hit, nil
}

// sharing ranks the memories without a vector of the model (0: all) by words. Usually there
// are none, or only the newest ones.
func (db *database) sharing(ctx context.Context, q index.Query, model int64) (hits []memory.Hit, err error) {
	var first sql.NullInt64
	if model != 0 {
		err := db.lacks.QueryRowContext(ctx, q.Agent, model).Scan(&first)
		if err != nil || !first.Valid {
			return nil, err
		}
	}
	terms := index.Terms(q.Text)
	if len(terms) == 0 {
		return nil, nil
	}
	rows, err := db.shared.QueryContext(ctx, `"`+strings.Join(terms, `" OR "`)+`"`, q.Agent, model, joined(q.Kinds),
		q.Limit, first.Int64)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		hit := memory.Hit{Match: memory.Lexical}
		if err := rows.Scan(&hit.ID, &hit.Score); err != nil {
			return nil, err
		}
		hits = append(hits, hit)
	}
	return hits, rows.Err()
}
