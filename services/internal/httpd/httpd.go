// Package httpd is the small HTTP server that every service runs beside the bus:
// GET /healthz (the process is alive), /readyz (it can do its work) and /metrics
// (Prometheus text format). It serves nothing else and accepts no input.
package httpd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"time"
)

// Config of a server.
type Config struct {
	Addr    string                  // host:port; empty: none is started
	Ready   func() error            // nil error: ready
	Scraped http.Handler            // serves /metrics
	Metrics func() map[string]int64 // of a process without signals, instead: values by name, without prefix; may be nil
	Log     *slog.Logger
}

// Serve serves until ctx ends. Without an address it only waits for that.
func Serve(ctx context.Context, c Config) error {
	if c.Addr == "" {
		<-ctx.Done()
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return fmt.Errorf("http: %w", err)
	}
	srv := &http.Server{Handler: Handler(c), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := srv.Shutdown(end); err != nil {
			c.Log.Debug("http: shutting down", "error", err)
		}
	})
	defer stop()
	c.Log.Info("http is listening", "addr", l.Addr().String())
	if err := srv.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http: %w", err)
	}
	return nil
}

// Handler answers the three paths.
func Handler(c Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if c.Ready != nil {
			if err := c.Ready(); err != nil {
				text(w, http.StatusServiceUnavailable, err.Error()+"\n")
				return
			}
		}
		text(w, http.StatusOK, "ready\n")
	})
	if c.Scraped != nil {
		mux.Handle("GET /metrics", c.Scraped)
		return mux
	}
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, c.metrics()) })
	return mux
}

func text(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, body) // the client may have disconnected
}

// Process returns what every process counts, by name.
func Process() map[string]int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return map[string]int64{
		"goroutines": int64(runtime.NumGoroutine()), "heap_bytes": int64(m.HeapAlloc), "sys_bytes": int64(m.Sys),
	}
}

func (c Config) metrics() string {
	all := Process()
	if c.Metrics != nil {
		maps.Copy(all, c.Metrics())
	}
	var out []byte
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = fmt.Appendf(out, "skandha_%s %d\n", k, all[k])
	}
	return string(out)
}

// Check asks the server at addr whether it is ready: the health check of a
// container without a shell.
func Check(ctx context.Context, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("health check: --http %q: %w", addr, err)
	}
	if host == "" || host == "0.0.0.0" || host == "::" {
		host = "127.0.0.1"
	}
	return check(ctx, net.JoinHostPort(host, port), http.DefaultClient)
}

// CheckSocket is Check for a server at a unix socket.
func CheckSocket(ctx context.Context, path string) error {
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}
	defer t.CloseIdleConnections()
	return check(ctx, "socket", &http.Client{Transport: t})
}

func check(ctx context.Context, host string, client *http.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/readyz", nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("health check: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(res.Body, 512))
		return fmt.Errorf("health check: %s: %s", res.Status, why)
	}
	return nil
}
