package docker

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/docker/docker/client"
	"go.opentelemetry.io/otel/trace/noop"

	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/driver"
)

// Values of Config.Runtime, besides any other runtime that the engine offers.
const (
	Auto  = form.Auto
	Runsc = form.Runsc
	Runc  = form.Runc
)

// Config configures a Driver.
type Config struct {
	// Host is the engine's address, e.g. "unix:///var/run/docker.sock"; empty: the one in
	// the environment (DOCKER_HOST).
	Host string
	// Image is a name, "name@sha256:…" or "sha256:…". It is resolved when the driver
	// connects to the engine, and sandboxes use the image resolved then. It is never
	// pulled. Default: the one that `make sandbox-image` builds.
	Image string
	// Runtime is a name that the engine offers, or Auto, the default.
	Runtime string
	// Owner is the label that marks our containers and volumes, [a-z0-9-]{1,32}; services
	// with the same owner reap for each other. Default: "skandha".
	Owner string
	// Instance is the service's instance id, for people.
	Instance string
	// Network is the engine's network for installing packages. Default: "bridge".
	Network string
	// Log receives problems that are not returned as errors; nil: the default logger.
	Log *slog.Logger
}

// Driver runs sandboxes as containers. It implements driver.Driver.
type Driver struct {
	cfg Config
	cli *client.Client
	log *slog.Logger

	linking chan struct{} // held while a link is created; a lock whose wait a context can end

	mu     sync.Mutex
	link   *link                // to the engine; nil: none yet, or it has ended
	making map[string]bool      // volumes that Install is filling
	used   map[string]time.Time // when a sandbox of ours last got each set
	closed bool
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver. It does not connect to the engine; Report does.
func New(cfg Config) (*Driver, error) {
	set := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	set(&cfg.Image, form.DefaultImage)
	set(&cfg.Runtime, Auto)
	set(&cfg.Owner, form.DefaultOwner)
	set(&cfg.Network, form.DefaultNetwork)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if !form.Owners.MatchString(cfg.Owner) {
		return nil, fmt.Errorf("owner %q: want %s", cfg.Owner, form.Owners)
	}
	options := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if cfg.Host != "" {
		options = append(options, client.WithHost(cfg.Host))
	}
	// Otherwise each of its requests would be a span, most of them a trace with nothing else.
	options = append(options, client.WithTraceProvider(noop.NewTracerProvider()))
	cli, err := client.NewClientWithOpts(options...)
	if err != nil {
		return nil, fmt.Errorf("the Docker engine's address: %w", err)
	}
	return &Driver{
		cfg: cfg, cli: cli, log: cfg.Log.With("driver", "docker"), linking: make(chan struct{}, 1),
		making: map[string]bool{}, used: map[string]time.Time{},
	}, nil
}

var errClosed = errors.New("the driver is closed")

// Close destroys every sandbox that the driver has started, and its lease.
func (d *Driver) Close() error {
	d.linking <- struct{}{} // wait for a link that is being created
	defer func() { <-d.linking }()
	d.mu.Lock()
	l := d.link
	d.link, d.closed = nil, true
	d.mu.Unlock()
	var err error
	if l != nil {
		err = l.close()
	}
	return errors.Join(err, d.cli.Close())
}
