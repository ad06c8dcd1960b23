// Package bwrap isolates with bubblewrap, 0.8 or newer, on the host's own Python:
// for hosts without a container engine. It consumes and produces no subject; the
// sandbox service is its caller.
//
// A sandbox is one process tree in its own user, PID, network, IPC, UTS, mount and
// cgroup namespaces, without a capability, a network, another user namespace or a
// system call that [skandha.dev/services/sandbox/seccomp] does not list. Its root
// is a read-only tmpfs with the host's /usr, read-only, and an /etc of its own;
// it can write to /workspace, /tmp and /dev/shm, which are bounded tmpfs.
//
// # What is bounded, and by what
//
// Per sandbox: the bytes of each tmpfs; processes, by RLIMIT_NPROC, which the kernel
// counts per user namespace from 5.14 on. With a cgroup also memory, CPU,
// processes and the buffers of sockets: as root with cgroups v1 or v2, or in a v2
// subtree that is the service's own (systemd's Delegate=yes). There are no
// pseudo-terminals, since all sandboxes and the host would share them. Per process: open files, size of files,
// data segment, no core. As root, files are counted too; bubblewrap cannot do it,
// so the driver sets nr_inodes from outside, before the sandbox's first output is
// handed on. [driver.Report] says which of this holds here.
//
// # Users
//
// As root, each sandbox runs under a user id of its own that nobody has
// ([Config].FirstUID), so that what escapes is nobody. What sandboxes read, package
// sets and a Python outside /usr, must then be open to others. Otherwise a sandbox
// runs under the service's own user, and what escapes is that user.
//
// # What is left when a service dies
//
// Nothing: the kernel kills bubblewrap when the thread dies that started it, and
// the sandbox with bubblewrap. All starts come from one thread that lives as long as
// the driver. What was caught in the middle, and cgroups, are found by
// [Driver.Reap] of any service with the same [Config].Dir: by the names that
// they bear, and by the lock on the service's lease, which dies with it.
//
// # What it cannot stop
//
// It is weaker than containers: sandboxes share the host's kernel and see the host's
// /usr, there is no image, and limits may be missing. A hole in the kernel that
// the seccomp profile leaves open is a way out. New refuses tenants who do not
// trust each other unless [Config].AcceptWeaker says so. Packages are installed
// with the host's network, loopback included; no code of the packages runs there.
package bwrap
