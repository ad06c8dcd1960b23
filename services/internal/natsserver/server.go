// Package natsserver runs a NATS server with JetStream inside the process.
//
// `skandha up` and tests use it as their bus. It listens on no
// port unless one is configured; clients of the same process connect through memory
// ([Server.InProcessConn]). It takes no signals: the process that started it
// shuts it down.
package natsserver

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Sync says when a stored message is on the disk.
type Sync string

// The modes.
const (
	// Always: before it is acknowledged. Power loss loses nothing.
	Always Sync = "always"
	// Relaxed: within 10 s. kill -9 loses nothing, power loss may.
	Relaxed Sync = "relaxed"
)

// relaxedInterval is how often the relaxed mode writes to the disk.
const relaxedInterval = 10 * time.Second

// The defaults of [Config].
const (
	DefaultMaxPayload = 8 << 20
	DefaultMaxMemory  = 256 << 20
	DefaultMaxStore   = 64 << 30
	defaultName       = "skandha"
)

// Config of a server. StoreDir is required.
type Config struct {
	StoreDir   string // directory of the streams
	Sync       Sync   // default always
	Addr       string // host:port to listen on, port 0 or -1 for any; empty: clients of this process only
	Token      string // required of clients; it or Operator must be set to listen on more than loopback
	Operator   *Operator
	MaxPayload int    // largest message, in bytes; default 8 MiB
	MaxMemory  int64  // for consumers and streams in memory, in bytes; default 256 MiB
	MaxStore   int64  // for streams in files, in bytes; default 64 GiB
	Name       string // the server's name, unique in a cluster; default "skandha"
	Cluster    *Cluster
	MQTT       *MQTT // nil: MQTT is not spoken
	// Heal restarts the server when it has stopped storing because of the disk, once
	// the disk is writable again. NATS itself waits for an operator to restart it.
	Heal   bool
	Logger *slog.Logger

	healer *healer // nil without Heal
	lock   *os.File
}

// Cluster joins servers that then keep several copies of a stream.
type Cluster struct {
	Addr      string   // host:port to which the other servers connect
	Advertise string   // what it tells them, if that is another one
	Routes    []string // host:port of all servers
}

func (c Config) withDefaults() Config {
	c.Sync = cmp.Or(c.Sync, Always)
	c.MaxPayload = cmp.Or(c.MaxPayload, DefaultMaxPayload)
	c.MaxMemory = cmp.Or(c.MaxMemory, DefaultMaxMemory)
	c.MaxStore = cmp.Or(c.MaxStore, DefaultMaxStore)
	c.Name = cmp.Or(c.Name, defaultName)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Validate reports every field that is wrong; each error names its field.
func (c Config) Validate() error {
	var errs []error
	if c.StoreDir == "" {
		errs = append(errs, errors.New("nats.store_dir is empty; set the directory that keeps the streams"))
	}
	if c.Sync != "" && c.Sync != Always && c.Sync != Relaxed {
		errs = append(errs, fmt.Errorf("nats.sync is %q, want %q or %q", c.Sync, Always, Relaxed))
	}
	if c.MaxPayload < 0 || c.MaxPayload > 64<<20 {
		errs = append(errs, fmt.Errorf("nats.max_payload is %d, want at most %d bytes", c.MaxPayload, 64<<20))
	}
	if c.MaxMemory < 0 || c.MaxStore < 0 {
		errs = append(errs, errors.New("nats.max_memory and nats.max_store must not be negative"))
	}
	if c.Addr != "" {
		host, _, err := splitAddr(c.Addr)
		switch {
		case err != nil:
			errs = append(errs, err)
		case c.Token == "" && c.Operator == nil && !isLoopback(host):
			errs = append(errs,
				fmt.Errorf("nats.addr %q can be reached from other machines and nats.token is empty; "+
					"set a token or listen on 127.0.0.1", c.Addr))
		}
	}
	if c.Token != "" && c.Operator != nil {
		errs = append(errs, errors.New("nats.token and an operator are set; set one"))
	}
	errs = append(errs, c.MQTT.validate(c.Token))
	if c.Cluster != nil {
		// Cluster connections need no token.
		host, _, err := splitAddr(c.Cluster.Addr)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("nats.cluster: %w", err))
		case !isLoopback(host):
			errs = append(errs, fmt.Errorf(
				"nats.cluster.addr %q can be reached from other machines; run separate NATS servers for that",
				c.Cluster.Addr))
		}
	}
	return errors.Join(errs...)
}

