package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
		err := s.runFor(ctx, key.Agent, saveScript, keys,
			key.Session, -updated, snap.Rev, snap.FoldVersion,
			"digest", snap.Digest, "updated", updated, "phase", snap.Phase,
			"title", snap.Title, "turns", snap.Turns, "commits", snap.Commits, "data", snap.Data, "above", snap.Above)
		return s.wrongTypes(ctx, err, map[string]string{keys[0]: "hash", keys[1]: "zset", s.keys.agents(): "set"})
	})
}

// LoadSnapshot implements store.Store.
func (s *Store) LoadSnapshot(ctx context.Context, key store.Key) (snap store.Snapshot, err error) {
	if err := key.Validate(); err != nil {
		return snap, err
	}
	name := s.keys.session(key.Agent, key.Session)
	err = s.do(ctx, "load snapshot", func() error {
		v, err := s.conn.Client.HMGet(ctx, name, "rev", "fold", "digest",
			"updated", "phase", "title", "turns", "data", "commits", "above").Result()
		if err != nil {
			return damage(err, name)
		}
		if gone(v) {
			return store.ErrNotFound
		}
		if v[8] == nil {
			v[8] = "0" // an earlier version wrote it
		}
		if v[9] == nil {
			v[9] = "" // likewise
		}
		f := fields{values: v}
		snap = store.Snapshot{
			Rev: uint64(f.number()), FoldVersion: int(f.number()), Digest: f.text(),
			Updated: store.FromMicros(f.number()), Phase: f.text(), Title: f.text(),
			Turns: int(f.number()), Data: []byte(f.text()), Commits: uint64(f.number()), Above: f.text(),
		}
		return f.damage(name)
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
		replies, err := s.conn.Client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			tx.Unlink(ctx, s.keys.session(key.Agent, key.Session))
			tx.ZRem(ctx, s.keys.sessions(key.Agent), key.Session)
			return nil
		})
		if err != nil && len(replies) == 2 {
			return damage(err, s.keys.sessions(key.Agent))
		}
		return err
	})
}

// Heads implements store.Store, in one round trip.
func (s *Store) Heads(ctx context.Context, keys []store.Key) (heads []store.Head, err error) {
	if err := store.ValidateKeys(keys); err != nil || len(keys) == 0 {
		return nil, err
	}
	err = s.do(ctx, "heads", func() error {
		heads, err = s.heads(ctx, keys)
		return err
	})
	if err != nil {
		return nil, err
	}
	return heads, nil
}

func (s *Store) heads(ctx context.Context, keys []store.Key) ([]store.Head, error) {
	type replies struct {
		snap    *redis.SliceCmd
		counted *redis.StringCmd
		listed  *redis.FloatCmd
		known   *redis.BoolCmd
	}
	pipe, all := s.conn.Client.Pipeline(), make([]replies, len(keys))
	for i, k := range keys {
		all[i] = replies{
			pipe.HMGet(ctx, s.keys.session(k.Agent, k.Session), "rev", "fold", "commits"),
			pipe.HGet(ctx, s.keys.counted(k.Agent), "rev:"+k.Session),
			pipe.ZScore(ctx, s.keys.sessions(k.Agent), k.Session),
			pipe.SIsMember(ctx, s.keys.agents(), k.Agent),
		}
	}
	// Each reply has its own error; a broken connection shows in all of them.
	if _, err := pipe.Exec(ctx); err != nil && all[0].known.Err() != nil {
		return nil, damage(err, s.keys.agents())
	}
	heads := make([]store.Head, len(keys))
	for i, r := range all {
		k := keys[i]
		name := s.keys.session(k.Agent, k.Session)
		if err := errors.Join(
			damage(r.known.Err(), s.keys.agents()),
			damage(none(r.listed.Err()), s.keys.sessions(k.Agent)),
			damage(none(r.counted.Err()), s.keys.counted(k.Agent), s.keys.tools(k.Agent)),
			damage(r.snap.Err(), name),
		); err != nil {
			return nil, err
		}
		if v := r.counted.Val(); v != "" {
			var err error
			if heads[i].Counted, err = strconv.ParseUint(v, 10, 64); err != nil {
				return nil, &damageError{[]string{s.keys.counted(k.Agent), s.keys.tools(k.Agent)}, err}
			}
		}
		v := r.snap.Val()
		if gone(v) || v[2] == nil || r.listed.Err() != nil || !r.known.Val() {
			continue
		}
		f := fields{values: v}
		heads[i].Rev, heads[i].FoldVersion, heads[i].Commits = uint64(f.number()), int(f.number()), uint64(f.number())
		if err := f.damage(name); err != nil {
			return nil, err
		}
	}
	return heads, nil
}

// none drops the error for a missing value.
func none(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// gone reports whether a hash does not exist or is empty.
func gone(values []any) bool {
	return !slices.ContainsFunc(values, func(v any) bool { return v != nil })
}

// fields reads the values of a hash in order and keeps the first error.
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

// damage returns an error if the hash is damaged.
func (f *fields) damage(key string) error {
	if f.err == nil {
		return nil
	}
	return &damageError{[]string{key}, f.err}
}

func (f *fields) number() int64 {
	v := f.text()
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil && f.err == nil {
		f.err = fmt.Errorf("a snapshot's number is %.40q", v)
	}
	return n
}
