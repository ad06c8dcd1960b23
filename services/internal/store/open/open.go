// Package open opens a store by URL. It links every driver, so only mains and tests
// import it.
package open

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/redis"
	"skandha.dev/services/internal/store/sqlite"
	"skandha.dev/services/internal/store/sqlitefile"
)

// Store opens the store at a URL or path:
//
//	redis://user:password@host:port/db   see redis.Config for its parameters
//	rediss://…                           the same over TLS
//	redis://…?master_name=NAME           the master of that name, of the Sentinel at the host
//	sqlite:///absolute/path              a SQLite file
//	some/path.db                         a SQLite file
//
// An unreachable Redis server is not an error, because the store connects when it is
// used. A file that cannot be opened is an error. For any other scheme, the error is
// store.ErrInvalid. Errors contain no passwords.
func Store(ctx context.Context, where string, log *slog.Logger) (store.Store, error) {
	scheme, _, found := strings.Cut(where, "://")
	if !found {
		return openFile(ctx, where, log)
	}
	switch strings.ToLower(scheme) {
	case "redis", "rediss":
		s, err := redis.Open(redis.Config{URL: where, Logger: log})
		if err != nil {
			return nil, err
		}
		return s, nil
	case "sqlite":
		path, err := sqlitefile.PathOf(where)
		if err != nil {
			return nil, err
		}
		return openFile(ctx, path, log)
	}
	return nil, fmt.Errorf("%w: unknown scheme %q; allowed are redis, rediss, sqlite and a plain file path",
		store.ErrInvalid, scheme)
}

func openFile(ctx context.Context, path string, log *slog.Logger) (store.Store, error) {
	if path == "" {
		return nil, fmt.Errorf("%w: no store URL; allowed are redis, rediss, sqlite and a plain file path", store.ErrInvalid)
	}
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path, Logger: log})
	if err != nil {
		return nil, err
	}
	return s, nil
}
