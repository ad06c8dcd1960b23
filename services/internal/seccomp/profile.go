package seccomp

// condition holds when the low 32 bits of an argument, masked, are the value.
type condition struct {
	arg         int // 0 to 5
	mask, value uint32
}

// rule allows a call when one of its alternatives holds; an alternative holds when all its
// conditions do. An alternative must not test an argument twice: runc would treat "and" as
// "or".
type rule struct {
	names []string
	any   [][]condition
}

const (
	whole    = 0xffffffff // an int argument
	sockType = 0xf        // without SOCK_CLOEXEC and SOCK_NONBLOCK
	fileType = 0o170000   // S_IFMT

	unixFamily, inet, inet6   = 1, 2, 10
	stream, datagram, packets = 1, 2, 5 // SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET
	tcp, udp                  = 6, 17

	// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; NEWTIME is
	// known to clone3 and unshare only.
	namespaces = 0x7e020000
)

func is(arg int, value uint32) condition { return condition{arg, whole, value} }

// socketOf matches a socket's family, type and protocol. The protocol is checked too, since
// others would load kernel modules: SCTP, L2TP, DCCP.
func socketOf(family, kind, protocol uint32) []condition {
	return []condition{is(0, family), {1, sockType, kind}, is(2, protocol)}
}

// oneOf matches the values that an argument may have.
func oneOf(arg int, mask uint32, values ...uint32) [][]condition {
	out := make([][]condition, len(values))
	for i, v := range values {
		out[i] = []condition{{arg, mask, v}}
	}
	return out
}

// conditional lists the calls that are allowed by their arguments.
var conditional = []rule{
	{[]string{"socket"}, [][]condition{
		socketOf(inet, stream, 0), socketOf(inet, stream, tcp), socketOf(inet, datagram, 0), socketOf(inet, datagram, udp),
		socketOf(inet6, stream, 0), socketOf(inet6, stream, tcp), socketOf(inet6, datagram, 0),
		socketOf(inet6, datagram, udp),
		socketOf(unixFamily, stream, 0), socketOf(unixFamily, datagram, 0), socketOf(unixFamily, packets, 0),
	}},
	{[]string{"socketpair"}, [][]condition{
		socketOf(unixFamily, stream, 0), socketOf(unixFamily, datagram, 0), socketOf(unixFamily, packets, 0),
	}},
	{[]string{"clone"}, oneOf(0, namespaces, 0)},
	{[]string{"mknod"}, oneOf(1, fileType, 0, 0o100000, 0o010000)},
	{[]string{"mknodat"}, oneOf(2, fileType, 0, 0o100000, 0o010000)},
	{[]string{"personality"}, oneOf(0, whole, 0, 0xffffffff)},
	{[]string{"ioctl"}, oneOf(1, whole,
		0x5401, 0x5402, 0x5403, 0x5404, 0x802c542a, 0x402c542b, // TCGETS, TCSETS, TCSETSW, TCSETSF, TCGETS2, TCSETS2
		0x5409, 0x540a, 0x540b, // TCSBRK, TCXONC, TCFLSH
		0x540e, 0x5422, 0x540f, 0x5410, 0x5429, // TIOCSCTTY, TIOCNOTTY, TIOCGPGRP, TIOCSPGRP, TIOCGSID
		0x5411, 0x541b, 0x5413, 0x5414, // TIOCOUTQ, FIONREAD, TIOCGWINSZ, TIOCSWINSZ
		0x80045430, 0x40045431, 0x5441, // TIOCGPTN, TIOCSPTLCK, TIOCGPTPEER
		0x5421, 0x5450, 0x5451, 0x5452, 0x5460, // FIONBIO, FIONCLEX, FIOCLEX, FIOASYNC, FIOQSIZE
		0x40049409, 0x4020940d, // FICLONE, FICLONERANGE: cp tries them first
		0x8910, 0x8912, 0x8913, 0x8915, 0x8933, // SIOCGIFNAME, GIFCONF, GIFFLAGS, GIFADDR, GIFINDEX
	)},
	// For the caller only, by the id 0. The agent has the same user: with an id, code
	// could take its processor and its limits away.
	{
		[]string{"prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"},
		oneOf(0, whole, 0),
	},
	{[]string{"setpriority"}, [][]condition{{is(0, 0), is(1, 0)}}}, // PRIO_PROCESS; PRIO_USER would be the agent, too
	{[]string{"ioprio_set"}, [][]condition{{is(0, 1), is(1, 0)}}},  // IOPRIO_WHO_PROCESS
}

