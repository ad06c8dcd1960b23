package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"skandha.dev/services/internal/store"
)

// Conn is a client, and what it was configured with. Its methods may be called from many
// goroutines.
type Conn struct {
	Client redis.UniversalClient
	Where  string // for messages: the address, without credentials
	Prefix string // of every key
}

// Close closes the client; closing again returns nil.
func (c *Conn) Close() error {
	if err := c.Client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return err
	}
	return nil
}

// Explain maps the error of an operation to those of package store.
func (c *Conn) Explain(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid):
		return err
	case errors.Is(err, redis.ErrClosed):
		return store.ErrClosed
	case expired(ctx) != nil:
		return fmt.Errorf("store: %s: %w", op, expired(ctx))
	}
	return fmt.Errorf("%w: %s on redis at %s: %w", store.ErrUnavailable, op, c.Where, err)
}

// expired is like ctx.Err but notices a deadline as soon as the socket does.
func expired(ctx context.Context) error {
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// Masters calls f for the server, or for every master of a cluster.
func (c *Conn) Masters(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	switch client := c.Client.(type) {
	case *redis.ClusterClient:
		return client.ForEachMaster(ctx, f)
	case *redis.Client:
		return f(ctx, client)
	}
	panic("redisconn: unexpected type of client")
}

// scanCount is how many keys SCAN looks at in one call.
const scanCount = 1000

// Sweep removes a server's keys that match the pattern, one by one, because one command
// can't remove keys of several slots.
func Sweep(ctx context.Context, server *redis.Client, pattern string) error {
	for cursor := uint64(0); ; {
		keys, next, err := server.Scan(ctx, cursor, pattern, scanCount).Result()
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			_, err := server.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, k := range keys {
					p.Unlink(ctx, k)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// Pattern returns the SCAN pattern for the keys that begin with the prefix and then a
// hash tag. It does not match keys of a longer prefix.
func Pattern(prefix string) string { return globEscaper.Replace(prefix) + "{*" }

var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
