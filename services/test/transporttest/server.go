package transporttest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/contract"
)

// Server serves a handler to a principal, as the access layer would.
type Server struct {
	*httptest.Server

	mu  sync.Mutex
	who contract.Principal
	end context.CancelCauseFunc // of the requests
	ctx context.Context         //nolint:containedctx // likewise
}

// Serve serves until the test ends. With a small buffer, a slow reader has an effect
// sooner; 0 means the system's default.
func Serve(t testing.TB, h http.Handler, buffer int) *Server {
	t.Helper()
	s := &Server{who: Principal()}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancelCause(r.Context())
		defer end(nil)
		defer context.AfterFunc(s.ctx, func() { end(context.Cause(s.ctx)) })()
		h.ServeHTTP(w, r.WithContext(contract.WithPrincipal(ctx, s.principal())))
	}))
	if buffer > 0 {
		s.Listener = narrow{s.Listener, buffer}
	}
	s.Start()
	t.Cleanup(func() {
		s.end(contract.ErrGoingAway)
		s.Close()
	})
	return s
}

// End ends the contexts of all requests, as the access layer does.
func (s *Server) End(why error) { s.end(why) }

// As makes all further requests come from a principal.
func (s *Server) As(p contract.Principal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.who = p
}

func (s *Server) principal() contract.Principal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.who
}

// WS returns the server's URL for WebSockets.
func (s *Server) WS() string { return strings.Replace(s.URL, "http", "ws", 1) }

// narrow accepts connections with small buffers.
type narrow struct {
	net.Listener
	bytes int
}

// Accept implements [net.Listener].
func (n narrow) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if t, ok := c.(*net.TCPConn); ok {
		err = t.SetWriteBuffer(n.bytes)
	}
	return c, err
}

// Leaks fails the test if goroutines of these packages are left at its end, after
// everything registered later was cleaned up.
func Leaks(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		natstest.Eventually(t, "goroutines of the handlers have ended", func() bool {
			return !strings.Contains(stacks(), "uibridge/rpc.") && !strings.Contains(stacks(), "uibridge/sse.")
		})
	})
}

func stacks() string {
	var b strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&b, 2) // never fails
	return b.String()
}
