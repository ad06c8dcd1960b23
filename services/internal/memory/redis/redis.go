package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/redis/go-redis/v9"

	"skandha.dev/pkg/subject"
	index "skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/store/redisconn"
)

// Config configures the server and the keys. Its fields are those of redisconn.Config.
type Config struct {
	URL     string
	Prefix  string // default "skandha:memory:"
	Timeout time.Duration
	Logger  *slog.Logger // default: slog.Default()
}

// maxMirrors is of how many agents a process keeps what it has searched.
const maxMirrors = 64

// Store is a memory.Store in Redis.
type Store struct {
	conn    *redisconn.Conn
	log     *slog.Logger
	mirrors *lru.Cache[subject.Agent, *mirror]
}

var _ index.Store = (*Store)(nil)

// Open returns a store that connects when it is first used. Errors are only about the
// configuration.
func Open(cfg Config) (*Store, error) {
	conn, err := redisconn.Config{
		URL: cfg.URL, Prefix: cfg.Prefix, Default: "skandha:memory:", Timeout: cfg.Timeout,
	}.Open()
	if err != nil {
		return nil, err
	}
	mirrors, err := lru.New[subject.Agent, *mirror](maxMirrors)
	if err != nil {
		return nil, err
	}
	s := &Store{conn: conn, log: cfg.Logger, mirrors: mirrors}
	if s.log == nil {
		s.log = slog.Default()
	}
	return s, nil
}

func (s *Store) agents() string   { return s.conn.Prefix + "agents" }
func (s *Store) models() string   { return s.conn.Prefix + "models" }
func (s *Store) position() string { return s.conn.Prefix + "position" }

// The keys of an agent, in the order in which scripts get them.
const (
	revisions = iota
	memories
	vectors
	changes
	changed
	epoch
)

// keys returns the keys of an agent. It is escaped, so that the hash tag ends where it should.
func (s *Store) keys(agent subject.Agent) []string {
	prefix := s.conn.Prefix + "{" + url.PathEscape(string(agent)) + "}:"
	return []string{
		prefix + "revisions", prefix + "memories", prefix + "vectors", prefix + "changes", prefix + "changed", prefix + "epoch",
	}
}

// damageError is about keys that cannot be read.
type damageError struct {
	keys  []string
	cause error
}

func (e *damageError) Error() string { return e.cause.Error() }
func (e *damageError) Unwrap() error { return e.cause }

// damage returns err as a damageError about the keys, if it reports one or a value of the
// wrong kind.
func damage(err error, keys ...string) error {
	if redisconn.Unreadable(err) {
		return &damageError{keys, err}
	}
	return err
}

// maxMends bounds how often one call is repeated: it may meet several damaged values.
const maxMends = 3

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

// remove deletes unreadable keys, after the position, so that they are filled again.
func (s *Store) remove(ctx context.Context, d *damageError) error {
	if err := s.conn.Client.Unlink(ctx, s.position()).Err(); err != nil {
		return err
	}
	if err := s.conn.Client.Unlink(ctx, d.keys...).Err(); err != nil {
		return err
	}
	s.log.ErrorContext(ctx, "memory: removed unreadable Redis keys; they are filled again from the bucket of memories",
		"redis", s.conn.Where, "keys", d.keys, "error", d.cause)
	return nil
}

// Ping implements memory.Store.
func (s *Store) Ping(ctx context.Context) error {
	return s.do(ctx, "ping", func() error { return s.conn.Client.Ping(ctx).Err() })
}

// Close implements memory.Store.
func (s *Store) Close() error { return s.conn.Close() }

// SetPosition implements memory.Store.
func (s *Store) SetPosition(ctx context.Context, revision uint64) error {
	if err := index.CheckPosition(revision); err != nil {
		return err
	}
	return s.do(ctx, "set position", func() error {
		return damage(positionScript.Run(ctx, s.conn.Client, []string{s.position()}, revision).Err(), s.position())
	})
}

// Position implements memory.Store.
func (s *Store) Position(ctx context.Context) (revision uint64, err error) {
	err = s.do(ctx, "position", func() error {
		text, err := s.conn.Client.Get(ctx, s.position()).Result()
		revision = 0
		if errors.Is(err, redis.Nil) {
			return nil
		}
		if err != nil {
			return damage(err, s.position())
		}
		if revision, err = strconv.ParseUint(text, 10, 64); err != nil {
			return &damageError{[]string{s.position()}, fmt.Errorf("the position is %.40q", text)}
		}
		return nil
	})
	return revision, err
}

// Wipe implements memory.Store. The position goes first and the list of agents last, so that
// a wipe that was interrupted can be seen, and repeated.
func (s *Store) Wipe(ctx context.Context) error {
	return s.do(ctx, "wipe", func() error {
		if err := s.conn.Client.Unlink(ctx, s.position()).Err(); err != nil {
			return err
		}
		if err := s.conn.Masters(ctx, func(ctx context.Context, server *redis.Client) error {
			return redisconn.Sweep(ctx, server, redisconn.Pattern(s.conn.Prefix))
		}); err != nil {
			return err
		}
		for _, key := range []string{s.models(), s.agents()} {
			if err := s.conn.Client.Unlink(ctx, key).Err(); err != nil {
				return err
			}
		}
		return nil
	})
}
