package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/sandbox/pool"
)

// The defaults.
const (
	DefaultSlots = 2 * pool.DefaultMax
	DefaultWarm  = 2
	DefaultIdle  = 15 * time.Minute
)

// Config configures a sandbox service. The zero value selects the defaults.
type Config struct {
	// Slots is how many calls run, or wait for a sandbox, at once. The default is 64, twice
	// the number of sandboxes, so that calls that wait for their share do not keep others
	// from theirs. Four times as many may wait for a slot.
	Slots int
	// Warm is how many clean sandboxes are kept ready; default 2. Negative: none, so that
	// each new session waits until its sandbox has started.
	Warm int
	// Max is the maximum number of sandboxes, leased and warm; default 32.
	Max int
	// Idle is how long a session keeps an unused sandbox; default 15 min.
	Idle time.Duration
	// Limits of each sandbox; zero: driver.DefaultLimits.
	Limits driver.Limits
	// FillAfter is the delay before the first warm sandbox is started; default none.
	FillAfter time.Duration
	// DrainTimeout bounds the wait for running calls on shutdown; default 30 s.
	DrainTimeout time.Duration
}

func (c Config) withDefaults() Config {
	c.Slots = cmp.Or(c.Slots, DefaultSlots)
	c.Warm = max(cmp.Or(c.Warm, DefaultWarm), 0)
	c.Max = cmp.Or(c.Max, pool.DefaultMax)
	c.Idle = cmp.Or(c.Idle, DefaultIdle)
	if c.Limits == (driver.Limits{}) {
		c.Limits = driver.DefaultLimits()
	}
	c.DrainTimeout = cmp.Or(c.DrainTimeout, engine.DefaultDrainTimeout)
	return c
}

// Validate reports every invalid field by name.
func (c Config) Validate() error {
	var errs []error
	if c.Slots < 0 || c.Slots > 4096 {
		errs = append(errs, fmt.Errorf("slots is %d, want 1 to 4096", c.Slots))
	}
	if c.Max < 0 || c.Max > 4096 {
		errs = append(errs, fmt.Errorf("max is %d, want 1 to 4096", c.Max))
	}
	if most := cmp.Or(c.Max, pool.DefaultMax); c.Warm > most {
		errs = append(errs, fmt.Errorf("warm is %d, want at most max (%d)", c.Warm, most))
	}
	if c.Idle < 0 || c.Idle > 0 && c.Idle < time.Second {
		errs = append(errs, fmt.Errorf("idle is %v, want 1s or more, or 0 for %v", c.Idle, DefaultIdle))
	}
	if c.FillAfter < 0 {
		errs = append(errs, fmt.Errorf("fill_after is %v, want 0 or more", c.FillAfter))
	}
	if c.DrainTimeout < 0 {
		errs = append(errs, fmt.Errorf("drain_timeout is %v, want 0 (default) or more", c.DrainTimeout))
	}
	if c.Limits != (driver.Limits{}) {
		errs = append(errs, c.Limits.Validate())
	}
	return errors.Join(errs...)
}
