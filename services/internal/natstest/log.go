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
	once sync.Once
	mu   sync.Mutex
	over bool
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.once.Do(func() {
		w.t.Cleanup(func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.over = true
		})
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.t.Log(string(bytes.TrimRight(p, "\n")))
	}
	return len(p), nil
}
