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
	labelBoot     = "dev.skandha.sandbox.boot"     // of the link that made it
	labelPurpose  = "dev.skandha.sandbox.purpose"
	labelName     = "dev.skandha.sandbox.name" // of the sandbox
	labelTime     = "dev.skandha.sandbox.time" // of the service, when it was made, for people
	labelSet      = "dev.skandha.sandbox.set"  // id of the package set
	labelData     = "dev.skandha.sandbox.data" // of a set: its volume of packages
	labelBytes    = "dev.skandha.sandbox.bytes"
)

// Purposes.
const (
	purposeLease   = "lease"   // container: says that its service is alive
	purposeSandbox = "box"     // container
	purposeInstall = "install" // container
	purposeData    = "data"    // volume: packages
	purposeSet     = "set"     // volume, empty: says that the packages of a set are whole
	purposeStray   = "stray"   // volume: the engine made it because packages had just been removed
)

// shmBytes is the size of /dev/shm, and how many files may be there: enough for
// Python's multiprocessing.
const (
	shmBytes = 16 << 20
	shmFiles = 1024
)

// What gVisor's own processes need beside the sandbox's, whose cgroup they are in: a
// kernel in user space, and for each process of the sandbox at least one more.
const (
	gvisorMemory  = 64 << 20
	gvisorPIDs    = 128
	gvisorPerPIDs = 2
)

// wanted is a container that is to be made.
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

// labels are those of all that the link makes.
func (l *link) labels(purpose string) map[string]string {
	return map[string]string{
		labelOwner: l.d.cfg.Owner, labelInstance: l.d.cfg.Instance, labelBoot: l.boot, labelPurpose: purpose,
		labelTime: time.Now().UTC().Format(time.RFC3339),
	}
}

// ownUID is a user id that no other sandbox has, nor anybody else on the host: what the
// kernel counts by user (inotify instances, descriptors in flight, pages of pipes) is
// then the sandbox's own. Where the engine maps user ids, there are few.
func (l *link) ownUID() int {
	first, n := 1_000_000_000, 1_000_000_000
	for _, o := range l.info.SecurityOptions {
		if strings.Contains(o, "name=userns") || strings.Contains(o, "name=rootless") {
			first, n = driver.FirstOwnUID, 50_000
		}
	}
	return first + rand.IntN(n)
}

// container is what all containers have in common.
func (l *link) container(w wanted) *container.Config {
	labels := l.labels(w.purpose)
	labels[labelName] = w.name
	env := append(slices.Clone(w.env), "HOSTNAME") // without a value: the engine shall not add it
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
		// Of the image, nothing but its files is used.
		Entrypoint:  []string{"python3"},
		Cmd:         w.args,
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		WorkingDir:  driver.Workspace,
		Labels:      labels,
		// The engine closes the standard input when our connection ends.
		OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true,
		// A network namespace with loopback alone, that the engine's network code knows
		// nothing of: NetworkMode none alone takes it twice the time to start. In one,
		// gVisor has no loopback.
		NetworkDisabled: w.network == "" && l.runtime != Runsc,
	}
}

// host is the isolation.
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
		IpcMode:        "none", // a namespace of its own, without the engine's /dev/shm
		CgroupnsMode:   "private",
		Init:           &no, // the agent is the init, see the package's comment
		LogConfig:      container.LogConfig{Type: "none"},
		OomScoreAdj:    500, // sandboxes go before services
		Tmpfs: map[string]string{
			driver.Workspace: tmpfs(w.limits.Workspace, w.limits.WorkspaceFiles, "mode=0700,uid="+strconv.Itoa(w.uid)+",gid="+strconv.Itoa(driver.GID)+",exec"),
			driver.Tmp:       tmpfs(w.limits.Tmp, w.limits.WorkspaceFiles, "mode=1777,exec"),
			"/dev/shm":       tmpfs(shmBytes, shmFiles, "mode=1777,noexec"),
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
	if l.info.CPUCfsQuota { // an engine without refuses the limit; Report says so
		// Nor does it take more than there is.
		h.NanoCPUs = int64(min(w.limits.CPUs, float64(l.info.NCPU)) * 1e9)
	}
	// With cgroups v1; v2 counts sockets as memory by itself.
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
		// The engine makes no volume where something is mounted.
		if _, taken := h.Tmpfs[dir]; !taken && (w.mount == nil || dir != w.mount.Target) {
			h.Tmpfs[dir] = nothing
		}
	}
	return h
}

// nothing is mounted where nothing shall be.
const nothing = "ro,nosuid,nodev,noexec,size=4096,nr_inodes=2,mode=0555"

func tmpfs(bytes, files int64, more string) string {
	return fmt.Sprintf("rw,nosuid,nodev,size=%d,nr_inodes=%d,%s", bytes, files, more)
}

func ulimit(name string, n int64) *units.Ulimit {
	return &units.Ulimit{Name: name, Soft: n, Hard: n}
}
