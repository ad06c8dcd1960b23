package redis

import (
	"context"
	"strconv"
	"time"

	"skandha.dev/services/internal/store"
)

// SetMark implements store.Store.
func (s *Store) SetMark(ctx context.Context, name string, value uint64) error {
	if err := store.ValidateMark(name, value); err != nil {
		return err
	}
	return s.do(ctx, "set mark", func() error {
		return damage(markScript.Run(ctx, s.conn.Client, []string{s.keys.marks()}, name, value).Err(), s.keys.marks())
	})
}

// Mark implements store.Store.
func (s *Store) Mark(ctx context.Context, name string) (value uint64, err error) {
	if err := store.ValidateMark(name, 0); err != nil {
		return 0, err
	}
	err = s.do(ctx, "mark", func() error {
		text, err := s.conn.Client.HGet(ctx, s.keys.marks(), name).Result()
		if value = 0; err != nil {
			return damage(none(err), s.keys.marks())
		}
		if value, err = strconv.ParseUint(text, 10, 64); err != nil {
			return &damageError{[]string{s.keys.marks()}, err}
		}
		return nil
	})
	return value, err
}

// SetCoverage implements store.Store.
func (s *Store) SetCoverage(ctx context.Context, what string) error {
	return s.do(ctx, "set coverage", func() error { return s.conn.Client.Set(ctx, s.keys.coverage(), what, 0).Err() })
}

// Coverage implements store.Store.
func (s *Store) Coverage(ctx context.Context) (what string, err error) {
	err = s.do(ctx, "coverage", func() error {
		what, err = s.conn.Client.Get(ctx, s.keys.coverage()).Result()
		return damage(none(err), s.keys.coverage())
	})
	return what, err
}

// Lease implements store.Store.
func (s *Store) Lease(ctx context.Context, want store.Lease, ttl time.Duration) (now store.Lease, err error) {
	if err := want.Validate(); err != nil {
		return now, err
	}
	err = s.do(ctx, "lease", func() error {
		v, err := leaseScript.Run(ctx, s.conn.Client, []string{s.keys.lease()}, want.Holder, want.Note,
			ttl.Milliseconds()).StringSlice()
		if err != nil {
			return damage(err, s.keys.lease())
		}
		now = store.Lease{Holder: v[0], Note: v[1]}
		return nil
	})
	return now, err
}
