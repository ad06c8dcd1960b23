package selection

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"skandha.dev/services/sandbox/deps"
	"skandha.dev/services/sandbox/driver"
)

// Flags are the flags of every main that creates sandboxes, with the tags of
// github.com/alecthomas/kong. The zero value also selects the defaults.
type Flags struct {
	Driver    string        `env:"SKANDHA_SANDBOX_DRIVER" enum:"auto,docker,bwrap,none" default:"auto" help:"Sandbox driver: docker, bwrap (bubblewrap), none, or auto: Docker if an engine answers and has the image, else bubblewrap."`
	Image     string        `env:"SKANDHA_SANDBOX_IMAGE" placeholder:"IMAGE" help:"Docker image of sandboxes; it is never pulled. Default: the image that make sandbox-image builds."`
	Runtime   string        `env:"SKANDHA_SANDBOX_RUNTIME" placeholder:"NAME" help:"Docker runtime, e.g. runsc for gVisor. Default: runsc if the engine offers it, else the engine's default."`
	Owner     string        `env:"SKANDHA_SANDBOX_OWNER" placeholder:"NAME" help:"Label of this system's containers and volumes; services with the same owner on one Docker engine remove what the others leave behind. Default: skandha."`
	Dir       string        `env:"SKANDHA_SANDBOX_DIR" placeholder:"DIR" help:"Directory where bubblewrap keeps packages."`
	Untrusted bool          `env:"SKANDHA_SANDBOX_UNTRUSTED" help:"Tenants who do not trust each other share the service: refuse drivers that do not isolate strongly enough."`
	Weaker    bool          `name:"accept-weaker" env:"SKANDHA_SANDBOX_ACCEPT_WEAKER" help:"Accept such drivers, at your own risk."`
	Warm      int           `env:"SKANDHA_SANDBOX_WARM" default:"0" help:"Number of clean sandboxes kept ready; 0: 2, or 1 in an embedded system; -1: none."`
	Max       int           `env:"SKANDHA_SANDBOX_MAX" default:"32" help:"Maximum number of sandboxes."`
	Idle      time.Duration `env:"SKANDHA_SANDBOX_IDLE" default:"15m" help:"How long a session keeps an unused sandbox."`
	Memory    int64         `env:"SKANDHA_SANDBOX_MEMORY" default:"1024" placeholder:"MIB" help:"Memory of each sandbox in MiB, including its files."`
	CPUs      float64       `name:"cpus" env:"SKANDHA_SANDBOX_CPUS" default:"2" help:"CPUs that each sandbox may use."`
	PIDs      int64         `name:"pids" env:"SKANDHA_SANDBOX_PIDS" default:"128" help:"Processes and threads of each sandbox."`
	Workspace int64         `name:"files" env:"SKANDHA_SANDBOX_FILES" default:"256" placeholder:"MIB" help:"Space for files in each sandbox in MiB."`
	Keep      int64         `env:"SKANDHA_SANDBOX_KEEP" default:"256" placeholder:"MIB" help:"Files saved for each session, in MiB, so that they survive its sandbox; -1: none."`
	KeepFiles int           `env:"SKANDHA_SANDBOX_KEEP_FILES" default:"20000" help:"Maximum number of these files."`
	KeepFor   time.Duration `env:"SKANDHA_SANDBOX_KEEP_FOR" default:"720h" help:"How long they are kept after their last change."`
	Packages  bool          `env:"SKANDHA_SANDBOX_PACKAGES" default:"true" negatable:"" help:"Install the packages that code requests."`
	Index     string        `env:"SKANDHA_SANDBOX_INDEX" placeholder:"URL" help:"Package index. Default: pip's."`
	Proxy     string        `env:"SKANDHA_SANDBOX_PROXY" placeholder:"URL" help:"HTTP proxy for the package index."`
}

// Limits returns the limits of each sandbox.
func (f Flags) Limits() driver.Limits {
	l := driver.DefaultLimits()
	l.Memory = cmp.Or(f.Memory<<20, l.Memory)
	l.CPUs = cmp.Or(f.CPUs, l.CPUs)
	l.PIDs = cmp.Or(f.PIDs, l.PIDs)
	l.Workspace = cmp.Or(f.Workspace<<20, l.Workspace)
	return l
}

// KeepBytes returns how many bytes of files are saved for each session; negative: none.
func (f Flags) KeepBytes() int64 { return f.Keep << 20 }

func (f Flags) selection() Config {
	return Config{
		Driver: f.Driver, Image: f.Image, Runtime: f.Runtime, Owner: f.Owner, Dir: f.Dir, Untrusted: f.Untrusted,
		AcceptWeaker: f.Weaker,
	}
}

func (f Flags) dependencies() deps.Config { return deps.Config{Index: f.Index, Proxy: f.Proxy} }

// Validate reports every invalid flag.
func (f Flags) Validate() error {
	return errors.Join(f.selection().Validate(), f.dependencies().Validate(), f.Limits().Validate())
}

// Make returns the driver and the package manager that uses it; the manager is nil if
// packages are disabled. The caller closes the driver.
func (f Flags) Make(instance string, log *slog.Logger) (*Driver, *deps.Manager, error) {
	cfg := f.selection()
	cfg.Instance, cfg.Log = instance, log
	d, err := New(cfg)
	if err != nil || !f.Packages {
		return d, nil, err
	}
	dc := f.dependencies()
	dc.Log = log
	m, err := deps.New(dc, d)
	if err != nil {
		return nil, nil, fmt.Errorf("selecting a sandbox driver: %w", errors.Join(err, d.Close()))
	}
	return d, m, nil
}
