// Package seccomp is the one list of system calls that a sandbox may make, rendered
// for Docker ([Docker]) and for bubblewrap ([BPF]).
//
// It denies by default: what is not in the list fails with EPERM. What libc and
// runtimes try first and have another way for fails with ENOSYS, so that they
// take it: clone3, whose flags a filter cannot read, io_uring, and every call
// that is newer than the list. Setting extended attributes fails with ENOTSUP. A call by another architecture's table ends the
// process.
//
// Calls that are good or bad by their arguments are allowed by the arguments that
// are good: socket (UNIX, TCP and UDP), clone (no namespaces), ioctl (terminals
// and the like, without TIOCSTI and TIOCLINUX), mknod (files and FIFOs),
// personality (to ask). Of such an argument the kernel reads the low 32 bits
// alone, and so do the rules.
//
// The list suits Python with threads, processes, asyncio and NumPy. It closes,
// among others: namespaces and mounts, ptrace and its like, keyrings, bpf, perf,
// userfaultfd, io_uring, kernel modules, raw, packet, netlink, vsock and crypto
// sockets, file handles, clocks, swap and quota, System V IPC and POSIX message
// queues, whose memory no limit of a sandbox would count.
package seccomp
