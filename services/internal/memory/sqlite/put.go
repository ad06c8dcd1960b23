package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"skandha.dev/pkg/memory"
	"skandha.dev/services/internal/lexical"
	index "skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/sqlitefile"
)

// Put implements memory.Store, in one transaction.
func (s *Store) Put(ctx context.Context, entries []index.Entry) error {
	entries, err := index.Prepare(entries)
	if err != nil {
		return err
	}
	return s.file.Do(ctx, "put", func(db *database) error {
		if len(entries) == 0 {
			return nil
		}
		return db.conns.Transact(ctx, func(tx *sql.Tx) error {
			for _, e := range entries {
				if err := (change{ctx, db, tx}).put(e); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// Remove implements memory.Store.
func (s *Store) Remove(ctx context.Context, key index.Key, revision uint64) error {
	if err := index.CheckRemoval(key, revision); err != nil {
		return err
	}
	return s.file.Do(ctx, "remove", func(db *database) error {
		return db.conns.Transact(ctx, func(tx *sql.Tx) error {
			c := change{ctx, db, tx}
			old, err := c.known(key)
			if err != nil || old.revision > revision {
				return err
			}
			if err := errors.Join(c.clear(old), c.do(db.change)); err != nil {
				return err
			}
			return c.do(db.remove, key.Agent, key.ID, int64(revision))
		})
	})
}

// change is a transaction that changes entries.
type change struct {
	ctx context.Context //nolint:containedctx // it lives for one call
	db  *database
	tx  *sql.Tx
}

// row is what is known of a memory; the zero row if it is new.
type row struct {
	no, model int64
	revision  uint64
	removed   bool
	data      string
	name      string // of the model
	vector    []byte
}

func (c change) do(stmt *sql.Stmt, args ...any) error {
	_, err := c.tx.StmtContext(c.ctx, stmt).ExecContext(c.ctx, args...)
	return err
}

func (c change) known(key index.Key) (r row, err error) {
	err = c.tx.StmtContext(c.ctx, c.db.known).QueryRowContext(c.ctx, key.Agent, key.ID).
		Scan(&r.no, &r.revision, &r.removed, &r.model, &r.data, &r.name, &r.vector)
	if errors.Is(err, sql.ErrNoRows) {
		return row{}, nil
	}
	return r, err
}

func (c change) put(e index.Entry) error {
	old, err := c.known(e.Key())
	switch {
	case err != nil:
		return err
	case old.revision > e.Revision, old.revision == e.Revision && (old.removed || e.Vector == nil):
		return nil
	}
	data, err := json.Marshal(e.Memory)
	if err != nil {
		return err
	}
	if e.Vector == nil {
		if e.Model, e.Vector, err = old.vectorOf(e.Text); err != nil {
			return err
		}
	}
	if err := errors.Join(c.clear(old), c.do(c.db.change)); err != nil {
		return err
	}
	return c.add(e, string(data))
}

// vectorOf returns the known vector if it is that of the text.
func (r row) vectorOf(text string) (model string, v []float32, err error) {
	if r.model == 0 {
		return "", nil, nil
	}
	was, err := decode(r.data)
	if err != nil || was.Text != text {
		return "", nil, err
	}
	v, err = decodeVector(r.vector)
	return r.name, v, err
}

// clear removes the words and the vector of what is known.
func (c change) clear(old row) error {
	if old.no == 0 || old.removed {
		return nil
	}
	if err := c.do(c.db.unword, old.no); err != nil || old.model == 0 {
		return err
	}
	_, err := c.tx.ExecContext(c.ctx, fmt.Sprintf(dropVectorSQL, old.model), old.no)
	return err
}

func (c change) add(e index.Entry, data string) error {
	var model, no int64
	var vector []byte
	if e.Vector != nil {
		var err error
		if model, err = c.model(e.Model, len(e.Vector)); err != nil {
			return err
		}
		vector = index.EncodeVector(e.Vector)
	}
	if err := c.tx.StmtContext(c.ctx, c.db.save).QueryRowContext(c.ctx, e.Agent, e.ID, int64(e.Revision), e.Kind,
		store.Micros(e.Created), model, data, vector).Scan(&no); err != nil {
		return err
	}
	if err := c.do(c.db.word, no, strings.Join(lexical.Terms(e.Text), " ")); err != nil || model == 0 {
		return err
	}
	_, err := c.tx.ExecContext(c.ctx, fmt.Sprintf(addVectorSQL, model), no, e.Agent, e.Kind, quantise(e.Vector))
	return err
}

// model returns the number of a model, whose table it creates for the first vector.
func (c change) model(name string, dimension int) (no int64, err error) {
	var want int
	err = c.tx.StmtContext(c.ctx, c.db.model).QueryRowContext(c.ctx, name).Scan(&no, &want)
	switch {
	case err == nil && want != dimension:
		return 0, index.WrongDimension(name, dimension, want)
	case err == nil || !errors.Is(err, sql.ErrNoRows):
		return no, err
	}
	if err := c.tx.StmtContext(c.ctx, c.db.addModel).QueryRowContext(c.ctx, name, dimension).Scan(&no); err != nil {
		return 0, err
	}
	_, err = c.tx.ExecContext(c.ctx, fmt.Sprintf(addVectorsSQL, no, dimension))
	return no, err
}

// deviations is how many standard deviations of the numbers of a random vector of length 1
// are within the range of a byte.
const deviations = 8

// quantise returns the numbers of a vector of length 1 as signed bytes, all vectors in the
// same scale.
func quantise(v []float32) []byte {
	scale := math.MaxInt8 * math.Sqrt(float64(len(v))) / deviations
	b := make([]byte, len(v))
	for i, x := range v {
		b[i] = byte(int8(math.Round(max(-math.MaxInt8, min(math.MaxInt8, float64(x)*scale)))))
	}
	return b
}

func decode(data string) (m memory.Memory, err error) {
	if err := json.Unmarshal([]byte(data), &m); err != nil {
		return m, fmt.Errorf("%w: a memory is not JSON: %w", sqlitefile.ErrDamaged, err)
	}
	return m, nil
}
