package natstest

import (
	"bytes"
	"sync"
	"testing"
)

// testWriter writes lines to a test's log. Connections and servers may still log
// when the test has ended, which the testing package answers with a panic.
type testWriter struct {
	t    testing.TB
	mu   sync.Mutex
	over bool
}

// newTestWriter notes the end from the beginning on: the first line may be one
// that comes behind it.
func newTestWriter(t testing.TB) *testWriter {
	w := &testWriter{t: t}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.over = true
	})
	return w
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.t.Log(string(bytes.TrimRight(p, "\n")))
		if bytes.Contains(p, []byte("permissions violation")) { // as the client of NATS says it
			w.t.Error("a service may not do what it does; see schemas/rights.yaml")
		}
	}
	return len(p), nil
}
