package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/httpd"
	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/docker/proxy"
	"skandha.dev/services/test/natstest"
)

var attachment = plain("POST", version+"/containers/"+mine+"/attach?stream=1&stdin=1&stdout=1", upgrade...)

// attach takes over a connection, and returns its two ends.
func (r *rig) attach(t *testing.T) (*peer, *net.UnixConn) {
	t.Helper()
	c := r.dial(t)
	if status, body, _ := c.send(attachment); status != http.StatusSwitchingProtocols {
		t.Fatalf("attaching is answered %d %s", status, body)
	}
	engine := (<-r.attached).(*net.UnixConn)
	t.Cleanup(func() { _ = engine.Close() })
	_ = engine.SetDeadline(time.Now().Add(time.Minute))
	if got := c.read(len("hello")); got != "hello" { // the engine sends it with its answer
		t.Errorf("the container says %q", got)
	}
	return c, engine
}

func (c *peer) read(n int) string {
	c.t.Helper()
	buf := make([]byte, n)
	if _, err := io.ReadFull(c.r, buf); err != nil {
		c.t.Fatal(err)
	}
	return string(buf)
}

func TestBytesPassBothWays(t *testing.T) {
	r := newRig(t)
	c, engine := r.attach(t)
	large := bytes.Repeat([]byte{0, 1, 2, 255}, 1<<18)
	go func() { _, _ = c.Write(large) }()
	got := make([]byte, len(large))
	if _, err := io.ReadFull(engine, got); err != nil || !bytes.Equal(got, large) {
		t.Errorf("the engine has other bytes, %v", err)
	}
	go func() { _, _ = engine.Write(large) }()
	if c.read(len(large)) != string(large) {
		t.Error("the client has other bytes")
	}
}

// What the client sends with its request, before the answer, is not lost.
func TestEarlyInputPasses(t *testing.T) {
	r := newRig(t)
	c := r.dial(t)
	if status, _, _ := c.send(attachment + "early"); status != http.StatusSwitchingProtocols {
		t.Fatalf("it is answered %d", status)
	}
	engine := <-r.attached
	t.Cleanup(func() { _ = engine.Close() })
	got := make([]byte, 5)
	if _, err := io.ReadFull(engine, got); err != nil || string(got) != "early" {
		t.Errorf("the engine has %q, %v", got, err)
	}
}

// The input may end long before the output.
func TestInputEndsAlone(t *testing.T) {
	r := newRig(t)
	c, engine := r.attach(t)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(engine); err != nil || len(rest) > 0 {
		t.Errorf("the engine reads %q, %v", rest, err)
	}
	for range 3 {
		_, _ = io.WriteString(engine, "more")
		if got := c.read(4); got != "more" {
			t.Errorf("the client reads %q", got)
		}
	}
	_ = engine.Close()
	if rest, err := io.ReadAll(c.r); err != nil || len(rest) > 0 {
		t.Errorf("at the end the client reads %q, %v", rest, err)
	}
}

// A client gets all output, and then the end, even if it was still sending.
func TestOutputIsWholeWhenTheEngineEnds(t *testing.T) {
	r := newRig(t)
	c, engine := r.attach(t)
	_, _ = io.WriteString(engine, "last words")
	_ = engine.Close()
	_, _ = c.Write(bytes.Repeat([]byte("x"), 1<<16))
	if rest, err := io.ReadAll(c.r); err != nil || string(rest) != "last words" {
		t.Errorf("the client reads %q, %v", rest, err)
	}
}

