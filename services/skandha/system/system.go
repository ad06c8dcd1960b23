// Package system runs a whole Skandha system in one process: an embedded NATS
// server, the SQLite view, core, provider, tool runner, sandbox, listeners and the UI
// bridge, each on a separate in-process connection, exactly as they would run as
// separate processes.
//
// The server also listens on loopback, with a token, so that other terminals,
// processes and languages can join. run.json in the data directory, which this process
// locks, contains the address while the system runs; bus.json keeps the port and the token, so
// that plugins reconnect after a restart.
package system

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/httpd"
	"skandha.dev/services/internal/journal"
	index "skandha.dev/services/internal/memory"
	memories "skandha.dev/services/internal/memory/open"
	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/signals"
	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/open"
	"skandha.dev/services/internal/trust"
	"skandha.dev/services/listener"
	"skandha.dev/services/provider"
	"skandha.dev/services/sandbox"
	"skandha.dev/services/toolrunner"
	"skandha.dev/services/toolrunner/mcp"
	"skandha.dev/services/toolrunner/tools/filesystem"
	"skandha.dev/services/toolrunner/tools/web"
	"skandha.dev/services/uibridge"
	"skandha.dev/services/uibridge/access"
)

// Config of a system. Data is required.
type Config struct {
	Data       string // directory of log, view and workspace
	ConfigFile string // YAML: agents, policy, listeners and ui; empty: one agent with the defaults
	Sync       string // always (default) or relaxed
	NATS       string // listen address of the bus; default a port on loopback that Data keeps
	Token      string // of an open bus; default a random one that Data keeps
	MQTT       string // listen address of MQTT, for devices; empty: none
	HTTP       string // listen address of health and metrics; empty: none
	Store      string // of the view; default a SQLite file in Data
	Memory     string // index of memories; default beside the view

	Settle time.Duration // how old a turn must be to leave the log; default 3m

	Provider, Model, BaseURL, OfflineRules string
	Embedder                               string             // <provider>/<model>; default that of ConfigFile
	Transcriber, Speaker                   string             // likewise, or command
	Models                                 []provider.Adapter // instead of those that the four select
	Workspace                              string             // default Data/workspace
	Files                                  filesystem.Limits  // for the file tools
	Requests                               web.Hosts          // what http:request may reach
	Web                                    web.Config         // what web:search and web:fetch may reach
	// Open leaves the bus without rights: any client with Token may do everything. Otherwise each service has
	// its own credentials, and plugins and listeners are invited.
	Open bool
	// the storage plugin that keeps notes; default files in Workspace
	NotesPlugin string
	Slots       int       // of provider, tool runner and sandbox, each; default 64
	Sandbox     *Sandbox  // for the code of models; nil: it is not run
	UI          *UI       // the page for people; nil: none
	Stdin       io.Reader // for a listener of standard input; nil: it is used otherwise
	Log         *slog.Logger
}

// System is a running system.
type System struct {
	cfg      Config
	srv      *natsserver.Server
	devices  *natsserver.Server // that speaks MQTT; nil: none
	signals  *signals.Signals
	trust    *trust.Authority // nil: the bus has no rights
	operator string           // token of the people who run the system
	store    store.Store
	memory   index.Store
	core     *shell.Core
	lock     *os.File
	log      *slog.Logger
	about    string
	adapters []provider.Adapter
	stops    []func() // in the order of stopping

	executors []subject.Instance // of this process

	listeners *listener.Service // nil: none are configured
	sandbox   *sandbox.Service  // nil: none
	ui        *uibridge.Service // nil: none

	failed chan error
	once   sync.Once
}

// patience is the time limit for the system's executors to announce themselves.
const patience = 30 * time.Second

