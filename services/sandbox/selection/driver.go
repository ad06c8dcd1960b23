package selection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"skandha.dev/services/sandbox/driver"
)

const (
	// lookWithin bounds one check of a driver.
	lookWithin = 20 * time.Second
	// retryAfter is how long a failed selection is cached.
	retryAfter = 3 * time.Second
)

// Driver uses the first of several drivers that works here.
type Driver struct {
	choices   []choice // in order of preference
	refused   []string // drivers that the configuration does not allow, with the reasons
	untrusted bool
	named     bool // the configuration names a driver
	log       *slog.Logger

	looking chan struct{} // holds one element while drivers are checked

	mu     sync.Mutex
	chosen *choice
	passed []string // preferred drivers that do not work, with the reasons
	why    error    // why none is chosen
	looked time.Time
}

type choice struct {
	name string
	driver.Driver
}

var _ driver.Driver = (*Driver)(nil)

// pick returns the chosen driver, or selects one. A failed selection is cached for a short
// time.
func (d *Driver) pick(ctx context.Context) (*choice, error) {
	if c, err, known := d.known(); known {
		return c, err
	}
	select {
	case d.looking <- struct{}{}:
		defer func() { <-d.looking }()
	case <-ctx.Done():
		return nil, fmt.Errorf("looking for a sandbox driver: %w", ctx.Err())
	}
	if c, err, known := d.known(); known { // another call selected it meanwhile
		return c, err
	}
	reasons := slices.Clone(d.refused)
	for i := range d.choices {
		c := &d.choices[i]
		r, err := d.look(ctx, c)
		if err == nil {
			d.choose(c, r, reasons)
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("looking for a sandbox driver: %w", ctx.Err())
		}
		reasons = append(reasons, fmt.Sprintf("%s: %s", c.name, bare(err)))
	}
	level := slog.LevelWarn
	if len(d.choices)+len(d.refused) == 0 {
		level, reasons = slog.LevelInfo, []string{"the configuration disables sandboxes (driver none)"}
	}
	err := fmt.Errorf("%w: %s", driver.ErrUnavailable, strings.Join(reasons, "; "))
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.why == nil || d.why.Error() != err.Error() {
		d.log.Log(ctx, level, "no sandbox driver works; calls that need a sandbox fail", "why", strings.Join(reasons, "; "))
	}
	d.chosen, d.why, d.looked = nil, err, time.Now()
	return nil, err
}

func (d *Driver) known() (c *choice, err error, known bool) { //nolint:revive // three answers in the order of their use
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.chosen != nil {
		return d.chosen, nil, true
	}
	return nil, d.why, d.why != nil && time.Since(d.looked) < retryAfter
}

// look checks whether a driver works here and isolates strongly enough.
func (d *Driver) look(ctx context.Context, c *choice) (driver.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	r, err := c.Report(ctx)
	if err == nil && d.untrusted && !r.Untrusted {
		err = errors.New("it does not isolate strongly enough for tenants who do not trust each other " +
			"(SKANDHA_SANDBOX_UNTRUSTED is set)")
	}
	return r, err
}

func (d *Driver) choose(c *choice, r driver.Report, reasons []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.chosen, d.passed, d.why = c, reasons, nil
	d.log.Info("selected a sandbox driver", "driver", r.Driver, "version", r.Version, "python", r.Python,
		"not", strings.Join(reasons, "; "))
}

// Passed returns why drivers that precede the chosen one do not work.
func (d *Driver) Passed() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passed
}

// lost forgets a driver that can no longer create sandboxes.
func (d *Driver) lost(c *choice, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.chosen == c {
		d.log.Warn("the sandbox driver no longer works; selecting again", "driver", c.name, "error", err)
		d.chosen, d.why = nil, nil
	}
}

// use calls a driver; if that can no longer create sandboxes, the next one that works.
func use[T any](ctx context.Context, d *Driver, f func(driver.Driver) (T, error)) (T, error) {
	c, err := d.pick(ctx)
	if err != nil {
		var none T
		return none, err
	}
	v, err := f(c.Driver)
	if !errors.Is(err, driver.ErrUnavailable) {
		return v, err
	}
	d.lost(c, err)
	if c, err = d.pick(ctx); err != nil {
		return v, err
	}
	return f(c.Driver)
}

// bare returns an error's text without the prefix that the whole error begins with.
func bare(err error) string {
	return strings.TrimPrefix(err.Error(), driver.ErrUnavailable.Error()+": ")
}

// Report implements driver.Driver: it describes the chosen driver, or selects one first.
func (d *Driver) Report(ctx context.Context) (driver.Report, error) {
	return use(ctx, d, func(x driver.Driver) (driver.Report, error) { return x.Report(ctx) })
}

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, spec driver.Spec) (driver.Sandbox, error) {
	return use(ctx, d, func(x driver.Driver) (driver.Sandbox, error) { return x.Start(ctx, spec) })
}

// Install implements driver.Driver.
func (d *Driver) Install(ctx context.Context, in driver.Install) error {
	_, err := use(ctx, d, func(x driver.Driver) (struct{}, error) { return struct{}{}, x.Install(ctx, in) })
	return err
}

// Sets implements driver.Driver.
func (d *Driver) Sets(ctx context.Context) ([]driver.Set, error) {
	return use(ctx, d, func(x driver.Driver) ([]driver.Set, error) { return x.Sets(ctx) })
}

// RemoveSet implements driver.Driver.
func (d *Driver) RemoveSet(ctx context.Context, id string) error {
	_, err := use(ctx, d, func(x driver.Driver) (struct{}, error) { return struct{}{}, x.RemoveSet(ctx, id) })
	return err
}

// Reap implements driver.Driver. It reaps for every driver that may have left something,
// including those that are not chosen. Drivers that do not work here are ignored.
func (d *Driver) Reap(ctx context.Context) (int, error) {
	total := 0
	var errs []error
	for _, c := range d.choices {
		n, err := c.Reap(ctx)
		total += n
		if err != nil && !errors.Is(err, driver.ErrUnavailable) {
			errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return total, errors.Join(errs...)
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	var errs []error
	for _, c := range d.choices {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
