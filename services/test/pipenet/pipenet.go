// Package pipenet is an in-process network for tests in a bubble of
// testing/synctest: a goroutine that waits for a system socket is outside of the
// bubble's time, one that waits for a pipe is not. So tests of timeouts use
// a clock that does not depend on how busy the machine is.
package pipenet

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Network is a network with one listener, which every address leads to.
type Network struct {
	dialled chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// New returns a network. It belongs to the bubble in which it is created.
func New() *Network {
	return &Network{dialled: make(chan net.Conn), closed: make(chan struct{})}
}

// DialContext connects to the listener, as a [net.Dialer] does.
func (n *Network) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case n.dialled <- far:
		return near, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements [net.Listener].
func (n *Network) Accept() (net.Conn, error) {
	select {
	case c := <-n.dialled:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (n *Network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

// Addr implements [net.Listener].
func (n *Network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// Serve serves HTTP until the test ends. All requests of the client go to the
// handler, whatever host they name.
func Serve(t testing.TB, h http.Handler) *http.Client {
	t.Helper()
	n := New()
	srv := &http.Server{Handler: h} //nolint:gosec // only tests connect
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(n) // until it is closed
	}()
	c := &http.Client{Transport: &http.Transport{DialContext: n.DialContext}}
	t.Cleanup(func() {
		c.CloseIdleConnections()
		_ = srv.Close()
		<-served
	})
	return c
}
