package webtest

import (
	"context"
	"net"
	"testing"
)

// canary listens in the place of every host that a hostile text names. Its test fails if
// anybody connects: then something was carried out of the page.
type canary struct {
	l    net.Listener
	done chan struct{}
}

func listen(t testing.TB) *canary {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &canary{l: l, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			t.Errorf("the browser asked a host below .example")
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-c.done
	})
	return c
}

func (c *canary) addr() string { return c.l.Addr().String() }