// refusal lists calls that fail with another error than EPERM.
type refusal struct {
	errno uint32
	names []string
}

var refusals = []refusal{
	// Callers of these have a fallback, and use it.
	{errnoNoSys, []string{
		"clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "map_shadow_stack", "statmount", "listmount",
		"setxattrat", "getxattrat", "listxattrat", "removexattrat",
	}},
	// No quota counts these bytes; copying programs see a file system without attributes.
	{errnoNotSup, []string{"setxattr", "lsetxattr", "fsetxattr"}},
}

// allowed lists the calls that are allowed with all arguments.
var allowed = []string{
	// Files. Not: sync and syncfs, which flush the host's disks; file handles; fanotify.
	"access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup", "dup2", "dup3",
	"faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown",
	"fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock", "fstat", "fstatfs", "fsync", "ftruncate",
	"futimesat", "getcwd", "getdents", "getdents64", "getxattr", "inotify_add_watch", "inotify_init", "inotify_init1",
	"inotify_rm_watch", "lchown", "lgetxattr", "link", "linkat", "listxattr", "llistxattr", "lseek", "lstat", "mkdir",
	"mkdirat", "newfstatat", "open", "openat", "openat2", "pipe", "pipe2", "pread64", "preadv", "preadv2", "pwrite64",
	"pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat", "readv", "rename", "renameat", "renameat2",
	"rmdir", "sendfile", "splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync_file_range", "tee",
	"truncate", "umask", "unlink", "unlinkat", "utime", "utimensat", "utimes", "write", "writev",

	// Memory. Not: userfaultfd, memfd_secret, and what places pages on NUMA nodes.
	"brk", "madvise", "membarrier", "memfd_create", "mincore", "mlock", "mlock2", "mlockall", "mmap", "mprotect",
	"mremap", "mseal", "msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect",

	// Processes and their identities; without a capability an identity cannot change.
	"arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork", "getegid", "geteuid",
	"getgid", "getgroups", "getpgid", "getpgrp", "getpid", "getppid", "getresgid", "getresuid", "getsid", "gettid",
	"getuid", "kill", "pidfd_open", "pidfd_send_signal", "prctl", "setfsgid", "setfsuid", "setgid", "setgroups",
	"setpgid", "setregid", "setresgid", "setresuid", "setreuid", "setsid", "setuid", "tgkill", "tkill", "vfork",
	"wait4", "waitid",

	// Threads, and calls by which a process confines itself further.
	"futex", "futex_requeue", "futex_wait", "futex_waitv", "futex_wake", "get_robust_list", "landlock_add_rule",
	"landlock_create_ruleset", "landlock_restrict_self", "rseq", "seccomp", "set_robust_list", "set_tid_address",

	// Scheduling and limits: reading them, and setting the caller's own.
	"getcpu", "getpriority", "getrlimit", "getrusage", "ioprio_get", "sched_get_priority_max", "sched_get_priority_min",
	"sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval",
	"sched_yield", "setrlimit", "sysinfo", "uname",

	// Signals and time; the clocks cannot be set.
	"alarm", "clock_getres", "clock_gettime", "clock_nanosleep", "getitimer", "gettimeofday", "nanosleep", "pause",
	"restart_syscall", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn",
	"rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo", "setitimer", "sigaltstack", "signalfd", "signalfd4",
	"time", "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime", "timerfd_create",
	"timerfd_gettime", "timerfd_settime", "times",

	// Waiting for events.
	"epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2",
	"poll", "ppoll", "pselect6", "select",

	// Sockets, of the families that socket admits.
	"accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen", "recvfrom",
	"recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown",

	"getrandom",
}
