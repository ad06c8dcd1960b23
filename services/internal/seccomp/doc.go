// Package seccomp has the one list of system calls that a sandbox may make, rendered for
// Docker ([Docker]) and for bubblewrap ([BPF]).
//
// It denies by default: calls that are not in the list fail with EPERM. Calls that libc and
// runtimes try first and have a fallback for fail with ENOSYS, so that they use the
// fallback: clone3, whose flags a filter cannot read, io_uring, and every call that is newer
// than the list. Setting extended attributes fails with ENOTSUP. A call by another
// architecture's table ends the process.
//
// Calls whose safety depends on their arguments are allowed with safe arguments only: socket
// (UNIX, TCP and UDP), clone (no namespaces), ioctl (terminals and the like, without TIOCSTI
// and TIOCLINUX), mknod (files and FIFOs), personality (queries). The kernel reads only the
// low 32 bits of such an argument, and so do the rules.
//
// The list suits Python with threads, processes, asyncio and NumPy. It excludes, among
// others: namespaces and mounts, ptrace and the like, keyrings, bpf, perf, userfaultfd,
// io_uring, kernel modules, raw, packet, netlink, vsock and crypto sockets, file handles,
// clocks, swap and quota, System V IPC and POSIX message queues, whose memory no limit of a
// sandbox would count.
package seccomp
