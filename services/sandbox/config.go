package sandbox

import (
	"errors"
	"fmt"
	"time"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/sandbox/driver"
)

// Config configures a sandbox service. The zero value selects the defaults.
type Config struct {
	// Slots is how many calls run, or wait for a sandbox, at once. The default is twice
	// the number of sandboxes, so that calls that wait for their share do not keep others
	// from theirs. Four times as many may wait for a slot.
	Slots int `default:"64" min:"1" max:"4096"`
	// Warm is how many clean sandboxes are kept ready; default 2. Negative: none, so that
	// each new session waits until its sandbox has started.
	Warm int `default:"2"`
	// Max is the maximum number of sandboxes, leased and warm; default 32.
	Max int `default:"32" min:"1" max:"4096"`
	// Idle is how long a session keeps an unused sandbox; default 15 min.
	Idle time.Duration `default:"15m" min:"1s"`
	// Limits of each sandbox; zero: driver.DefaultLimits.
	Limits driver.Limits
	// Keep bounds the files that are saved for a session, in bytes, so that they survive its sandbox; default
	// 256 MiB. Negative: none are.
	Keep int64 `default:"256 MiB"`
	// KeepFiles bounds their number, directories and links included.
	KeepFiles int `default:"20000" min:"1" max:"100000"`
	// KeepFor is how long they are kept after the session's last change of them; default 30 days.
	KeepFor time.Duration `default:"720h" min:"1h"`
	// FillAfter is the delay before the first warm sandbox is started; default none.
	FillAfter time.Duration `min:"0"`
	// DrainTimeout bounds the wait for running calls on shutdown; default 30 s.
	DrainTimeout time.Duration `default:"30s" min:"0"`
}

func (c Config) withDefaults() Config {
	c = bounds.Filled(c)
	c.Warm = max(c.Warm, 0)
	if c.Limits == (driver.Limits{}) {
		c.Limits = driver.DefaultLimits()
	}
	return c
}

// Validate reports every invalid field by name.
func (c Config) Validate() error {
	errs := []error{bounds.Check("", c)}
	if most := bounds.Filled(c).Max; c.Warm > most {
		errs = append(errs, fmt.Errorf("warm is %d, want at most max (%d)", c.Warm, most))
	}
	if c.Limits != (driver.Limits{}) {
		errs = append(errs, c.Limits.Validate())
	}
	return errors.Join(errs...)
}
