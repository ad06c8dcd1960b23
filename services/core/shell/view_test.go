package shell_test

import (
	"strings"
	"testing"

	"skandha.dev/services/core"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/natstest"
	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/open"
	"skandha.dev/services/internal/store/redistest"
)

// startWithout starts a core whose view is the store at the URL, which does not work.
func startWithout(t *testing.T, url string) *viewed {
	st, err := open.Store(t.Context(), url, natstest.Logger(t))
	must(t, err)
	t.Cleanup(func() { _ = st.Close() })
	v := &viewed{system: start(t, core.Config{}), view: st, open: func() store.Store { return st }}
	v.stopCore()
	v.run(st)
	return v
}

// faulty reports whether status names the view's fault.
func (v *viewed) faulty(t *testing.T, says string) func() bool {
	return func() bool {
		st := v.ask(t)
		return fault(st, coreapi.FaultView, says) && st.View.State == coreapi.ViewUnavailable && strings.Contains(st.View.Error, says)
	}
}

// A view that is away when core starts is like one that goes away later.
func TestACoreStartsBeforeItsView(t *testing.T) {
	url, run := redistest.Later(t)
	v := startWithout(t, url)
	v.turn("early")
	natstest.Eventually(t, "status names the view", v.faulty(t, "connection refused"))
	run()
	v.await(t, 1, 0)
	natstest.Eventually(t, "the view works", func() bool { return len(v.ask(t).Faults) == 0 })
}

func TestACoreNamesAWrongPasswordOfItsView(t *testing.T) {
	v := startWithout(t, strings.Replace(redistest.Start(t), redistest.Password, "hunter2", 1))
	v.turn("early")
	natstest.Eventually(t, "status names the reason", v.faulty(t, "WRONGPASS"))
}