func splitAddr(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("nats.addr %q: want host:port: %w", addr, err)
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < -1 || port > 65535 {
		return "", 0, fmt.Errorf("nats.addr %q: port is %q, want -1 to 65535", addr, p)
	}
	port = cmp.Or(port, server.RANDOM_PORT)
	return host, port, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Server is a running server.
type Server struct {
	cfg Config // Addr with the port that it has got

	mu    sync.RWMutex
	srv   *server.Server
	ended bool
}

const startWait = 10 * time.Second

// Start starts the server and returns when it takes clients.
func Start(c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	if err := os.MkdirAll(c.StoreDir, 0o700); err != nil {
		return nil, fmt.Errorf("nats.store_dir: %w", err)
	}
	if c.Heal {
		c.healer = newHealer()
	}
	var err error
	if c.lock, err = lock(c.StoreDir); err != nil {
		return nil, err
	}
	srv, err := c.start()
	if err != nil {
		_ = c.lock.Close() // err says why
		return nil, err
	}
	if c.Addr != "" {
		host, _, _ := splitAddr(c.Addr) // checked by Validate
		_, port, err := net.SplitHostPort(srv.Addr().String())
		if err != nil {
			srv.Shutdown()
			_ = c.lock.Close()
			return nil, fmt.Errorf("the NATS server's own address: %w", err)
		}
		c.Addr = net.JoinHostPort(host, port)
	}
	s := &Server{cfg: c, srv: srv}
	if c.Heal {
		c.healer.start(s)
	}
	return s, nil
}

// ErrInUse says that a server runs on the directory already. Two would write over each
// other's streams.
var ErrInUse = errors.New("another NATS server runs on this directory")

// lock takes the directory until the file is closed or this process ends.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "server.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("nats.store_dir: %w", err)
	}
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		_ = f.Close()
		return nil, fmt.Errorf("nats.store_dir: %w: %s", ErrInUse, dir)
	case err != nil:
		_ = f.Close()
		return nil, fmt.Errorf("nats.store_dir: locking %s: %w", dir, err)
	}
	return f, nil
}

func (c Config) start() (*server.Server, error) {
	o := c.options()
	if err := c.trust(o); err != nil {
		return nil, err
	}
	auth := c.offerMQTT(o)
	srv, err := server.NewServer(o)
	if err != nil {
		return nil, fmt.Errorf("configuring the NATS server: %w", err)
	}
	log := &logger{log: c.Logger.With("component", "nats-server"), healer: c.healer, rights: c.Operator != nil}
	srv.SetLoggerV2(log, false, false, false)
	if auth != nil {
		auth.srv = srv
	}
	srv.Start()
	if log.failed() || !srv.ReadyForConnections(startWait) || !srv.JetStreamEnabled() {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, fmt.Errorf("starting the NATS server in %s: %w", c.StoreDir, log.reason())
	}
	if err := auth.enable(); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, err
	}
	return srv, nil
}

// Restart shuts the server down, waits, and starts it again on the same address
// and store. All clients lose their connections and may make them anew, those of
// this process, too. When it fails, the server is down.
func (s *Server) Restart(pause time.Duration) error {
	s.down()
	time.Sleep(pause)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errors.New("restarting the NATS server: it was shut down")
	}
	srv, err := s.cfg.start()
	for end := time.Now().Add(portWait); taken(err) && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond) // a connection may have been given the port meanwhile
		srv, err = s.cfg.start()
	}
	if err != nil {
		return err
	}
	s.srv = srv
	return nil
}

// taken reports whether somebody else has the port. The server says so in words alone.
func taken(err error) bool {
	return err != nil && strings.Contains(err.Error(), syscall.EADDRINUSE.Error())
}

// portWait is how long a restart waits for its port to be free again.
const portWait = 5 * time.Second

func (c Config) options() *server.Options {
	o := &server.Options{
		ServerName: c.Name, DontListen: c.Addr == "", Authorization: c.Token,
		JetStream: true, StoreDir: c.StoreDir, JetStreamMaxMemory: c.MaxMemory, JetStreamMaxStore: c.MaxStore,
		SyncAlways: c.Sync == Always, SyncInterval: relaxedInterval,
		MaxPayload: int32(c.MaxPayload), //nolint:gosec // at most 64 MiB
		NoSigs:     true, DisableJetStreamBanner: true,
		PingInterval: 10 * time.Second, MaxPingsOut: 2,
		AuthTimeout: 10, // seconds; clients of this process do not try twice
	}
	if c.Addr != "" {
		o.Host, o.Port, _ = splitAddr(c.Addr) // checked by Validate
		o.Host = cmp.Or(o.Host, "0.0.0.0")
	}
	if c.Cluster != nil {
		o.Cluster.Name = "skandha"
		o.Cluster.Host, o.Cluster.Port, _ = splitAddr(c.Cluster.Addr) // checked by Validate
		o.Cluster.Advertise = c.Cluster.Advertise
		for _, r := range c.Cluster.Routes {
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: r})
		}
	}
	return o
}

// InProcessConn makes a connection through memory; it implements nats.InProcessConnProvider.
func (s *Server) InProcessConn() (net.Conn, error) { return s.current().InProcessConn() }

func (s *Server) current() *server.Server {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.srv
}

// Token is what clients must show, in the process too; empty: nothing.
func (s *Server) Token() string { return s.cfg.Token }

// ClientURL is where clients of other processes connect, "" when it does not listen.
func (s *Server) ClientURL() string {
	if s.cfg.Addr == "" {
		return ""
	}
	return s.current().ClientURL()
}

// Running reports whether the server has not been shut down.
func (s *Server) Running() bool { return s.current().Running() }

// Shutdown closes all connections, writes what is stored to the disk and returns
// when that is done.
func (s *Server) Shutdown() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.cfg.healer.stop()
	s.down()
	_ = s.cfg.lock.Close() // again does nothing
}

func (s *Server) down() {
	srv := s.current()
	srv.Shutdown() // again does nothing
	srv.WaitForShutdown()
}
