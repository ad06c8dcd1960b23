package sqlitefile

import (
	"context"
	"fmt"
)

// migrate migrates the file to the newest version in one transaction. It uses a separate
// connection, which leaves a new file in rollback mode, so that the first commit writes
// the application id into the file and not into a write-ahead log.
func (f *File[D]) migrate(ctx context.Context) (err error) {
	var settings []string
	if f.cfg.PageSize > 0 {
		settings = append(settings, fmt.Sprintf("_pragma=page_size(%d)", f.cfg.PageSize))
	}
	pool, err := connect(f.path, 1, settings...)
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }() // the commit has reported any error
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback() // only the first error matters
		}
	}()
	var version int
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version > len(f.cfg.Migrations) {
		return fmt.Errorf("%w: written by a newer version (schema %d, known %d)", ErrDamaged, version, len(f.cfg.Migrations))
	}
	if version == len(f.cfg.Migrations) {
		return tx.Commit()
	}
	for _, step := range f.cfg.Migrations[version:] {
		if _, err := tx.ExecContext(ctx, step); err != nil {
			return fmt.Errorf("migrating from schema %d: %w", version, err)
		}
	}
	stamp := fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", f.cfg.Application, len(f.cfg.Migrations))
	if _, err := tx.ExecContext(ctx, stamp); err != nil {
		return fmt.Errorf("stamping schema %d: %w", len(f.cfg.Migrations), err)
	}
	return tx.Commit()
}
