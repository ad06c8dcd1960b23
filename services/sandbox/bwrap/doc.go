// Package bwrap isolates with bubblewrap, 0.8 or newer, on the host's own Python, for hosts
// without a container engine. It neither consumes nor produces a subject; the sandbox
// service calls it.
//
// A sandbox is one process tree in its own user, PID, network, IPC, UTS, mount and cgroup
// namespaces, without a capability, a network, another user namespace or a system call that
// [skandha.dev/services/internal/seccomp] does not list. Its root is a read-only tmpfs with
// the host's /usr, read-only, and a separate /etc. It can write to /workspace, /tmp and
// /dev/shm, which are bounded tmpfs.
//
// # What is bounded, and by what
//
// Per sandbox: the bytes of each tmpfs; processes, by RLIMIT_NPROC, which the kernel counts
// per user namespace since 5.14. With a cgroup also memory, CPU, processes and the buffers
// of sockets: as root with cgroups v1 or v2, or in a v2 subtree that is delegated to the
// service (systemd's Delegate=yes). There are no pseudo-terminals, since all sandboxes and
// the host would share them. Per process: open files, size of files, data segment, no core.
// As root, files are counted too; bubblewrap cannot do it, so the driver sets nr_inodes from
// outside, before it forwards the sandbox's first output. [driver.Report] lists which of
// these are enforced here.
//
// # Users
//
// As root, each sandbox runs under a separate, otherwise unused user id
// ([Config].FirstUID), so that escaped code has no rights. The files that sandboxes read,
// package sets and a Python outside /usr, must then be readable for others. Otherwise a
// sandbox runs under the service's own user, and escaped code has that user's rights.
//
// # What is left when a service dies
//
// Nothing: the kernel kills bubblewrap when the thread that started it dies, and the sandbox
// with bubblewrap. All starts are made by one thread that lives as long as the driver.
// [Driver.Reap] of any service with the same [Config].Dir finds cgroups, and processes that
// were interrupted during a start: by their names, and by the lock on the service's lease,
// which ends with the service.
//
// # What it cannot prevent
//
// It is weaker than containers: sandboxes share the host's kernel and see the host's /usr,
// there is no image, and limits may be missing. A vulnerability in the kernel that the
// seccomp profile does not block allows an escape. New refuses tenants who do not trust each
// other unless [Config].AcceptWeaker is set. Packages are installed with the host's network,
// including loopback; no code of the packages runs during that.
package bwrap