// Start starts a system. When it returns, the system accepts inputs, and its own
// provider and tools are known.
func Start(ctx context.Context, cfg Config) (*System, error) {
	if cfg.Slots <= 0 {
		cfg.Slots = 64
	}
	cfg.Workspace = cmp.Or(cfg.Workspace, filepath.Join(cfg.Data, "workspace"))
	cfg.Store = cmp.Or(cfg.Store, filepath.Join(cfg.Data, "view.db"))
	s := &System{cfg: cfg, log: cfg.Log, failed: make(chan error, 8)}
	if err := s.check(); err != nil {
		return nil, err
	}
	for _, dir := range []string{cfg.Data, cfg.Workspace} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("preparing the data directory: %w", err)
		}
	}
	if err := s.runnerConfig().CheckWorkspace(); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, explained(err, cfg.Data)
	}
	return s, nil
}

func (s *System) start(ctx context.Context) (err error) {
	if s.lock, err = lock(s.cfg.Data); err != nil {
		return err
	}
	if s.signals, err = signals.Start(ctx, signals.Config{
		Service: "skandha", Instance: nuid.Next(), Scraped: s.cfg.HTTP != "", Log: s.log,
	}); err != nil {
		return err
	}
	s.log = s.signals.Logger(s.log, "skandha")
	if err = os.Remove(filepath.Join(s.cfg.Data, bus.RunFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // it describes a system that was killed
	}
	if s.adapters = s.cfg.Models; s.adapters == nil {
		if s.adapters, s.about, err = provider.Select(ctx, s.providerConfig(), os.Getenv); err != nil {
			return err // before anything runs
		}
	}
	if err = s.startBus(ctx); err != nil {
		return err
	}
	if s.store, err = open.Store(ctx, s.cfg.Store, s.log); err != nil {
		return fmt.Errorf("opening the view: %w", err)
	}
	cfg, err := core.ReadConfig(s.cfg.ConfigFile)
	if err != nil {
		return err
	}
	cfg.GuidesDir = GuidesDir(cfg, s.cfg.Data)
	cfg.Retention.Archive = cmp.Or(cfg.Retention.Archive, filepath.Join(s.cfg.Data, "archive"))
	streams, err := cfg.BuildStreams()
	if err != nil {
		return err
	}
	b, err := s.Connect(ctx, "core")
	if err != nil {
		return err
	}
	if s.memory, err = memories.Beside(ctx, s.cfg.Memory, s.cfg.Store, b, s.log); err != nil {
		return err
	}
	if err := b.EnsureStreams(ctx, streams); err != nil {
		return fmt.Errorf("preparing the log: %w", err)
	}
	if err := s.startRunner(ctx); err != nil {
		return err
	}
	if err := s.startSandbox(ctx); err != nil {
		return fmt.Errorf("starting the sandbox: %w", err)
	}
	if err := s.startProvider(ctx, cfg.Agents); err != nil {
		return err
	}
	if err := s.startCore(ctx, b, cfg); err != nil {
		return err
	}
	if err := s.startListeners(ctx); err != nil {
		return err
	}
	if err := s.startUI(ctx); err != nil {
		return err
	}
	s.signals.Counters(httpd.Process)
	s.signals.Counters(s.metrics)
	if s.cfg.HTTP != "" {
		s.background("http", nil, func(ctx context.Context) error {
			return httpd.Serve(ctx, httpd.Config{
				Addr: s.cfg.HTTP, Ready: s.ready, Scraped: s.signals.Handler(), Log: s.log,
			})
		})
	}
	return writeRun(s.cfg.Data, Run{PID: os.Getpid(), URL: s.srv.ClientURL(), Token: s.operator, HTTP: s.cfg.HTTP})
}

// startBus starts the bus with its previous address and token, unless the
// configuration says otherwise.
func (s *System) startBus(ctx context.Context) error {
	was, err := readKept(s.cfg.Data)
	if err != nil {
		return err
	}
	keep := was
	server, err := s.login(&keep)
	if err != nil {
		return err
	}
	addr := s.cfg.NATS
	if addr == "" {
		addr = was.Address
		if addr == "" || !free(ctx, addr) {
			addr = "127.0.0.1:-1"
		}
	}
	server.StoreDir, server.Sync, server.Addr = filepath.Join(s.cfg.Data, busDir), natsserver.Sync(s.cfg.Sync), addr
	server.Heal, server.Logger = true, s.log
	if s.srv, err = natsserver.Start(server); err != nil {
		return fmt.Errorf("starting the bus: %w", err)
	}
	if err := s.startDevices(); err != nil {
		return err
	}
	if s.cfg.NATS == "" {
		keep.Address = strings.TrimPrefix(s.srv.ClientURL(), "nats://")
		if was.Address != "" && was.Address != keep.Address {
			s.log.Warn("the port of the bus is taken; restart programs with a fixed SKANDHA_NATS",
				"was", was.Address, "now", keep.Address)
		}
	}
	if keep == was {
		return nil
	}
	if err := writeJSON(s.cfg.Data, busFile, keep); err != nil {
		return fmt.Errorf("saving the address of the bus: %w", err)
	}
	return nil
}

func newToken() string {
	var b [18]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// Connect opens an in-process connection to the system's bus: as the service of that name, or, if
// there is no such service, as the program that runs the system, which may do everything.
func (s *System) Connect(ctx context.Context, name string) (*journal.Journal, error) {
	cfg := bus.Config{InProcess: s.srv, Token: s.cfg.Token, Name: name, Logger: s.log}
	if s.trust != nil {
		var err error
		if cfg.Credentials, err = s.credentials(name); err != nil {
			return nil, fmt.Errorf("connecting %s: %w", name, err)
		}
	}
	b, err := journal.Connect(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting %s: %w", name, err)
	}
	return b, nil
}

// background runs a service until Stop; b is drained after it.
func (s *System) background(name string, b *journal.Journal, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			s.log.Error("service failed", "service", name, "error", err)
			s.failed <- fmt.Errorf("%s: %w", name, err)
		}
	}()
	s.stops = append(s.stops, func() {
		cancel()
		<-done
		if b != nil {
			b.Close()
		}
	})
}

