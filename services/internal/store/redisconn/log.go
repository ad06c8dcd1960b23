package redisconn

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/redis/go-redis/v9"
)

// quiet redirects what go-redis would print on standard error to slog's default logger,
// at debug level, because callers get the errors anyway. The setting is global to the
// process.
var quiet = sync.OnceFunc(func() { redis.SetLogger(debugLog{}) })

type debugLog struct{}

func (debugLog) Printf(ctx context.Context, format string, args ...any) {
	if slog.Default().Enabled(ctx, slog.LevelDebug) {
		slog.DebugContext(ctx, fmt.Sprintf(format, args...))
	}
}
