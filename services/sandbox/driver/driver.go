package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Where things are in every sandbox.
const (
	Workspace = "/workspace" // the session's files; the only place that lasts from call to call, beside Tmp
	Tmp       = "/tmp"
	Packages  = "/packages" // the package set of Spec.Packages, read-only
	// FontLists is where matplotlib's lists of fonts are, if there are any. Making one takes
	// longer than most plots; the agent shows matplotlib those that are there.
	FontLists = "/etc/matplotlib-cache"
	UID       = 65532 // of all that runs in a sandbox, unless the driver gives each one of its own
	GID       = 65532
	// FirstOwnUID is the least user id that a driver may give to one sandbox alone, so that
	// what the kernel counts by user is the sandbox's own.
	FirstOwnUID = 10000
)

// Environment is the whole environment of what runs in a sandbox.
func Environment() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + Workspace, "PWD=" + Workspace, "TMPDIR=" + Tmp, "LANG=C.UTF-8", "USER=sandbox", "LOGNAME=sandbox", "TZ=UTC",
		"PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1", "MPLBACKEND=Agg", "MPLCONFIGDIR=" + Tmp + "/.matplotlib",
	}
}

// Driver isolates. Its methods may be used at the same time.
type Driver interface {
	// Report says what the driver is and what it cannot stop. It fails, with what
	// to install or to start, when sandboxes cannot be made here.
	Report(ctx context.Context) (Report, error)
	// Start makes a sandbox. It returns when the sandbox's first process has been started;
	// whether it works is seen on the pipe.
	Start(ctx context.Context, spec Spec) (Sandbox, error)
	// Install makes a package set, in a sandbox that has a network and nothing else. A
	// set is there whole or not at all. Making one that is there does nothing.
	Install(ctx context.Context, in Install) error
	// Sets lists the package sets that are there.
	Sets(ctx context.Context) ([]Set, error)
	// RemoveSet removes a package set; it fails while a sandbox uses it.
	RemoveSet(ctx context.Context, id string) error
	// Reap removes what services that are not alive any more have left: sandboxes, and
	// half-made package sets. It returns how many things it removed. The service
	// calls it at its start and every ReapEvery.
	Reap(ctx context.Context) (int, error)
	// Close destroys every sandbox that this driver has started.
	Close() error
}

// ReapEvery is the reaper's period: nothing of a service that was killed is there
// for longer.
const ReapEvery = 15 * time.Second

// Report describes a driver as it is here.
type Report struct {
	Driver    string   `json:"driver"`    // "docker" or "bwrap"
	Version   string   `json:"version"`   // of what isolates, e.g. "engine 28.5.2, runsc"
	Isolation string   `json:"isolation"` // for people, in one sentence
	Python    string   `json:"python"`    // version of the interpreter in the sandbox, e.g. "3.11.2"
	Platform  string   `json:"platform"`  // changes with whatever makes package sets differ: interpreter, architecture, image
	Untrusted bool     `json:"untrusted"` // strong enough for tenants who do not trust each other
	Enforced  []string `json:"enforced"`  // limits that hold for the sandbox as a whole: "memory", "socket buffers", "cpu", "pids", "workspace", "files"
	Missing   []string `json:"missing"`   // limits and probes that are not held here, each with the reason, for people
}

// Spec is the sandbox that is wanted.
type Spec struct {
	// Name is unique among sandboxes, [a-z0-9-]{1,48}; it shows in names and labels.
	Name string
	// Args are given to the Python interpreter, the agent's.
	Args []string
	// Limits of the sandbox; the zero value is DefaultLimits.
	Limits Limits
	// Set is the id of a package set to mount on Packages; empty: none.
	Set string
}

// Limits bound a sandbox as a whole.
type Limits struct {
	Memory         int64   // bytes, workspace and tmp included; no swap
	CPUs           float64 // cores
	PIDs           int64   // processes and threads
	OpenFiles      int64   // per process
	Workspace      int64   // bytes of Workspace
	WorkspaceFiles int64   // files of Workspace
	Tmp            int64   // bytes of Tmp
}

// DefaultLimits suit an agent's data analysis.
func DefaultLimits() Limits {
	return Limits{Memory: 1 << 30, CPUs: 2, PIDs: 128, OpenFiles: 1024, Workspace: 256 << 20, WorkspaceFiles: 20000, Tmp: 64 << 20}
}

// SocketBuffers bounds those of all sockets, in bytes, where the kernel counts them apart
// from Memory, as it does with cgroups v1.
func (l Limits) SocketBuffers() int64 { return l.Memory / 16 }

// Validate names every field that is wrong.
func (l Limits) Validate() error {
	var errs []error
	want := func(ok bool, field string, got any, least string) {
		if !ok {
			errs = append(errs, fmt.Errorf("limits.%s is %v, want at least %s", field, got, least))
		}
	}
	want(l.Memory >= 64<<20, "memory", l.Memory, "64 MiB")
	want(l.CPUs >= 0.05, "cpus", l.CPUs, "0.05")
	want(l.PIDs >= 8, "pids", l.PIDs, "8")
	want(l.OpenFiles >= 64, "open_files", l.OpenFiles, "64")
	want(l.Workspace >= 1<<20, "workspace", l.Workspace, "1 MiB")
	want(l.WorkspaceFiles >= 64, "workspace_files", l.WorkspaceFiles, "64")
	want(l.Tmp >= 1<<20, "tmp", l.Tmp, "1 MiB")
	return errors.Join(errs...)
}

// Sandbox is one sandbox. Read and Write are the agent's pipe: what the sandbox's first
// process has as standard output and input. Its standard error is dropped.
type Sandbox interface {
	io.ReadWriter
	// Name is that of the spec.
	Name() string
	// Done is closed when the sandbox has ended, by itself or by Destroy.
	Done() <-chan struct{}
	// Err says why it has ended, for people: "it ran out of memory", "it was
	// destroyed". It is nil before Done is closed.
	Err() error
	// Destroy ends all that runs in the sandbox and removes it. It may be called again.
	// It returns when nothing is left, or with what could not be removed; then the
	// reaper tries again.
	Destroy(ctx context.Context) error
}

// Install is a package set that is wanted.
type Install struct {
	// ID names the set: [a-f0-9]{64}, a hash of all that makes it what it is.
	ID string
	// Args are given to the Python interpreter in a sandbox with a network, where the
	// set's directory is writable at Packages and is all that is kept. The Python
	// there must have pip. Nothing but the index is expected to be reached.
	Args []string
	// Output is given each line that it prints.
	Output func(line string)
	// MaxBytes bounds the set.
	MaxBytes int64
	// HostNetwork is for tests whose index listens on loopback of the host.
	HostNetwork bool
}

// Set is a package set that is there.
type Set struct {
	ID    string
	Bytes int64 // 0: not known
	Used  time.Time
}

// Errors of drivers; errors.Is finds them.
var (
	ErrUnavailable = errors.New("sandboxes cannot be made here") // wrapped with what to install or start
	ErrNoSet       = errors.New("the package set is not there")
	ErrInUse       = errors.New("the package set is in use")
	ErrDestroyed   = errors.New("the sandbox was destroyed")
	ErrMemory      = errors.New("the sandbox ran out of memory")
)

// InstallError is pip's own refusal: what it printed tells why.
type InstallError struct{ Output []string }

func (e *InstallError) Error() string {
	return "the packages could not be installed: " + strings.Join(e.Output[max(0, len(e.Output)-5):], "; ")
}