// A client that goes takes its connection to the engine along, whether or not something is sent.
func TestClientsThatGoLeaveNothing(t *testing.T) {
	r := newRig(t)
	for range 2 { // what is made once, is
		c, engine := r.attach(t)
		_ = c.Close()
		_ = engine.Close()
	}
	before := runtime.NumGoroutine()
	var clients []*peer
	for range 20 {
		c, _ := r.attach(t)
		clients = append(clients, c)
	}
	follow := r.follow(t)
	half := r.dial(t)
	_, _ = io.WriteString(half, "GET /v1.41/info HTT")
	for _, c := range append(clients, follow, half) {
		_ = c.Close()
	}
	if got := <-r.events; got != "over" {
		t.Errorf("the events end with %q", got)
	}
	natstest.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// follow reads the engine's events.
func (r *rig) follow(t *testing.T) *peer {
	t.Helper()
	c := r.dial(t)
	if status, body, _ := c.send(plain("GET", version+"/events?since=1.000000000&filters="+
		filtersOf(t, form.Events(form.DefaultOwner, origin.Boot)))); status != http.StatusOK {
		t.Fatalf("it is answered %d %s", status, body)
	}
	return c
}

func TestEventsComeAtOnce(t *testing.T) {
	r := newRig(t)
	c := r.follow(t)
	for range 3 {
		r.events <- `{"Action":"die"}`
		for line := ""; !strings.Contains(line, "die"); {
			var err error
			if line, err = c.r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = c.Close()
	<-r.events
}

func TestClientsAreCounted(t *testing.T) {
	r := newRig(t, func(c *proxy.Config) { c.Connections = 4 })
	var open []*peer
	for range 4 {
		c := r.dial(t)
		if status, _, _ := c.send(plain("GET", "/healthz")); status != http.StatusOK { // it is accepted
			t.Fatalf("it is answered %d", status)
		}
		open = append(open, c)
	}
	if status, body := r.send(t, plain("GET", "/healthz")); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, `{"message":`) {
		t.Errorf("the fifth client is answered %d %s", status, body)
	}
	_ = open[0].Close()
	natstest.Eventually(t, "there is room again", func() bool {
		status, _ := r.send(t, plain("GET", "/healthz"))
		return status == http.StatusOK
	})
}

// Clients that send their headers or body slowly, or do not read, lose their connection.
func TestSlowClientsEnd(t *testing.T) {
	r := newRig(t, func(c *proxy.Config) { c.HeaderTimeout = time.Millisecond })
	for _, text := range []string{"", "GET", plain("GET", version+"/info")[:30]} {
		c := r.dial(t)
		_, _ = io.WriteString(c, text)
		if _, err := io.ReadAll(c.r); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after %q the connection stays", text)
		}
	}
}

func TestEngineThatIsDown(t *testing.T) {
	r := newRig(t, func(c *proxy.Config) { c.Engine = "unix:///nowhere/docker.sock" })
	target, body := lease(t)
	for _, text := range []string{
		plain("GET", version+"/info"), plain("GET", "/_ping"), plain("GET", "/readyz"), posted(target, body), attachment,
		plain("GET", version+"/volumes/"+ourData),
	} {
		if status, answer := r.send(t, text); status != http.StatusServiceUnavailable ||
			!strings.Contains(answer, "cannot connect to the Docker daemon at unix:///nowhere/docker.sock") {
			t.Errorf("%.100q is answered %d %s", text, status, answer)
		}
	}
	if status, _ := r.send(t, plain("GET", "/healthz")); status != http.StatusOK {
		t.Errorf("the proxy is not alive: %d", status)
	}
	if err := httpd.CheckSocket(t.Context(), r.proxy); err == nil {
		t.Error("the proxy is ready")
	}
}

// On shutdown sandboxes that are attached go on for a while; no more are created.
func TestDrain(t *testing.T) {
	r := newRig(t, func(c *proxy.Config) { c.Drain = time.Hour })
	c, engine := r.attach(t)
	follow := r.follow(t)
	r.stop()
	target, body := lease(t)
	natstest.Eventually(t, "it is not ready", func() bool { return httpd.CheckSocket(t.Context(), r.proxy) != nil })
	if status, answer := r.send(t, posted(target, body)); status != http.StatusServiceUnavailable {
		t.Errorf("a container is answered %d %s", status, answer)
	}
	remove := plain("DELETE", version+"/containers/"+mine+"?force=1&v=1")
	if status, answer := r.send(t, remove); status != http.StatusNoContent {
		t.Errorf("removing one is answered %d %s", status, answer)
	}
	_, _ = io.WriteString(engine, "still")
	if got := c.read(5); got != "still" {
		t.Errorf("the container says %q", got)
	}
	_ = c.Close()
	_ = engine.Close()
	if err := <-r.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	r.ended <- nil
	if got := <-r.events; got != "over" {
		t.Errorf("the events end with %q", got)
	}
	if _, err := io.ReadAll(follow.r); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the client of the events is still connected")
	}
	if _, err := os.Stat(r.proxy); err == nil {
		t.Error("the socket is still there")
	}
}

// What stays attached for longer is ended.
func TestDrainEnds(t *testing.T) {
	r := newRig(t)
	c, engine := r.attach(t)
	r.stop()
	for about, end := range map[string]io.Reader{"client": c.r, "engine": engine} {
		if _, err := io.ReadAll(end); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the %s is still connected", about)
		}
	}
}

func TestListen(t *testing.T) {
	path := shortDir(t) + "/s"
	l, err := proxy.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	if _, err := proxy.Listen(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another process serves") {
		t.Errorf("two may listen: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as if the process was killed
	_ = l.Close()
	again, err := proxy.Listen(context.Background(), path)
	if err != nil {
		t.Fatalf("after a process that was killed: %v", err)
	}
	_ = again.Close()
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := proxy.Listen(t.Context(), path); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file is replaced: %v", err)
	}
}
