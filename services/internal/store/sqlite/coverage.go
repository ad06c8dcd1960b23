package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"skandha.dev/services/internal/store"
)

const (
	coverSQL = `
		INSERT INTO coverage (one, what) VALUES (1, ?)
		ON CONFLICT (one) DO UPDATE SET what = excluded.what`
	coverageSQL = `SELECT what FROM coverage`

	// A lease can be acquired if it has expired or belongs to the same holder.
	leaseSQL = `
		INSERT INTO lease (one, holder, note, until) VALUES (1, ?1, ?2, ?3 + ?4)
		ON CONFLICT (one) DO UPDATE SET
			holder = iif(holder = ?1 OR until <= ?3, ?1, holder),
			note   = iif(holder = ?1 OR until <= ?3, ?2, note),
			until  = iif(holder = ?1 OR until <= ?3, ?3 + ?4, until)
		RETURNING holder, note, until > ?3`
)

// SetCoverage implements store.Store.
func (s *Store) SetCoverage(ctx context.Context, what string) error {
	return s.file.Do(ctx, "set coverage", func(db *database) error {
		_, err := db.cover.ExecContext(ctx, what)
		return err
	})
}

// Coverage implements store.Store. It is lost together with the file.
func (s *Store) Coverage(ctx context.Context) (what string, err error) {
	err = s.file.Do(ctx, "coverage", func(db *database) error {
		what = ""
		err := db.coverage.QueryRowContext(ctx).Scan(&what)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return what, err
}

// Lease implements store.Store.
func (s *Store) Lease(ctx context.Context, want store.Lease, ttl time.Duration) (now store.Lease, err error) {
	if err := want.Validate(); err != nil {
		return now, err
	}
	err = s.file.Do(ctx, "lease", func(db *database) error {
		var held bool
		if err := db.lease.QueryRowContext(ctx, want.Holder, want.Note, store.Micros(time.Now()), ttl.Microseconds()).
			Scan(&now.Holder, &now.Note, &held); err != nil {
			return err
		}
		if !held {
			now = store.Lease{}
		}
		return nil
	})
	return now, err
}
