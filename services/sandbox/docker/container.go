package docker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-units"

	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/sandbox/seccomp"
)

// Labels of containers and volumes.
const (
	labelOwner    = "dev.skandha.sandbox.owner"
	labelInstance = "dev.skandha.sandbox.instance" // of the service
	labelBoot     = "dev.skandha.sandbox.boot"     // of the link that created it
	labelPurpose  = "dev.skandha.sandbox.purpose"
	labelName     = "dev.skandha.sandbox.name" // of the sandbox
	labelTime     = "dev.skandha.sandbox.time" // creation time by the service's clock, for people
	labelSet      = "dev.skandha.sandbox.set"  // id of the package set
	labelData     = "dev.skandha.sandbox.data" // of a set: its volume of packages
	labelBytes    = "dev.skandha.sandbox.bytes"
)

// Purposes of containers and volumes.
const (
	purposeLease   = "lease"   // container: shows that its service is alive
	purposeSandbox = "box"     // container
	purposeInstall = "install" // container
	purposeData    = "data"    // volume: packages
	purposeSet     = "set"     // volume, empty: shows that the packages of a set are complete
	purposeStray   = "stray"   // volume: the engine created it because packages had just been removed
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
	gvisorMemory  = 64 << 20
	gvisorPIDs    = 128
	gvisorPerPIDs = 2
)

// wanted describes a container to create.
type wanted struct {
	purpose string
	name    string
	uid     int
	args    []string // of the interpreter
	env     []string
	limits  driver.Limits
	fsize   int64  // largest file, bytes
	network string // empty: none
	mount   *mount.Mount
}

// labels returns the labels of everything that the link creates.
func (l *link) labels(purpose string) map[string]string {
	return map[string]string{
		labelOwner: l.d.cfg.Owner, labelInstance: l.d.cfg.Instance, labelBoot: l.boot, labelPurpose: purpose,
		labelTime: time.Now().UTC().Format(time.RFC3339),
	}
}

// ownUID returns a user id that neither another sandbox nor anybody else on the host has,
// so that per-user kernel limits (inotify instances, descriptors in flight, pages of pipes)
// apply to that sandbox only. Where the engine maps user ids, there are few.
func (l *link) ownUID() int {
	first, n := 1_000_000_000, 1_000_000_000
	for _, o := range l.info.SecurityOptions {
		if strings.Contains(o, "name=userns") || strings.Contains(o, "name=rootless") {
			first, n = driver.FirstOwnUID, 50_000
		}
	}
	return first + rand.IntN(n)
}

// container returns the configuration that all containers share.
func (l *link) container(w wanted) *container.Config {
	labels := l.labels(w.purpose)
	labels[labelName] = w.name
	env := append(slices.Clone(w.env), "HOSTNAME") // without a value, so that the engine does not add it
	for _, name := range l.image.env {
		if !slices.ContainsFunc(w.env, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			env = append(env, name)
		}
	}
	return &container.Config{
		Image:    l.image.id,
		Hostname: "sandbox",
		User:     fmt.Sprintf("%d:%d", w.uid, driver.GID),
		Env:      env,
		// Only the image's files are used.
		Entrypoint:  []string{"python3"},
		Cmd:         w.args,
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		WorkingDir:  driver.Workspace,
		Labels:      labels,
		// The engine closes the standard input when our connection ends.
		OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true,
		// A network namespace with loopback only, unknown to the engine's network
		// code: NetworkMode none alone doubles the start time. In such a namespace
		// gVisor has no loopback.
		NetworkDisabled: w.network == "" && l.runtime != Runsc,
	}
}

// host returns the configuration of the isolation.
func (l *link) host(w wanted) *container.HostConfig {
	memory, pids, no := w.limits.Memory, w.limits.PIDs, false
	if l.runtime == Runsc {
		memory, pids = memory+gvisorMemory, gvisorPerPIDs*pids+gvisorPIDs
	}
	h := &container.HostConfig{
		Runtime:        l.runtime,
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
			driver.Workspace: tmpfs(w.limits.Workspace, w.limits.WorkspaceFiles,
				"mode=0700,uid="+strconv.Itoa(w.uid)+",gid="+strconv.Itoa(driver.GID)+",exec"),
			driver.Tmp: tmpfs(w.limits.Tmp, w.limits.WorkspaceFiles, "mode=1777,exec"),
			"/dev/shm": tmpfs(shmBytes, shmFiles, "mode=1777,noexec"),
		},
		Resources: container.Resources{
			Memory:     memory,
			MemorySwap: memory, // memory and swap together: no swap
			PidsLimit:  &pids,
			Ulimits: []*units.Ulimit{
				ulimit("nofile", w.limits.OpenFiles),
				ulimit("fsize", w.fsize),
				ulimit("core", 0),
				ulimit("msgqueue", 0),
				ulimit("memlock", 64<<10),
				ulimit("nice", 0),
				ulimit("rtprio", 0),
			},
		},
	}
	if l.info.CPUCfsQuota { // an engine without CFS quota refuses the limit; Report lists it
		// It also refuses more than the host has.
		h.NanoCPUs = int64(min(w.limits.CPUs, float64(l.info.NCPU)) * 1e9)
	}
	// With cgroups v1; v2 counts sockets as memory anyway.
	if l.info.KernelMemoryTCP { //nolint:staticcheck // deprecated with cgroups v1 itself
		h.KernelMemoryTCP = w.limits.SocketBuffers() //nolint:staticcheck // as above
	}
	if l.runtime != Runsc {
		// No pseudo-terminals: all instances of devpts share the host's kernel.pty.max.
		h.Tmpfs["/dev/pts"] = nothing
	}
	if w.network != "" {
		h.NetworkMode = container.NetworkMode(w.network)
	}
	if w.mount != nil {
		h.Mounts = []mount.Mount{*w.mount}
	}
	for _, dir := range l.image.volumes {
		// The engine creates no volume where something is mounted.
		if _, taken := h.Tmpfs[dir]; !taken && (w.mount == nil || dir != w.mount.Target) {
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
