package selection

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"skandha.dev/services/sandbox/bwrap"
	"skandha.dev/services/sandbox/docker"
	"skandha.dev/services/sandbox/driver"
)

// The values of Config.Driver.
const (
	Auto   = "auto"
	Docker = "docker"
	Bwrap  = "bwrap"
	None   = "none"
)

// Config selects a driver.
type Config struct {
	// Driver is auto (default), docker, bwrap or none.
	Driver string
	// Image, Runtime, Owner and Host are for Docker: see docker.Config. Empty: its defaults.
	Image, Runtime, Owner, Host string
	// Dir is where bubblewrap keeps package sets and the files its sandboxes need. It is
	// created if it does not exist. Empty: a directory in the user's cache, or in
	// /var/cache for root.
	Dir string
	// Untrusted reports that tenants who do not trust each other share the service: drivers
	// that do not isolate strongly enough are refused.
	Untrusted bool
	// AcceptWeaker accepts them anyway.
	AcceptWeaker bool
	// Instance is the service's instance id, for people who inspect containers.
	Instance string
	Log      *slog.Logger
}

// Validate reports every invalid field by name.
func (c Config) Validate() error {
	var errs []error
	if want := []string{"", Auto, Docker, Bwrap, None}; !slices.Contains(want, c.Driver) {
		errs = append(errs, fmt.Errorf("driver is %q, want %s, %s, %s or %s", c.Driver, Auto, Docker, Bwrap, None))
	}
	if c.Driver == Bwrap && (c.Image != "" || c.Runtime != "" && c.Runtime != docker.Auto) {
		errs = append(errs, fmt.Errorf("image and runtime apply to docker only, but driver is %s", Bwrap))
	}
	return errors.Join(errs...)
}

// New returns the configured driver. It checks no driver yet: the first use does, so that
// startup costs nothing.
func New(cfg Config) (*Driver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("selecting a sandbox driver: %w", err)
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	known := []candidate{
		{Docker, func() (driver.Driver, error) {
			return docker.New(docker.Config{
				Host: cfg.Host, Image: cfg.Image, Runtime: cfg.Runtime, Owner: cfg.Owner, Instance: cfg.Instance, Log: cfg.Log,
			})
		}},
		{Bwrap, func() (driver.Driver, error) {
			dir, err := cfg.dir()
			if err != nil {
				return nil, err
			}
			return bwrap.New(bwrap.Config{
				Dir: dir, ForUntrusted: cfg.Untrusted && cfg.Driver == Bwrap, AcceptWeaker: cfg.AcceptWeaker, Log: cfg.Log,
			})
		}},
	}
	name := cmp.Or(cfg.Driver, Auto)
	d := &Driver{
		untrusted: cfg.Untrusted && !cfg.AcceptWeaker, log: cfg.Log, named: name != Auto, looking: make(chan struct{}, 1),
	}
	for _, c := range known {
		if name != Auto && name != c.name {
			continue
		}
		made, err := c.make()
		if err != nil && d.named {
			return nil, fmt.Errorf("sandbox driver %s: %w", c.name, err)
		}
		if err != nil { // another one may work
			d.refused = append(d.refused, fmt.Sprintf("%s: %v", c.name, err))
			continue
		}
		d.choices = append(d.choices, choice{c.name, made})
	}
	return d, nil
}

// dir returns the directory for bubblewrap's persistent files.
func (c Config) dir() (string, error) {
	if c.Dir != "" {
		return c.Dir, nil
	}
	if os.Geteuid() == 0 { // sandboxes run under separate users, who cannot read root's home
		return "/var/cache/skandha/sandbox", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no directory for package sets; set SKANDHA_SANDBOX_DIR: %w", err)
	}
	return filepath.Join(cache, "skandha", "sandbox"), nil
}

type candidate struct {
	name string
	make func() (driver.Driver, error)
}
