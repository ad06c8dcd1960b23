package redis

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/redisconn"
)

// Config configures the server and the keys. Its fields are those of redisconn.Config.
type Config struct {
	URL     string
	Prefix  string // default "skandha:"
	Timeout time.Duration
	Logger  *slog.Logger // default: slog.Default()
}

// Store is a store.Store in Redis.
type Store struct {
	conn *redisconn.Conn
	keys keyspace
	log  *slog.Logger
}

var _ store.Store = (*Store)(nil)

// Open returns a store that connects when it is first used. Errors are only about the
// configuration.
func Open(cfg Config) (*Store, error) {
	conn, err := redisconn.Config{
		URL: cfg.URL, Prefix: cfg.Prefix, Default: "skandha:", Timeout: cfg.Timeout,
	}.Open()
	if err != nil {
		return nil, err
	}
	s := &Store{conn: conn, keys: keyspace(conn.Prefix), log: cfg.Logger}
	if s.log == nil {
		s.log = slog.Default()
	}
	return s, nil
}

// Ping implements store.Store.
func (s *Store) Ping(ctx context.Context) error {
	return s.do(ctx, "ping", func() error { return s.conn.Client.Ping(ctx).Err() })
}

// Close implements store.Store.
func (s *Store) Close() error { return s.conn.Close() }

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
	return s.conn.Explain(ctx, op, err)
}