func (s *System) startCore(ctx context.Context, b *journal.Journal, cfg core.Config) error {
	who, err := s.identities(b)
	if err != nil {
		return err
	}
	c, err := core.New(cfg, core.Options{Version: buildinfo.String(), Drain: 5 * time.Second, Schedules: true, Traces: s.signals.On(), Settle: s.cfg.Settle}, core.Deps{
		Bus: b, Store: s.store, Index: s.memory, Log: s.log.With("service", "core"), Identities: who,
	})
	if err != nil {
		return err
	}
	s.core = c
	s.background("core", b, c.Run)
	if err := c.AwaitReady(ctx); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.AwaitExecutors(wait, s.executors...)
}

// GuidesDir returns the directory with guides as Markdown files: that of the configuration, or
// guides in the data directory.
func GuidesDir(c core.Config, data string) string {
	return cmp.Or(c.GuidesDir, filepath.Join(data, "guides"))
}

// StateDir is where tools and listeners of a system record how far what they send got, and where MCP servers
// have their homes.
func StateDir(data string) string { return filepath.Join(data, "attempts") }

func (s *System) attempts() string { return StateDir(s.cfg.Data) }

func (s *System) runnerConfig() toolrunner.Config {
	protect := []string{s.cfg.Data}
	for _, secret := range []string{bus.RunFile, busFile, keysFile, mqttFile, access.TokenFile} { // also under other names
		protect = append(protect, filepath.Join(s.cfg.Data, secret))
	}
	if s.cfg.Sandbox != nil && s.cfg.Sandbox.Dir != "" {
		protect = append(protect, s.cfg.Sandbox.Dir)
	}
	if c, err := core.ReadConfig(s.cfg.ConfigFile); err == nil { // else check has reported it
		protect = append(protect, GuidesDir(c, s.cfg.Data))
	}
	return toolrunner.Config{
		File: s.cfg.ConfigFile, StateDir: s.attempts(), Protected: protect, Files: s.cfg.Files,
		WorkspaceDir: s.cfg.Workspace, Slots: s.cfg.Slots, HTTP: s.cfg.Requests, Web: s.cfg.Web, NotesPlugin: s.cfg.NotesPlugin,
		SkillsDir: filepath.Join(s.cfg.Data, "skills"), MCPFile: filepath.Join(s.cfg.Data, mcp.AddedFile), DrainTimeout: time.Second,
	}
}

