package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"skandha.dev/services/internal/store"
)

// Store is a store.Store in Redis.
type Store struct {
	client redis.UniversalClient
	keys   keyspace
	where  string // for messages: the address, without credentials
	log    *slog.Logger
}

var _ store.Store = (*Store)(nil)

// Open returns a store that connects when it is first used, so a server that is
// unreachable now is treated like one that fails later. Errors are only about the
// configuration.
func Open(cfg Config) (*Store, error) {
	quiet()
	client, where, prefix, err := cfg.client()
	if err != nil {
		return nil, err
	}
	s := &Store{client: client, keys: keyspace(prefix), where: where, log: cfg.Logger}
	if s.log == nil {
		s.log = slog.Default()
	}
	return s, nil
}

// Ping implements store.Store.
func (s *Store) Ping(ctx context.Context) error {
	return s.do(ctx, "ping", func() error { return s.client.Ping(ctx).Err() })
}

// Close implements store.Store.
func (s *Store) Close() error {
	if err := s.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return err
	}
	return nil
}

// do runs one call and maps its error to the contract's. A call that finds unreadable
// values is repeated after they are removed.
func (s *Store) do(ctx context.Context, op string, call func() error) error {
	err := ctx.Err()
	if err == nil {
		err = call()
	}
	for range maxMends {
		d, is := errors.AsType[*damageError](err)
		if !is {
			break
		}
		if err = s.remove(ctx, d); err == nil {
			err = call()
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound):
		return err
	case errors.Is(err, redis.ErrClosed):
		return store.ErrClosed
	case expired(ctx) != nil:
		return fmt.Errorf("store: %s: %w", op, expired(ctx))
	}
	return fmt.Errorf("%w: %s on redis at %s: %w", store.ErrUnavailable, op, s.where, err)
}

// expired is like ctx.Err but notices a deadline as soon as the socket does.
func expired(ctx context.Context) error {
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}
