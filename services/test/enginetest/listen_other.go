//go:build !linux

package enginetest

import (
	"net"
	"testing"
)

// Listen listens on an address that the engine's containers with a network can reach. The
// listener is closed when the test ends.
func (e *Engine) Listen(t testing.TB, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address) //nolint:noctx // there is no name to resolve
	if err != nil {
		t.Fatalf("listening on %s: %v", address, err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
