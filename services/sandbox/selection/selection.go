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

// The drivers that can be named.
const (
	Auto   = "auto"
	Docker = "docker"
	Bwrap  = "bwrap"
	None   = "none"
)

// Config says which driver is wanted.
type Config struct {
	// Driver is auto (default), docker, bwrap or none.
	Driver string
	// Image, Runtime, Owner and Host are Docker's: see docker.Config. Empty: its defaults.
	Image, Runtime, Owner, Host string
	// Dir is where bubblewrap keeps package sets and what its sandboxes need. It is made
	// if it does not exist. Empty: a directory of the user's own.
	Dir string
	// Untrusted says that tenants share the service who do not trust each other: drivers
	// that are not strong enough for that are refused.
	Untrusted bool
	// AcceptWeaker takes them all the same.
	AcceptWeaker bool
	// Instance is the service's, for people who look at containers.
	Instance string
	Log      *slog.Logger
}

// Validate reports every field that is wrong; each error names its field.
func (c Config) Validate() error {
	var errs []error
	if want := []string{"", Auto, Docker, Bwrap, None}; !slices.Contains(want, c.Driver) {
		errs = append(errs, fmt.Errorf("driver is %q, want %s, %s, %s or %s", c.Driver, Auto, Docker, Bwrap, None))
	}
	if c.Driver == Bwrap && (c.Image != "" || c.Runtime != "" && c.Runtime != docker.Auto) {
		errs = append(errs, fmt.Errorf("image and runtime are Docker's, but driver is %s", Bwrap))
	}
	return errors.Join(errs...)
}

// New makes the driver that the configuration wants. Nothing is looked for yet: the
// first use of the driver does, so that a start costs nothing.
func New(cfg Config) (*Driver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("selecting a sandbox driver: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	known := []candidate{
		{Docker, func() (driver.Driver, error) {
			return docker.New(docker.Config{Host: cfg.Host, Image: cfg.Image, Runtime: cfg.Runtime, Owner: cfg.Owner, Instance: cfg.Instance, Log: cfg.Log})
		}},
		{Bwrap, func() (driver.Driver, error) {
			dir, err := cfg.dir()
			if err != nil {
				return nil, err
			}
			return bwrap.New(bwrap.Config{Dir: dir, ForUntrusted: cfg.Untrusted && cfg.Driver == Bwrap, AcceptWeaker: cfg.AcceptWeaker, Log: cfg.Log})
		}},
	}
	name := cmp.Or(cfg.Driver, Auto)
	d := &Driver{untrusted: cfg.Untrusted && !cfg.AcceptWeaker, log: cfg.Log, named: name != Auto, looking: make(chan struct{}, 1)}
	for _, c := range known {
		if name != Auto && name != c.name {
			continue
		}
		made, err := c.make()
		if err != nil && d.named {
			return nil, fmt.Errorf("sandbox driver %s: %w", c.name, err)
		}
		if err != nil { // there may be another
			d.refused = append(d.refused, fmt.Sprintf("%s: %v", c.name, err))
			continue
		}
		d.choices = append(d.choices, choice{c.name, made})
	}
	return d, nil
}

// dir is where bubblewrap keeps what lasts.
func (c Config) dir() (string, error) {
	if c.Dir != "" {
		return c.Dir, nil
	}
	if os.Geteuid() == 0 { // sandboxes run under users of their own, who see nothing of root's home
		return "/var/cache/skandha/sandbox", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no directory for package sets is known, name one (SKANDHA_SANDBOX_DIR): %w", err)
	}
	return filepath.Join(cache, "skandha", "sandbox"), nil
}

type candidate struct {
	name string
	make func() (driver.Driver, error)
}
