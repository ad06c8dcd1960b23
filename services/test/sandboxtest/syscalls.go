package sandboxtest

import (
	"fmt"
	"runtime"
)

// no lists the errors that mean a refusal. Errors about an argument are not in it: they
// would mean that the kernel has examined the argument.
var no = []string{"EPERM", "ENOSYS", "EACCES", "SIGSYS"}

// noFamily lists the further errors for a refused family of sockets.
var noFamily = append([]string{"EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"}, no...)

// syscallProbes make system calls that no program of a sandbox needs. The numbers are
// amd64's.
func syscallProbes() []probe {
	if runtime.GOARCH != "amd64" {
		return []probe{{name: "system calls", unfit: "the numbers are amd64's, this is " + runtime.GOARCH}}
	}
	var out []probe
	for _, p := range []struct {
		name string
		code string // an expression that does it
		no   []string
	}{
		{"mount", `syscall(165, b"none", b"/tmp", b"tmpfs", 0, 0)`, no},
		{"mount by bind", `syscall(165, b"/usr", b"/tmp", 0, 4096, 0)`, no},
		{"remount the root for writing", `syscall(165, b"none", b"/", 0, 32 | 4096, 0)`, no},
		{"umount", `syscall(166, b"/workspace", 2)`, no},
		{"fsopen", `syscall(430, b"tmpfs", 0)`, no},
		{"open_tree", `syscall(428, -100, b"/", 1)`, no},
		{"mount_setattr", `syscall(442, -100, b"/", 0, (ctypes.c_ulong * 4)(0, 1, 0, 0), 32)`, no},
		{"pivot_root", `syscall(155, b"/workspace", b"/workspace")`, no},
		{"chroot", `os.chroot("/workspace")`, no},
		{"unshare a user namespace", `syscall(272, 0x10000000)`, no},
		{"unshare a mount namespace", `syscall(272, 0x00020000)`, no},
		{"unshare a network namespace", `syscall(272, 0x40000000)`, no},
		{"unshare a PID namespace", `syscall(272, 0x20000000)`, no},
		{"clone into a user namespace", `clone(0x10000000)`, no},
		{
			"clone3 into a user namespace",
			`syscall(435, (ctypes.c_ulong * 11)(0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88) or os._exit(0)`, no,
		},
		{"setns", `syscall(308, os.open("/proc/self/ns/user", 0), 0)`, no},
		{"keyctl", `syscall(250, 0, ctypes.c_long(-3), 1)`, no},
		{"add_key", `syscall(248, b"user", b"probe", b"x", 1, ctypes.c_long(-2))`, no},
		{"request_key", `syscall(249, b"user", b"probe", 0, 0)`, no},
		{"io_uring_setup", `syscall(425, 4, ctypes.create_string_buffer(120))`, no},
		{"bpf", `syscall(321, 0, (ctypes.c_uint * 32)(2, 4, 8, 1), 128)`, no},
		{
			"perf_event_open",
			`syscall(298, ctypes.create_string_buffer(struct.pack("IIQQQQQ", 1, 112, 0, 0, 0, 0, 0x60), 128), 0, -1, -1, 0)`, no,
		},
		{"userfaultfd", `syscall(323, 1)`, no},
		{
			"open_by_handle_at",
			`syscall(304, os.open("/", 0), ctypes.create_string_buffer(struct.pack("IiQ", 8, 1, 2), 136), 0)`, no,
		},
		{
			"name_to_handle_at",
			`syscall(303, -100, b"/", ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136), ctypes.byref(ctypes.c_int()), 0)`, no,
		},
		{"init_module", `syscall(175, b"x", 1, b"")`, no},
		{"finit_module", `syscall(313, 0, b"", 0)`, no},
		{"delete_module", `syscall(176, b"probe", 0)`, no},
		{"kexec_load", `syscall(246, 0, 0, 0, 0)`, no},
		{"kexec_file_load", `syscall(320, -1, -1, 0, 0, 0)`, no},
		{"reboot", `syscall(169, 0xfee1dead, 672274793, 0, 0)`, no},
		{"swapon", `syscall(167, b"/workspace", 0)`, no},
		{"acct", `syscall(163, b"/tmp/acct")`, no},
		{"quotactl", `syscall(179, 0x80000100, 0, 0, 0)`, no},
		{"iopl", `syscall(172, 3)`, no},
		{"ioperm", `syscall(173, 0x80, 1, 1)`, no},
		{"modify_ldt", `syscall(154, 0, ctypes.create_string_buffer(64), 64)`, no},
		{"syslog", `syscall(103, 3, ctypes.create_string_buffer(64), 64)`, no},
		{"clock_settime", `syscall(227, 0, (ctypes.c_long * 2)(0, 0))`, no},
		{"settimeofday", `syscall(164, (ctypes.c_long * 2)(0, 0), 0)`, no},
		{"adjtimex", `syscall(159, ctypes.create_string_buffer(struct.pack("I", 1), 208))`, no},
		{"sethostname", `syscall(170, b"probe", 5)`, no},
		{"setdomainname", `syscall(171, b"probe", 5)`, no},
		{"personality without randomisation", `syscall(135, 0x0040000)`, no},
		{"fanotify_init", `syscall(300, 0, 0)`, no},
		{"vhangup", `syscall(153)`, no},
		{"memfd_secret", `syscall(447, 0)`, no},
		{"move_pages", `syscall(279, 0, 0, 0, 0, 0, 0)`, no},
		{"x32 system calls", `syscall(0x40000000 + 39)`, no},
		{"i386 system calls", `i386(288, 0, -3, 1)`, append([]string{"SIGSEGV"}, no...)},
		{"System V shared memory", `syscall(29, 0, 4096, 0o1777)`, no},
		{"POSIX message queues", `syscall(240, b"probe", 0o101, 0o600, 0)`, no},
		{"AF_ALG", `socket.socket(38, socket.SOCK_SEQPACKET)`, noFamily},
		{"AF_VSOCK", `socket.socket(40, socket.SOCK_STREAM)`, noFamily},
		{"AF_PACKET", `socket.socket(17, socket.SOCK_RAW)`, noFamily},
		{"AF_NETLINK", `socket.socket(16, socket.SOCK_RAW)`, noFamily},
		{"AF_KEY", `socket.socket(15, socket.SOCK_RAW, 2)`, noFamily},
		{"AF_BLUETOOTH", `socket.socket(31, socket.SOCK_STREAM, 3)`, noFamily},
		{"AF_TIPC", `socket.socket(30, socket.SOCK_STREAM)`, noFamily},
		{"AF_XDP", `socket.socket(44, socket.SOCK_RAW)`, noFamily},
		{"raw sockets", `socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)`, noFamily},
		{"SCTP sockets", `socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)`, noFamily},
	} {
		out = append(out, probe{name: p.name, try: func(a *attempt) (outcome, error) {
			return a.mustRefuse(kernelHelpers+fmt.Sprintf("attempt(lambda: %s)", p.code), p.no...)
		}})
	}
	return out
}

// kernelHelpers are system calls that need more than an expression.
const kernelHelpers = `
def clone(flags):
    pid = syscall(56, flags | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)
def i386(nr, *args):
    import mmap
    code = b"\x53" + b"".join(op + struct.pack("i", v) for op, v in zip([b"\xb8", b"\xbb", b"\xb9", b"\xba"], (nr,) + args)) + b"\xcd\x80\x5b\xc3"
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    r = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    if r < 0:
        raise OSError(-r, os.strerror(-r))
    return r
`
