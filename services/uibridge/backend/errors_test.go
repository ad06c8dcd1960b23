package backend

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/logburst"
	"skandha.dev/services/uibridge/contract"
)

// Under overload every input is refused: each caller gets an error, but the log is not flooded.
func TestRefusedInputsDoNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := &Backend{bursts: logburst.New(slog.New(slog.NewTextHandler(&out, nil)))}
		refuse := func(err error, want contract.Code) {
			t.Helper()
			var e *contract.Error
			if !errors.As(b.refusal("storing an input", err), &e) || e.Code != want {
				t.Fatalf("got %+v, want %s", e, want)
			}
		}
		for range 500 {
			refuse(bus.Errorf(bus.CodeOverloaded, "overloaded"), contract.CodeOverloaded)
			refuse(bus.ErrRefused, contract.CodeUnavailable)
		}
		time.Sleep(logburst.Window)
		synctest.Wait()
		if got := out.String(); strings.Count(got, "level=WARN") != 4 || strings.Count(got, "suppressed=498") != 2 {
			t.Errorf("for two reasons it has logged\n%s", out.String())
		}
		time.Sleep(logburst.Window) // nothing is left
	})
}
