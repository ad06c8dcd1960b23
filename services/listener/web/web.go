// Package web is the HTTP server of the listeners that are served over HTTP. It
// limits the time and size of everything that a client sends, and it answers only
// requests for known host names: a page in a browser whose name resolves to this
// machine (DNS rebinding) is refused with 421.
package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/hosts"
	"skandha.dev/services/internal/httpbody"
)

// Config of the server.
type Config struct {
	Listen string `yaml:"listen" default:"127.0.0.1:8090"` // host:port
	// further names by which it is reached, without port, beside localhost, 127.0.0.1 and ::1
	Hosts   []string `yaml:"hosts"`
	TLSCert string   `yaml:"tls_cert"` // PEM file; with tls_key it serves HTTPS
	TLSKey  string   `yaml:"tls_key"`  // PEM file
}

func (c Config) withDefaults() Config { return bounds.Filled(c) }

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		errs = append(errs, fmt.Errorf("listen: %q: want host:port: %w", c.Listen, err))
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		errs = append(errs, errors.New("tls_cert and tls_key: only one is set; set both or none"))
	}
	for _, h := range c.Hosts {
		if err := hosts.Check(h); err != nil {
			errs = append(errs, fmt.Errorf("hosts: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Loopback reports whether the server is reachable only from this machine.
func (c Config) Loopback() bool { return hosts.ListensOnLoopback(c.withDefaults().Listen) }

// Guard passes on only requests for one of the host names.
func (c Config) Guard(next http.Handler) http.Handler {
	own := hosts.Of(c.Hosts)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !own.Has(r.Host) {
			Error(w, http.StatusMisdirectedRequest, "Host", "unknown host "+r.Host+"; add it to listeners.http.hosts")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Error answers with an error as JSON: the field and what is wrong with it.
func Error(w http.ResponseWriter, status int, field, message string) {
	JSON(w, status, struct {
		Field string `json:"field,omitempty"`
		Error string `json:"error"`
	}{field, message})
}

// JSON answers with an object.
func JSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}

// Server is a running HTTP server.
type Server struct {
	srv    *http.Server
	addr   net.Addr
	failed chan error
}

// Start listens and serves until Stop.
func Start(ctx context.Context, c Config, h http.Handler, log *slog.Logger) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &Server{addr: l.Addr(), failed: make(chan error, 1), srv: &http.Server{
		Handler: httpbody.Drain(c.Guard(h)), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second,
		WriteTimeout: time.Minute,
		IdleTimeout:  time.Minute, MaxHeaderBytes: 32 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
	if !c.Loopback() && c.TLSCert == "" {
		log.Warn("HTTP without TLS is reachable from other machines; put a TLS proxy in front of it, "+
			"or set tls_cert and tls_key", "addr", l.Addr().String())
	}
	go func() {
		var err error
		if c.TLSCert != "" {
			err = s.srv.ServeTLS(l, c.TLSCert, c.TLSKey)
		} else {
			err = s.srv.Serve(l)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("serving HTTP: %w", err)
		}
	}()
	log.Info("listeners are served over HTTP", "addr", l.Addr().String())
	return s, nil
}

// Addr returns the address that it listens on.
func (s *Server) Addr() string { return s.addr.String() }

// Failed returns a channel that receives the error if the server ends by itself.
func (s *Server) Failed() <-chan error { return s.failed }

// Stop accepts no new connections and waits for open requests, as long as
// ctx allows.
func (s *Server) Stop(ctx context.Context) error {
	if err := s.srv.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("ending the HTTP server: %w", err), s.srv.Close())
	}
	return nil
}
