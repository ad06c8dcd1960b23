package logburst_test

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/services/internal/logburst"
)

// buffer is what was logged. Timers write to it, too.
type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// want takes out what was logged since the last time.
func (b *buffer) want(t *testing.T, about, want string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := b.String(); got != want {
		t.Errorf("%s it logs\n%s", about, got)
	}
	b.Reset()
}

func TestABurstIsLoggedOnceInAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out buffer
		l := logburst.New(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		})))
		for i := range 1000 {
			l.Log(slog.LevelWarn, "full", "refused", "n", i)
		}
		l.Log(slog.LevelInfo, "away", "gone")
		out.want(t, "at once", "level=WARN msg=refused n=0\nlevel=INFO msg=gone\n")
		time.Sleep(logburst.Window)
		synctest.Wait()
		out.want(t, "at the end of the window", "level=WARN msg=refused n=999 suppressed=998\n")
		time.Sleep(2 * logburst.Window)
		synctest.Wait()
		out.want(t, "without anything new", "")
		l.Log(slog.LevelWarn, "full", "refused", "n", 1000)
		out.want(t, "after a quiet time", "level=WARN msg=refused n=1000\n")
		time.Sleep(logburst.Window)
		synctest.Wait()
	})
}
