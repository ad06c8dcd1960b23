package form

import (
	_ "embed" // the programs
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-units"

	"skandha.dev/services/internal/seccomp"
	"skandha.dev/services/sandbox/driver"
)

// shmBytes and shmFiles bound /dev/shm: enough for
// Python's multiprocessing.
const (
	shmBytes = 16 << 20
	shmFiles = 1024
)

// What gVisor's own processes need in addition to the sandbox's, in whose cgroup they are:
// a kernel in user space, and at least one more process per process of the sandbox.
const (
	GVisorMemory  = 64 << 20
	gvisorPIDs    = 128
	gvisorPerPIDs = 2
)

// A lease reports what it sees and then waits until its standard input ends.
//
//go:embed lease.py
var leaseSource string

//go:embed install.py
var installSource string

// LeaseLimits are the limits of a lease; those that it sees are reported.
var LeaseLimits = driver.Limits{
	Memory: 64 << 20, CPUs: 1, PIDs: 8, OpenFiles: 64, Workspace: 1 << 20, WorkspaceFiles: 64, Tmp: 1 << 20,
}

// installLimits are the limits of the installing sandbox. Unpacked files are in the set's
// volume, so it needs little else.
var installLimits = driver.Limits{
	Memory: 1 << 30, CPUs: 2, PIDs: 64, OpenFiles: 1024, Workspace: 16 << 20, WorkspaceFiles: 1000, Tmp: 64 << 20,
}

// Container describes a container to create.
type Container struct {
	Purpose string
	Name    string
	UID     int
	Args    []string // of the interpreter
	Limits  driver.Limits
	Mount   *mount.Mount
	Network string // empty: none

	fsize int64 // largest file, bytes
}

// Lease is the container that shows that its service is alive.
func Lease(uid int) Container {
	return Container{
		Purpose: PurposeLease, Name: "lease", UID: uid, Args: []string{"-I", "-S", "-c", leaseSource}, Limits: LeaseLimits,
		fsize: LeaseLimits.Workspace,
	}
}

// Sandbox is the container of a session. The mount is of a package set, or nil.
func Sandbox(name string, uid int, args []string, limits driver.Limits, set *mount.Mount) Container {
	return Container{
		Purpose: PurposeSandbox, Name: name, UID: uid, Args: args, Limits: limits, Mount: set,
		fsize: max(limits.Workspace, limits.Tmp),
	}
}

// Install is the container that installs packages into a volume.
func Install(data, network string, maxBytes int64, args []string) Container {
	return Container{
		Purpose: PurposeInstall, Name: data[len(data)-26:], UID: driver.UID, Limits: installLimits, Network: network,
		Args:  append([]string{"-I", "-S", "-c", installSource, strconv.FormatInt(maxBytes, 10)}, args...),
		Mount: dataMount(data), fsize: 3 * maxBytes,
	}
}

// ContainerName returns the name of a container.
func (o Origin) ContainerName(c Container) string {
	return o.Owner + "-" + c.Purpose + "-" + o.Boot[:8] + "-" + c.Name
}

// Create is the request that creates a container.
func (e Engine) Create(o Origin, c Container) container.CreateRequest {
	return container.CreateRequest{Config: e.config(o, c), HostConfig: e.host(c)}
}

// config returns the configuration that all containers share.
func (e Engine) config(o Origin, c Container) *container.Config {
	labels := o.labels(c.Purpose)
	labels[LabelName] = c.Name
	whole := driver.Environment()
	env := append(slices.Clone(whole), "HOSTNAME") // without a value, so that the engine does not add it
	for _, name := range e.Image.Env {
		if !slices.ContainsFunc(whole, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			env = append(env, name)
		}
	}
	return &container.Config{
		Image:    e.Image.ID,
		Hostname: "sandbox",
		User:     fmt.Sprintf("%d:%d", c.UID, driver.GID),
		Env:      env,
		// Only the image's files are used.
		Entrypoint:  []string{"python3"},
		Cmd:         c.Args,
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		WorkingDir:  driver.Workspace,
		Labels:      labels,
		// The engine closes the standard input when our connection ends.
		OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true,
		// A network namespace with loopback only, unknown to the engine's network
		// code: NetworkMode none alone doubles the start time. In such a namespace
		// gVisor has no loopback.
		NetworkDisabled: c.Network == "" && e.Runtime != Runsc,
	}
}

