// Package drivertest has a driver for the tests of packages that use drivers: sandboxes are
// real processes with the agent in them, in separate namespaces by bubblewrap's command,
// without limits. It can be made to fail.
package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skandha.dev/services/sandbox/driver"
)

// Driver starts sandboxes for a test.
type Driver struct {
	// BeforeStart is called before each start; its error becomes the start's. It may block.
	BeforeStart func(ctx context.Context, spec driver.Spec) error
	// Reports is the error of Report; nil: the driver works.
	Reports error

	mu        sync.Mutex
	sandboxes map[string]*Sandbox
	sets      []driver.Set
	reaps     atomic.Int64
	total     atomic.Int64
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver, or skips the test where bubblewrap or Python is missing. All its
// sandboxes are destroyed when the test ends.
func New(t testing.TB) *Driver {
	t.Helper()
	for _, need := range []string{"bwrap", python} {
		if _, err := exec.LookPath(need); err != nil {
			if os.Getenv("SKANDHA_REQUIRE") == "all" {
				t.Fatalf("%s is needed: %v", need, err)
			}
			t.Skipf("SKIPPED: %s is needed: %v", need, err)
		}
	}
	d := &Driver{sandboxes: map[string]*Sandbox{}}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the driver: %v", err)
		}
	})
	return d
}

const python = "/usr/bin/python3"

// Sandbox is a sandbox of a Driver.
type Sandbox struct {
	io.Reader
	io.Writer
	name string
	set  string
	d    *Driver
	cmd  *exec.Cmd
	in   io.Closer
	done chan struct{}

	mu  sync.Mutex
	why error
	err error
}

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, spec driver.Spec) (driver.Sandbox, error) {
	if d.BeforeStart != nil {
		if err := d.BeforeStart(ctx, spec); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if spec.Set != "" && !slices.ContainsFunc(d.sets, func(s driver.Set) bool { return s.ID == spec.Set }) {
		return nil, fmt.Errorf("%w: %s", driver.ErrNoSet, spec.Set)
	}
	args := []string{
		"--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--ro-bind", "/usr", "/usr", "--symlink",
		"usr/bin", "/bin",
		"--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs",
		driver.Workspace,
		"--tmpfs", driver.Tmp, "--chdir", driver.Workspace, "--as-pid-1",
	}
	for _, e := range driver.Environment() {
		name, value, _ := cutEnv(e)
		args = append(args, "--setenv", name, value)
	}
	args = append(append(args, python), spec.Args...)
	cmd := exec.Command("bwrap", args...) //nolint:noctx // it outlives the call
	b := &Sandbox{name: spec.Name, set: spec.Set, d: d, cmd: cmd, done: make(chan struct{})}
	stdin, err := b.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, child, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b.Reader, b.Writer, b.in, b.cmd.Stdout = out, stdin, stdin, child
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.cmd.Start(); err != nil {
		return nil, errors.Join(err, out.Close(), child.Close())
	}
	_ = child.Close() // the child has it
	d.sandboxes[spec.Name] = b
	d.total.Add(1)
	go b.wait(out)
	return b, nil
}

func cutEnv(e string) (name, value string, ok bool) {
	for i := range e {
		if e[i] == '=' {
			return e[:i], e[i+1:], true
		}
	}
	return e, "", false
}

func (b *Sandbox) wait(out *os.File) {
	err := b.cmd.Wait()
	if err == nil {
		err = errors.New("exit status 0")
	}
	b.mu.Lock()
	if b.err = b.why; b.err == nil {
		b.err = fmt.Errorf("its first process has ended: %w", err)
	}
	b.mu.Unlock()
	b.d.mu.Lock()
	delete(b.d.sandboxes, b.name)
	b.d.mu.Unlock()
	close(b.done)
	_ = out.Close() // readers see the end
}

// Name implements driver.Sandbox.
func (b *Sandbox) Name() string { return b.name }

// Done implements driver.Sandbox.
func (b *Sandbox) Done() <-chan struct{} { return b.done }

// Err implements driver.Sandbox.
func (b *Sandbox) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// End ends the sandbox as if it had ended by itself, for that reason.
func (b *Sandbox) End(why error) {
	b.mu.Lock()
	if b.why == nil {
		b.why = why
	}
	b.mu.Unlock()
	_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL) // fails if it has ended
}

// Destroy implements driver.Sandbox.
func (b *Sandbox) Destroy(ctx context.Context) error {
	b.End(driver.ErrDestroyed)
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Sandboxes returns the running sandboxes.
func (d *Driver) Sandboxes() (out []*Sandbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.sandboxes {
		out = append(out, b)
	}
	return out
}

// Started returns how many sandboxes were started in total.
func (d *Driver) Started() int { return int(d.total.Load()) }

// Reaps returns how often Reap was called.
func (d *Driver) Reaps() int { return int(d.reaps.Load()) }

// Report implements driver.Driver.
func (d *Driver) Report(context.Context) (driver.Report, error) {
	return driver.Report{
		Driver: "drivertest", Isolation: "none to speak of", Python: "3", Platform: "drivertest",
	}, d.Reports
}

// Install implements driver.Driver. The set is only a name.
func (d *Driver) Install(_ context.Context, in driver.Install) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if in.Output != nil {
		in.Output("installing " + in.ID)
	}
	d.sets = append(d.sets, driver.Set{ID: in.ID, Used: time.Now()})
	return nil
}

// Sets implements driver.Driver.
func (d *Driver) Sets(context.Context) ([]driver.Set, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.sets), nil
}

// RemoveSet implements driver.Driver.
func (d *Driver) RemoveSet(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sets = slices.DeleteFunc(d.sets, func(s driver.Set) bool { return s.ID == id })
	return nil
}

// Reap implements driver.Driver.
func (d *Driver) Reap(context.Context) (int, error) {
	d.reaps.Add(1)
	return 0, nil
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for _, b := range d.Sandboxes() {
		errs = append(errs, b.Destroy(ctx))
	}
	return errors.Join(errs...)
}
