package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/driver"
)

// Config configures a Proxy. Image, Runtime, Owner and Network are as in docker.Config, whose defaults they
// have, and must equal the driver's.
type Config struct {
	// Engine is the engine's address: "unix:///path". Default: unix:///var/run/docker.sock.
	Engine  string
	Image   string
	Runtime string
	Owner   string
	Network string
	// Limits are the largest limits that a sandbox may have. Default: driver.DefaultLimits.
	Limits driver.Limits
	// Install checks the arguments of package installations; nil: any.
	Install func(args []string) error
	// Containers and Volumes bound how many of the owner exist at the engine.
	Containers int `default:"256" min:"2"`
	Volumes    int `default:"1024" min:"2"`
	// Connections bounds the clients' connections. Each sandbox has one.
	Connections int `default:"1024" min:"4"`
	// HeaderTimeout bounds how long the headers of a request may take to arrive.
	HeaderTimeout time.Duration `default:"5s" min:"1ms"`
	// Drain is how long sandboxes may stay attached on shutdown.
	Drain time.Duration `default:"20s" min:"0"`
	Log   *slog.Logger
}

// images are names without escapes in a path.
var images = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]*(/[A-Za-z0-9][A-Za-z0-9._:@-]*)*$`)

const scheme = "unix://"

func (c Config) withDefaults() Config {
	c.Engine = cmp.Or(c.Engine, scheme+"/var/run/docker.sock")
	c.Image = cmp.Or(c.Image, form.DefaultImage)
	c.Runtime = cmp.Or(c.Runtime, form.Auto)
	c.Owner = cmp.Or(c.Owner, form.DefaultOwner)
	c.Network = cmp.Or(c.Network, form.DefaultNetwork)
	if c.Limits == (driver.Limits{}) {
		c.Limits = driver.DefaultLimits()
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return bounds.Filled(c)
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{bounds.Check("", c), c.Limits.Validate()}
	if !strings.HasPrefix(c.Engine, scheme+"/") {
		errs = append(errs, fmt.Errorf("engine is %q, want the engine's socket, such as unix:///var/run/docker.sock",
			c.Engine))
	}
	if !images.MatchString(c.Image) || strings.Contains(c.Image, "..") {
		errs = append(errs, fmt.Errorf("image is %q, want %s", c.Image, images))
	}
	if !form.Owners.MatchString(c.Owner) {
		errs = append(errs, fmt.Errorf("owner is %q, want %s", c.Owner, form.Owners))
	}
	return errors.Join(errs...)
}

func (c Config) bounds() form.Bounds {
	return form.Bounds{Owner: c.Owner, Network: c.Network, Limits: c.Limits, Install: c.Install}
}