// host returns the configuration of the isolation.
func (e Engine) host(c Container) *container.HostConfig {
	memory, pids, no := c.Limits.Memory, c.Limits.PIDs, false
	if e.Runtime == Runsc {
		memory, pids = memory+GVisorMemory, gvisorPerPIDs*pids+gvisorPIDs
	}
	h := &container.HostConfig{
		Runtime:        e.Runtime,
		AutoRemove:     true,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges", "seccomp=" + seccomp.Docker()},
		ReadonlyRootfs: true,
		NetworkMode:    "none",
		IpcMode:        "none", // a separate namespace, without the engine's /dev/shm
		CgroupnsMode:   "private",
		Init:           &no, // the agent is the init, see the package documentation
		LogConfig:      container.LogConfig{Type: "none"},
		OomScoreAdj:    500, // kill sandboxes before services
		Tmpfs: map[string]string{
			driver.Workspace: tmpfs(c.Limits.Workspace, c.Limits.WorkspaceFiles,
				"mode=0700,uid="+strconv.Itoa(c.UID)+",gid="+strconv.Itoa(driver.GID)+",exec"),
			driver.Tmp: tmpfs(c.Limits.Tmp, c.Limits.WorkspaceFiles, "mode=1777,exec"),
			"/dev/shm": tmpfs(shmBytes, shmFiles, "mode=1777,noexec"),
		},
		Resources: container.Resources{
			Memory:     memory,
			MemorySwap: memory, // memory and swap together: no swap
			PidsLimit:  &pids,
			Ulimits: []*units.Ulimit{
				ulimit("nofile", c.Limits.OpenFiles),
				ulimit("fsize", c.fsize),
				ulimit("core", 0),
				ulimit("msgqueue", 0),
				ulimit("memlock", 64<<10),
				ulimit("nice", 0),
				ulimit("rtprio", 0),
			},
		},
	}
	if e.Info.CPUCfsQuota { // an engine without CFS quota refuses the limit; Report lists it
		// It also refuses more than the host has.
		h.NanoCPUs = int64(math.Round(min(c.Limits.CPUs, float64(e.Info.NCPU)) * 1e9))
	}
	// With cgroups v1; v2 counts sockets as memory anyway.
	if e.Info.KernelMemoryTCP { //nolint:staticcheck // deprecated with cgroups v1 itself
		h.KernelMemoryTCP = c.Limits.SocketBuffers() //nolint:staticcheck // as above
	}
	if e.Runtime != Runsc {
		// No pseudo-terminals: all instances of devpts share the host's kernel.pty.max.
		h.Tmpfs["/dev/pts"] = nothing
	}
	if c.Network != "" {
		h.NetworkMode = container.NetworkMode(c.Network)
	}
	if c.Mount != nil {
		h.Mounts = []mount.Mount{*c.Mount}
	}
	for _, dir := range e.Image.Volumes {
		// The engine creates no volume where something is mounted.
		if _, taken := h.Tmpfs[dir]; !taken && (c.Mount == nil || dir != c.Mount.Target) {
			h.Tmpfs[dir] = nothing
		}
	}
	return h
}

// nothing is an empty read-only mount.
const nothing = "ro,nosuid,nodev,noexec,size=4096,nr_inodes=2,mode=0555"

func tmpfs(bytes, files int64, more string) string {
	return fmt.Sprintf("rw,nosuid,nodev,size=%d,nr_inodes=%d,%s", bytes, files, more)
}

func ulimit(name string, n int64) *units.Ulimit {
	return &units.Ulimit{Name: name, Soft: n, Hard: n}
}
