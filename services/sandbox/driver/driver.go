package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Paths and ids in every sandbox.
const (
	Workspace = "/workspace" // the session's files; with Tmp, the only place that persists between calls
	Tmp       = "/tmp"
	Packages  = "/packages" // the package set of Spec.Packages, read-only
	// FontLists holds matplotlib's font lists, if there are any. Building one takes longer
	// than most plots; the agent points matplotlib to the existing ones.
	FontLists = "/etc/matplotlib-cache"
	UID       = 65532 // of everything in a sandbox, unless the driver gives each sandbox a separate one
	GID       = 65532
	// FirstOwnUID is the lowest user id that a driver may give to a single sandbox, so that
	// per-user kernel limits apply to that sandbox only.
	FirstOwnUID = 10000
)

// Environment returns the whole environment of the processes in a sandbox.
func Environment() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + Workspace, "PWD=" + Workspace, "TMPDIR=" + Tmp, "LANG=C.UTF-8",
		"USER=sandbox", "LOGNAME=sandbox", "TZ=UTC",
		"PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1", "MPLBACKEND=Agg", "MPLCONFIGDIR=" + Tmp + "/.matplotlib",
	}
}

// Driver starts sandboxes. Its methods are safe for concurrent use.
type Driver interface {
	// Report describes the driver and what it cannot prevent. It fails, with what to
	// install or to start, when sandboxes cannot be created here.
	Report(ctx context.Context) (Report, error)
	// Start creates a sandbox. It returns when the sandbox's first process has been
	// started; the pipe shows whether it works.
	Start(ctx context.Context, spec Spec) (Sandbox, error)
	// Install creates a package set, in a sandbox that has a network and nothing else. A
	// set exists completely or not at all. Creating an existing set does nothing.
	Install(ctx context.Context, in Install) error
	// Sets lists the existing package sets.
	Sets(ctx context.Context) ([]Set, error)
	// RemoveSet removes a package set; it fails while a sandbox uses it.
	RemoveSet(ctx context.Context, id string) error
	// Reap removes what services that are no longer alive have left: sandboxes, and
	// incomplete package sets. It returns how many things it removed. The service calls it
	// at its start and every ReapEvery.
	Reap(ctx context.Context) (int, error)
	// Close destroys every sandbox that this driver has started.
	Close() error
}

// ReapEvery is the reaper's period: nothing of a killed service stays longer.
const ReapEvery = 15 * time.Second

// Report describes a driver on this host.
type Report struct {
	Driver    string `json:"driver"`    // "docker" or "bwrap"
	Version   string `json:"version"`   // of the isolating software, e.g. "engine 28.5.2, runsc"
	Isolation string `json:"isolation"` // for people, in one sentence
	Python    string `json:"python"`    // version of the interpreter in the sandbox, e.g. "3.11.2"
	Platform  string `json:"platform"`  // what package sets depend on: interpreter, architecture, image
	Untrusted bool   `json:"untrusted"` // strong enough for tenants who do not trust each other
	// limits that apply to the sandbox as a whole: "memory", "socket buffers", "cpu", "pids",
	// "workspace", "files"
	Enforced []string `json:"enforced"`
	Missing  []string `json:"missing"` // limits and probes not enforced here, with the reasons, for people
}

// Spec describes the sandbox to start.
type Spec struct {
	// Name is unique among sandboxes, [a-z0-9-]{1,48}; it appears in names and labels.
	Name string
	// Args are the Python interpreter's arguments: the agent.
	Args []string
	// Limits of the sandbox; the zero value is DefaultLimits.
	Limits Limits
	// Set is the id of the package set to mount on Packages; empty: none.
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
	return Limits{
		Memory: 1 << 30, CPUs: 2, PIDs: 128, OpenFiles: 1024, Workspace: 256 << 20, WorkspaceFiles: 20000, Tmp: 64 << 20,
	}
}

// SocketBuffers bounds the buffers of all sockets, in bytes, where the kernel counts them
// separately from Memory, as it does with cgroups v1.
func (l Limits) SocketBuffers() int64 { return l.Memory / 16 }

// Validate reports every invalid field.
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

// Sandbox is one sandbox. Read and Write are the agent's pipe: the standard output and
// input of the sandbox's first process. Its standard error is discarded.
type Sandbox interface {
	io.ReadWriter
	// Name returns the spec's name.
	Name() string
	// Done is closed when the sandbox has ended, by itself or by Destroy.
	Done() <-chan struct{}
	// Err returns why the sandbox ended, for people: "it ran out of memory", "it was
	// destroyed". It is nil before Done is closed.
	Err() error
	// Destroy ends everything that runs in the sandbox and removes it. It may be called
	// more than once. It returns when nothing is left, or with what could not be removed;
	// the reaper retries that.
	Destroy(ctx context.Context) error
}

// Install describes a package set to create.
type Install struct {
	// ID names the set: [a-f0-9]{64}, a hash of everything that determines it.
	ID string
	// Args are the Python interpreter's arguments, in a sandbox with a network, where the
	// set's directory is writable at Packages and is all that is kept. The Python there
	// must have pip. Only the index needs to be reachable.
	Args []string
	// Output receives each line that the installation prints.
	Output func(line string)
	// MaxBytes bounds the set.
	MaxBytes int64
}

// Set is an existing package set.
type Set struct {
	ID    string
	Bytes int64 // 0: unknown
	Used  time.Time
}

// Errors of drivers, for errors.Is.
var (
	ErrUnavailable = errors.New("cannot create sandboxes on this host") // wrapped with what to install or start
	ErrNoSet       = errors.New("package set not found")
	ErrInUse       = errors.New("package set in use")
	ErrDestroyed   = errors.New("the sandbox was destroyed")
	ErrMemory      = errors.New("the sandbox ran out of memory")
)

// InstallError is a refusal by pip, with pip's output.
type InstallError struct{ Output []string }

func (e *InstallError) Error() string {
	return "cannot install the packages: " + strings.Join(e.Output[max(0, len(e.Output)-5):], "; ")
}
