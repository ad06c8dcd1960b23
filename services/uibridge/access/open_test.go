package access_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/services/uibridge/access"
)

// pipes is a listener whose connections are in memory, so that the test controls time.
type pipes struct {
	net.Listener
	in chan net.Conn
}

type pipeEnd struct {
	net.Conn
	from string
}

func (p pipeEnd) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(p.from))
}

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.in; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p.in); return nil } // a server calls it once
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(from string) net.Conn {
	mine, theirs := net.Pipe()
	p.in <- pipeEnd{theirs, from}
	return mine
}

// serve serves a rig on pipes.
func serve(t *testing.T, cfg access.Config) (*rig, pipes) {
	t.Helper()
	r := newRig(t, cfg, "")
	srv := &http.Server{Handler: r.h, ReadHeaderTimeout: time.Hour}
	r.Watch(srv)
	p := pipes{in: make(chan net.Conn)}
	done := make(chan error)
	go func() { done <- srv.Serve(p) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return r, p
}

// A client that only holds connections open loses the oldest of them, and keeps out no other.
func TestAnonymousConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := usual()
		cfg.Limits.Anonymous = 4
		r, p := serve(t, cfg)
		get := func(c net.Conn, token string) (status string, err error) {
			if _, err := io.WriteString(c, "GET /v1/x HTTP/1.1\r\nHost: localhost\r\n"+
				"Authorization: Bearer "+token+"\r\n\r\n"); err != nil {
				return "", err
			}
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				return "", err
			}
			defer res.Body.Close()
			_, err = io.Copy(io.Discard, res.Body)
			return res.Status, err
		}
		letIn := p.dial("192.0.2.1:1")
		if status, err := get(letIn, botToken); status != "200 OK" {
			t.Fatalf("it is answered %s, %v", status, err)
		}
		other := p.dial("192.0.2.2:1")
		var flood []net.Conn
		for i := range 20 {
			flood = append(flood, p.dial("198.51.100.1:"+strconv.Itoa(i+1)))
			synctest.Wait()
		}
		if n := r.Counters(); n["uibridge_anonymous"] != 4 || n["uibridge_anonymous_dropped"] != 17 {
			t.Errorf("%d are open and %d were dropped, want 4 and 17", n["uibridge_anonymous"], n["uibridge_anonymous_dropped"])
		}
		for i, c := range flood {
			_, err := get(c, "wrong")
			if dropped := err != nil; dropped != (i < 17) {
				t.Errorf("connection %d of the flood: %v", i, err)
			}
		}
		for about, c := range map[string]net.Conn{"another address": other, "one that was let in": letIn} {
			if status, err := get(c, botToken); status != "200 OK" {
				t.Errorf("%s is answered %q, %v", about, status, err)
			}
		}
	})
}

func TestALoginsBodyMustComeSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := serve(t, usual())
		c := p.dial("192.0.2.1:1")
		begin := time.Now()
		const half = "POST /v1/auth/code HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
			"Content-Length: 30\r\n\r\n{\"code\": "
		if _, err := io.WriteString(c, half); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if took := time.Since(begin); res.StatusCode != http.StatusBadRequest || took != 5*time.Second {
			t.Errorf("half a body is answered %d after %s", res.StatusCode, took)
		}
	})
}
