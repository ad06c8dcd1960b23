package docker

import (
	"context"
	"fmt"
	"strings"

	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/driver"
)

// Report describes the isolation and what it does not enforce. The interpreter and the
// workspace's bounds are those that a container of the image saw.
func (d *Driver) Report(ctx context.Context) (driver.Report, error) {
	l, err := d.connect(ctx)
	if err != nil {
		return driver.Report{}, err
	}
	runtime := l.Runtime
	if runtime == "" {
		runtime = l.Info.DefaultRuntime
	}
	r := driver.Report{
		Driver: "docker", Version: fmt.Sprintf("engine %s, %s", l.Info.ServerVersion, runtime),
		Isolation: "containers without network, capabilities and privileges, behind a seccomp profile, on the host's kernel",
		Python:    l.seen.Python,
		Platform:  strings.Join([]string{l.Image.ID, l.seen.Platform, l.seen.Python}, " "),
		Untrusted: true,
	}
	if runtime == Runsc {
		r.Isolation = "containers without network, capabilities and privileges, on gVisor, a separate kernel in user space"
	}
	hold := func(ok bool, limit, missing string) {
		if ok {
			r.Enforced = append(r.Enforced, limit)
		} else {
			r.Missing = append(r.Missing, limit+": "+missing)
		}
	}
	hold(l.Info.MemoryLimit, "memory", "the engine has no memory cgroup")
	counted := l.Info.MemoryLimit && (l.Info.CgroupVersion == "2" || runtime == Runsc)
	hold(counted || l.seen.Sockets > 0 && l.seen.Sockets <= form.LeaseLimits.SocketBuffers(), "socket buffers",
		"with cgroups v1, runc 1.1 and newer do not bound them, and all sandboxes and the host share the kernel's "+
			"net.ipv4.tcp_mem and udp_mem; use cgroups v2 or gVisor")
	hold(l.Info.CPUCfsQuota, "cpu", "the engine's kernel has no CPU quota")
	hold(l.Info.PidsLimit, "pids", "the engine has no pids cgroup")
	hold(l.seen.Bytes > 0 && l.seen.Bytes <= form.LeaseLimits.Workspace, "workspace",
		fmt.Sprintf("a tmpfs of %d bytes was created with %d", form.LeaseLimits.Workspace, l.seen.Bytes))
	hold(l.seen.Files > 0 && l.seen.Files <= form.LeaseLimits.WorkspaceFiles, "files",
		fmt.Sprintf("a tmpfs of %d files was created with %d; memory bounds them", form.LeaseLimits.WorkspaceFiles,
			l.seen.Files))
	if l.Info.MemoryLimit && !l.Info.SwapLimit {
		r.Missing = append(r.Missing,
			"swap: the engine's kernel does not count swap, so a sandbox may use the host's swap in addition to its memory")
	}
	if runtime == Runsc {
		r.Missing = append(r.Missing, "fork bombs: on gVisor they end the whole sandbox, not only the call")
	}
	return r, nil
}