func (s *System) startRunner(ctx context.Context) error {
	b, err := s.Connect(ctx, "toolrunner")
	if err != nil {
		return err
	}
	cfg := s.runnerConfig()
	if cfg.MQTT, err = mqttclient.ReadConfig(s.cfg.ConfigFile); err != nil {
		return err
	}
	if cfg.MQTT, err = s.brokers(cfg.MQTT); err != nil {
		return err
	}
	s.executors = append(s.executors, b.Instance())
	s.background("toolrunner", b, func(ctx context.Context) error {
		return toolrunner.Run(ctx, cfg, toolrunner.Deps{Bus: b, Logger: s.log.With("service", "toolrunner")})
	})
	return nil
}

func (s *System) providerConfig() provider.Config {
	return provider.Config{
		Provider: s.cfg.Provider, Model: s.cfg.Model, BaseURL: s.cfg.BaseURL, OfflineRules: s.cfg.OfflineRules,
		Embedder: s.cfg.Embedder, Transcriber: s.cfg.Transcriber, Speaker: s.cfg.Speaker, Slots: s.cfg.Slots,
		DrainTimeout: time.Second,
	}
}

func (s *System) startProvider(ctx context.Context, agents map[string]core.AgentConfig) error {
	cfg := s.providerConfig()
	var err error
	if cfg.Settings, err = provider.ReadSettings(s.cfg.ConfigFile); err != nil {
		return err
	}
	log := s.log.With("service", "provider")
	deps := provider.Deps{Logger: log}
	if err := deps.Select(cfg, os.Getenv); err != nil {
		return err
	}
	b, err := s.Connect(ctx, "provider")
	if err != nil {
		return err
	}
	deps.Bus = b
	s.warnOfProviders(agents, s.adapters)
	s.executors = append(s.executors, b.Instance())
	s.background("provider", b, func(ctx context.Context) error {
		return provider.Serve(ctx, cfg, s.adapters, deps)
	})
	return nil
}

// About returns one line with the provider in use and the reason.
func (s *System) About() string { return s.about }

// RestartBus shuts the bus down and starts it again after the pause, on the same
// address and log; everything that is connected loses its connection.
func (s *System) RestartBus(pause time.Duration) error { return s.srv.Restart(pause) }

// Core is the system's core.
func (s *System) Core() *shell.Core { return s.core }

// Failed returns a channel that receives the error of a service that ended by itself.
func (s *System) Failed() <-chan error { return s.failed }

func (s *System) ready() error {
	if s.core == nil {
		return errors.New("core is not ready")
	}
	if err := s.core.Health(); err != nil {
		return err
	}
	if s.listeners != nil {
		if err := s.listeners.Ready(); err != nil {
			return err
		}
	}
	if s.ui != nil {
		return s.ui.Ready()
	}
	return nil
}

func (s *System) metrics() map[string]int64 {
	all := s.core.Counters()
	if s.listeners != nil {
		maps.Copy(all, s.listeners.Counters())
	}
	if s.sandbox != nil {
		maps.Copy(all, s.sandbox.Counters())
	}
	if s.ui != nil {
		maps.Copy(all, s.ui.Counters())
	}
	return all
}

// Stop stops all services in order: the UI bridge, listeners and core first, so that running work is
// finished and recorded; the bus last.
func (s *System) Stop() {
	s.once.Do(func() {
		for i := len(s.stops) - 1; i >= 0; i-- {
			s.stops[i]()
		}
		if s.store != nil {
			if err := s.store.Close(); err != nil {
				s.log.Warn("closing the view", "error", err)
			}
		}
		if s.memory != nil {
			if err := s.memory.Close(); err != nil {
				s.log.Warn("closing the index of memories", "error", err)
			}
		}
		if s.devices != nil {
			s.devices.Shutdown()
		}
		if s.srv != nil {
			s.srv.Shutdown()
		}
		if s.lock != nil {
			_ = os.Remove(filepath.Join(s.cfg.Data, bus.RunFile)) // stale, as the lock shows
			_ = s.lock.Close()
		}
		if err := s.signals.Stop(); err != nil {
			s.cfg.Log.Warn("the last telemetry was not delivered", "error", err)
		}
	})
}
