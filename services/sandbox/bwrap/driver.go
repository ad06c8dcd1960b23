//go:build linux

package bwrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skandha.dev/services/internal/seccomp"
	"skandha.dev/services/sandbox/driver"
)

// Driver runs sandboxes with bubblewrap. It implements driver.Driver.
type Driver struct {
	cfg     Config
	log     *slog.Logger
	root    bool // sandboxes get separate user ids
	filter  []byte
	null    *os.File // for standard error
	lease   *lease
	starter *starter
	uids    *uids
	sets    *sets

	looking sync.Mutex // held while the host is examined

	installs sync.WaitGroup // each added under mu, before closed

	mu        sync.Mutex
	host      *host // nil: unknown, or not usable
	sandboxes map[*sandbox]struct{}
	stale     []*group // cgroups that could not be removed
	closed    bool
}

var _ driver.Driver = (*Driver)(nil)

var (
	goodName = regexp.MustCompile(`^[a-z0-9-]{1,48}$`)
	goodSet  = regexp.MustCompile(`^[a-f0-9]{64}$`)

	errClosed = errors.New("the driver is closed")
)

// closeWithin bounds the end of all sandboxes.
const closeWithin = 10 * time.Second

// New returns a driver and takes its lease in cfg.Dir. Report tells whether sandboxes work
// here.
func New(cfg Config) (*Driver, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	filter, err := seccomp.BPF()
	if err != nil {
		return nil, unavailable("bwrap: %w", err)
	}
	root := os.Geteuid() == 0
	for _, dir := range []string{cfg.Dir, filepath.Join(cfg.Dir, "sets")} {
		// Sandboxes of other users read the sets; secrets must not be here.
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // read by the sandboxes' users
			return nil, fmt.Errorf("bwrap: creating dir: %w", err)
		}
	}
	// Sandboxes must not inherit files that the service inherited; Go's are close-on-exec.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		closeOnExec()
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("bwrap: %w", err)
	}
	l, err := takeLease(filepath.Join(cfg.Dir, "leases"))
	if err != nil {
		return nil, fmt.Errorf("bwrap: %w", errors.Join(err, null.Close()))
	}
	return &Driver{
		cfg: cfg, log: cfg.Log, root: root, filter: filter, null: null, lease: l, starter: newStarter(),
		uids: newUIDs(cfg.FirstUID, cfg.UIDs), sets: newSets(filepath.Join(cfg.Dir, "sets"), l.instance),
		sandboxes: map[*sandbox]struct{}{},
	}, nil
}

// closeOnExec is for kernels before 5.11.
func closeOnExec() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // without /proc nothing works, and Report fails
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, spec driver.Spec) (driver.Sandbox, error) {
	if spec.Limits == (driver.Limits{}) {
		spec.Limits = driver.DefaultLimits()
	}
	if err := check(spec); err != nil {
		return nil, fmt.Errorf("starting a sandbox: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("starting sandbox %s: %w", spec.Name, err)
	}
	h, err := d.look(ctx)
	if err != nil {
		return nil, err
	}
	o := launch{name: spec.Name, args: spec.Args, limits: spec.Limits}
	if spec.Set != "" {
		if h.noSets != nil {
			return nil, fmt.Errorf("starting sandbox %s: package set %s: %w", spec.Name, spec.Set, h.noSets)
		}
		if o.release, err = d.sets.use(spec.Set); err != nil {
			return nil, fmt.Errorf("starting sandbox %s: package set %s: %w", spec.Name, spec.Set, err)
		}
		o.mounts = []string{"--ro-bind", d.sets.path(spec.Set), driver.Packages}
	} else {
		o.mounts = []string{"--dir", driver.Packages}
	}
	b, err := d.launch(h, o)
	if err != nil {
		return nil, fmt.Errorf("starting sandbox %s: %w", spec.Name, err)
	}
	return b, nil
}

func check(spec driver.Spec) error {
	switch {
	case !goodName.MatchString(spec.Name):
		return fmt.Errorf("name %q: want %s", spec.Name, goodName)
	case len(spec.Args) == 0:
		return errors.New("args are empty: the interpreter would read a program from the pipe")
	case spec.Set != "" && !goodSet.MatchString(spec.Set):
		return fmt.Errorf("set %q: want %s", spec.Set, goodSet)
	}
	return spec.Limits.Validate()
}

// add keeps a sandbox until it has ended.
func (d *Driver) add(b *sandbox) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	d.sandboxes[b] = struct{}{}
	return nil
}

// forget removes a sandbox that has ended completely, or whose cgroup cannot be removed.
func (d *Driver) forget(b *sandbox, left *group) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sandboxes, b)
	if left != nil {
		d.stale = append(d.stale, left)
	}
}

// beginInstall delays the return of Close until done is called.
func (d *Driver) beginInstall() (done func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	d.installs.Add(1)
	return d.installs.Done, nil
}

// awaitInstalls waits until installations, whose sandboxes have ended, have removed their
// incomplete sets.
func (d *Driver) awaitInstalls(ctx context.Context) {
	over := make(chan struct{})
	go func() {
		d.installs.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// leaves reports whether this service leaves something for a reaper.
func (d *Driver) leaves() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	half, err := d.sets.half(d.lease.instance)
	return err != nil || len(half)+len(d.sandboxes)+len(d.stale) > 0
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	all := slices.Collect(maps.Keys(d.sandboxes))
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, b := range all {
		wg.Go(func() { errs[i] = b.Destroy(ctx) })
	}
	wg.Wait()
	d.awaitInstalls(ctx)
	// The thread ends last: the kernel then kills everything it started that still runs.
	d.starter.close()
	errs = append(errs, d.null.Close(), d.lease.release(d.leaves()))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("closing the bwrap driver: %w", err)
	}
	return nil
}
