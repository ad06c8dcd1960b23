package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"skandha.dev/services/internal/store"
)

// SaveSnapshot implements store.Store.
func (s *Store) SaveSnapshot(ctx context.Context, key store.Key, snap store.Snapshot) error {
	if err := errors.Join(key.Validate(), snap.Validate()); err != nil {
		return err
	}
	updated := store.Micros(snap.Updated)
	keys := []string{s.keys.session(key.Agent, key.Session), s.keys.sessions(key.Agent)}
	return s.do(ctx, "save snapshot", func() error {
		return s.runFor(ctx, key.Agent, saveScript, keys,
			key.Session, -updated, snap.Rev, snap.FoldVersion,
			"digest", snap.Digest, "updated", updated, "phase", snap.Phase,
			"title", snap.Title, "turns", snap.Turns, "data", snap.Data)
	})
}

// LoadSnapshot implements store.Store.
func (s *Store) LoadSnapshot(ctx context.Context, key store.Key) (snap store.Snapshot, err error) {
	if err := key.Validate(); err != nil {
		return snap, err
	}
	err = s.do(ctx, "load snapshot", func() error {
		v, err := s.client.HMGet(ctx, s.keys.session(key.Agent, key.Session), "rev", "fold", "digest",
			"updated", "phase", "title", "turns", "data").Result()
		if err != nil {
			return err
		}
		if v[0] == nil {
			return store.ErrNotFound
		}
		f := fields{values: v}
		snap = store.Snapshot{
			Rev: uint64(f.number()), FoldVersion: int(f.number()), Digest: f.text(),
			Updated: store.FromMicros(f.number()), Phase: f.text(), Title: f.text(),
			Turns: int(f.number()), Data: []byte(f.text()),
		}
		return f.err
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
	return s.do(ctx, "delete session", func() error {
		_, err := s.client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			tx.Unlink(ctx, s.keys.session(key.Agent, key.Session))
			tx.ZRem(ctx, s.keys.sessions(key.Agent), key.Session)
			return nil
		})
		return err
	})
}

// fields reads the values of a hash one after the other and keeps the first
// error.
type fields struct {
	values []any
	err    error
}

func (f *fields) text() string {
	v, ok := f.values[0].(string)
	f.values = f.values[1:]
	if !ok && f.err == nil {
		f.err = errors.New("a snapshot lacks fields")
	}
	return v
}

func (f *fields) number() int64 {
	v := f.text()
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil && f.err == nil {
		f.err = fmt.Errorf("a snapshot's number is %.40q", v)
	}
	return n
}
