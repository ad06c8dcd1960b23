package logburst_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/services/internal/logburst"
)

func TestABurstIsLoggedOnceInAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
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
		const first = "level=WARN msg=refused n=0\nlevel=INFO msg=gone\n"
		if got := out.String(); got != first {
			t.Errorf("at once it logs\n%s", got)
		}
		time.Sleep(logburst.Window)
		synctest.Wait()
		out2 := strings.TrimPrefix(out.String(), first)
		if out2 != "level=WARN msg=refused n=999 suppressed=998\n" {
			t.Errorf("at the end of the window it logs\n%s", out2)
		}
		out.Reset()
		time.Sleep(2 * logburst.Window)
		synctest.Wait()
		if out.Len() > 0 {
			t.Errorf("without anything new it logs\n%s", out.String())
		}
		l.Log(slog.LevelWarn, "full", "refused", "n", 1000)
		if got := out.String(); got != "level=WARN msg=refused n=1000\n" {
			t.Errorf("after a quiet time it logs\n%s", got)
		}
		time.Sleep(logburst.Window)
		synctest.Wait()
	})
}
