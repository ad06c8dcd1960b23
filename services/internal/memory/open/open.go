// Package open opens a store of memories by URL. It links every driver, so only mains and
// tests import it.
package open

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"skandha.dev/services/internal/journal"
	index "skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/memory/chroma"
	"skandha.dev/services/internal/memory/plugin"
	"skandha.dev/services/internal/memory/redis"
	"skandha.dev/services/internal/memory/sqlite"
	"skandha.dev/services/internal/store/sqlitefile"
)

const allowed = "redis, rediss, chroma+http, chroma+https, plugin, sqlite and a plain file path"

// Store opens the store at a URL or path:
//
//	redis://user:password@host:port/db   see redisconn.Config for its parameters
//	rediss://…                           the same over TLS
//	chroma+http://host:port              see chroma.Config for its parameters
//	chroma+https://…                     the same over TLS
//	plugin://NAME                        a storage plugin; see plugin.Config for its parameters
//	sqlite:///absolute/path              a SQLite file
//	some/path.db                         a SQLite file
//
// An unreachable server or plugin is not an error, because the store connects when it is
// used. A file that cannot be opened is an error. Only a plugin needs the bus. For any other scheme, the error is memory.ErrInvalid.
// Errors contain no passwords.
func Store(ctx context.Context, where string, b *journal.Journal, log *slog.Logger) (index.Store, error) {
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
	case "chroma+http", "chroma+https":
		s, err := chroma.Open(chroma.Config{URL: where})
		if err != nil {
			return nil, err
		}
		return s, nil
	case "plugin":
		s, err := plugin.Open(plugin.Config{URL: where, Bus: b, Logger: log})
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
	return nil, fmt.Errorf("%w: unknown scheme %q; allowed are %s", index.ErrInvalid, scheme, allowed)
}

func openFile(ctx context.Context, path string, log *slog.Logger) (index.Store, error) {
	if path == "" {
		return nil, fmt.Errorf("%w: no URL for memories; allowed are %s", index.ErrInvalid, allowed)
	}
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path, Logger: log})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Beside opens the store that is configured or, by default, one in the same database as the
// view. Beside a SQLite file that is another file, memory.db.
func Beside(
	ctx context.Context, configured, view string, b *journal.Journal, log *slog.Logger,
) (index.Store, error) {
	where := configured
	if where == "" {
		where = beside(view)
	}
	s, err := Store(ctx, where, b, log)
	if err != nil {
		return nil, fmt.Errorf("opening the index of memories: %w", err)
	}
	return s, nil
}

func beside(view string) string {
	scheme, path, found := strings.Cut(view, "://")
	switch {
	case found && !strings.EqualFold(scheme, "sqlite"):
		return view
	case found:
		return scheme + "://" + filepath.Join(filepath.Dir(path), "memory.db")
	}
	return filepath.Join(filepath.Dir(view), "memory.db")
}
