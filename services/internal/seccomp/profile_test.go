package seccomp

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
)

// verdict is the profile's decision about a call.
type verdict string

const (
	pass     verdict = "allowed"
	refused  verdict = "EPERM"
	noSuch   verdict = "ENOSYS"
	notHere  verdict = "ENOTSUP"
	deadly   verdict = "killed"
	high             = 1 << 32 // a bit that the kernel does not read in an int
	signExt          = 0xffffffff_00000000
	afNet            = 2
	sockRaw          = 3
	cloexec          = 0o2000000
	nonblock         = 0o4000
)

type call struct {
	name string
	args [6]uint64
	want verdict
}

func args(a ...uint64) (out [6]uint64) {
	copy(out[:], a)
	return out
}

// calls is the profile as a specification: what it must refuse, and what Python needs.
var calls = slices.Concat(
	plain(refused,
		// namespaces, mounts, roots
		"unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "mount_setattr", "move_mount", "open_tree",
		"fsopen", "fsconfig", "fsmount", "fspick", "sethostname", "setdomainname",
		// other processes, keyrings
		"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise", "process_mrelease",
		"keyctl", "add_key", "request_key",
		// the kernel
		"bpf", "perf_event_open", "userfaultfd", "memfd_secret", "kexec_load", "kexec_file_load", "init_module",
		"finit_module", "delete_module", "syslog", "lookup_dcookie", "iopl", "ioperm", "modify_ldt", "uselib", "sysfs",
		// the host
		"reboot", "swapon", "swapoff", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "acct", "quotactl",
		"quotactl_fd", "vhangup", "sync", "syncfs",
		// files by handle, watching all files, pages of others
		"open_by_handle_at", "name_to_handle_at", "fanotify_init", "fanotify_mark", "vmsplice",
		"mbind", "set_mempolicy", "get_mempolicy", "move_pages", "migrate_pages",
		// memory that outlives its process
		"shmget", "shmat", "semget", "msgget", "mq_open", "io_setup"),
	plain(noSuch, "clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "statmount", "getxattrat"),
	plain(notHere, "setxattr", "lsetxattr", "fsetxattr"),
	plain(pass,
		"read", "write", "openat", "openat2", "mmap", "mremap", "futex", "execve", "vfork", "wait4", "waitid", "prctl",
		"epoll_wait", "epoll_pwait", "eventfd2", "timerfd_create", "memfd_create", "sched_getaffinity", "getrandom",
		"pidfd_open", "pidfd_send_signal", "bind", "connect", "listen", "sendfile", "copy_file_range", "statx", "rseq",
		"seccomp", "landlock_create_ruleset", "listxattr", "getxattr", "close_range", "faccessat2", "fchmodat2",
		"membarrier"),
	[]call{
		{"socket", args(1, 1), pass},
		{"socket", args(1, 1|cloexec|nonblock), pass},
		{"socket", args(1, 5), pass},
		{"socket", args(afNet, 1), pass},
		{"socket", args(afNet, 1|cloexec, 6), pass},
		{"socket", args(afNet, 2, 17), pass},
		{"socket", args(10, 2), pass},
		{"socket", args(afNet, sockRaw), refused},
		{"socket", args(afNet, sockRaw|cloexec, 1), refused},
		{"socket", args(10, sockRaw, 58), refused},
		{"socket", args(afNet, 5, 132), refused},        // SCTP
		{"socket", args(afNet, 1, 132), refused},        // SCTP
		{"socket", args(afNet, 2, 115), refused},        // L2TP
		{"socket", args(afNet, 1, 262), refused},        // MPTCP
		{"socket", args(afNet, 2, 1), refused},          // ping
		{"socket", args(16, 3), refused},                // NETLINK
		{"socket", args(17, 3), refused},                // PACKET
		{"socket", args(17|high, 3), refused},           // PACKET
		{"socket", args(38, 5), refused},                // ALG
		{"socket", args(40, 1), refused},                // VSOCK
		{"socket", args(31, 1), refused},                // BLUETOOTH
		{"socket", args(44, 2), refused},                // XDP
		{"socketpair", args(1, 1), pass},                //
		{"socketpair", args(30, 1), refused},            // TIPC
		{"clone", args(0x11), pass},                     // fork
		{"clone", args(0x3d0f00), pass},                 // a thread
		{"clone", args(0x4111), pass},                   // vfork and exec
		{"clone", args(0x10000000 | 0x11), refused},     // NEWUSER
		{"clone", args(0x00020000 | 0x11), refused},     // NEWNS
		{"clone", args(0x40000000 | 0x3d0f00), refused}, // NEWNET
		{"clone", args(0x20000000), refused},            // NEWPID
		{"clone", args(0x08000000), refused},            // NEWIPC
		{"clone", args(0x04000000), refused},            // NEWUTS
		{"clone", args(0x02000000), refused},            // NEWCGROUP
		{"ioctl", args(0, 0x5401), pass},                // TCGETS
		{"ioctl", args(0, 0x80045430|signExt), pass},    // TIOCGPTN, as musl says it
		{"ioctl", args(0, 0x5412), refused},             // TIOCSTI
		{"ioctl", args(0, 0x5412|high), refused},        // the kernel reads TIOCSTI
		{"ioctl", args(0, 0x541c), refused},             // TIOCLINUX
		{"ioctl", args(0, 0xae01), refused},             // KVM_CREATE_VM
		{"mknod", args(0, 0o010644), pass},              // FIFO
		{"mknod", args(0, 0o100644), pass},              // file
		{"mknod", args(0, 0o020644), refused},           // character device
		{"mknodat", args(0, 0, 0o010644), pass},         //
		{"mknodat", args(0, 0, 0o060644), refused},      // block device
		{"mknodat", args(0, 0, 0o020644|high), refused}, //
		{"personality", args(0xffffffff), pass},         // asks
		{"personality", args(0x0040000), refused},       // ADDR_NO_RANDOMIZE
		{"personality", args(0x0400000), refused},       // READ_IMPLIES_EXEC
		{"prlimit64", args(0, 7), pass},                 //
		{"prlimit64", args(1, 7), refused},              // of another process
		{"prlimit64", args(1|high, 7), refused},         //
		{"sched_setaffinity", args(0, 8), pass},         //
		{"sched_setaffinity", args(1, 8), refused},      //
		{"sched_setscheduler", args(0, 5), pass},        //
		{"sched_setscheduler", args(1, 5), refused},     //
		{"sched_setparam", args(1), refused},            //
		{"sched_setattr", args(0), pass},                //
		{"sched_setattr", args(1), refused},             //
		{"setpriority", args(0, 0, 19), pass},           //
		{"setpriority", args(0, 1, 19), refused},        //
		{"setpriority", args(1, 0, 19), refused},        // a process group
		{"setpriority", args(2, 0, 19), refused},        // all processes of the user
		{"ioprio_set", args(1, 0), pass},                //
		{"ioprio_set", args(1, 1), refused},             //
		{"ioprio_set", args(3, 0), refused},             // all processes of the user
		{"socket", args(59, 59, 59), refused},           // an argument is no call's number
		{"socket", args(56, 56, 56), refused},           //
		{"clone", args(0x10000000 | 39), refused},       //
		{"ioctl", args(39, 39), refused},                //
		{"personality", args(39), refused},              //
	},
)

func plain(want verdict, names ...string) []call {
	out := make([]call, len(names))
	for i, name := range names {
		out[i] = call{name, args(^uint64(0), ^uint64(0)), want}
	}
	return out
}

var architectures = map[string]*arch.Info{"amd64": arch.X86_64, "arm64": arch.AARCH64}

func TestBPFAnswersEachCall(t *testing.T) {
	for goarch, info := range architectures {
		t.Run(goarch, func(t *testing.T) {
			seen := 0
			for _, c := range calls {
				nr, ok := info.SyscallNames[c.name]
				if !ok {
					continue
				}
				seen++
				if got := ask(t, info, uint32(info.ID), uint32(nr), c.args); got != c.want {
					t.Errorf("%s%#x: %s, want %s", c.name, c.args, got, c.want)
				}
			}
			if seen < 130 {
				t.Errorf("only %d of %d calls are known here", seen, len(calls))
			}
		})
	}
}

func TestDockerAnswersEachCall(t *testing.T) {
	p := parseDocker(t)
	for _, c := range calls {
		if got := p.ask(c.name, c.args); got != c.want {
			t.Errorf("%s%#x: %s, want %s", c.name, c.args, got, c.want)
		}
	}
}

// Both renderings agree on every call there is, with arguments at every border.
func TestRenderingsAgree(t *testing.T) {
	p := parseDocker(t)
	values := []uint64{
		0, 1, 2, 3, 5, 6, 10, 16, 17, 38, 39, 40, 56, 59, 0x5401, 0x5412, 0x010000, 0o100000, 0o020000, 0x7e020000,
		0x10000000, 0xffffffff, ^uint64(0), high, high | 1, high | 0x5412,
	}
	for goarch, info := range architectures {
		t.Run(goarch, func(t *testing.T) {
			vm := machine(t, info)
			last := slices.Max(slices.Concat(numbers(info, allowed), numbers(info, refusals[0].names)))
			for name, nr := range info.SyscallNames {
				for _, a := range values {
					for _, b := range values {
						in := args(a, b, a, b)
						want := p.ask(name, in)
						if uint32(nr) > last {
							want = noSuch // runc puts the same rule before Docker's profiles
						}
						if got := run(t, vm, uint32(info.ID), uint32(nr), in); got != want {
							t.Fatalf("%s%#x: BPF says %s, Docker's profile %s", name, in, got, want)
						}
					}
				}
			}
		})
	}
}

func TestForeignTables(t *testing.T) {
	info := arch.X86_64
	for name, c := range map[string]struct {
		arch, nr uint32
		want     verdict
	}{
		"i386 on amd64":       {uint32(arch.I386.ID), 3, deadly},
		"arm64 on amd64":      {uint32(arch.AARCH64.ID), 63, deadly},
		"x32 read":            {uint32(info.ID), x32, noSuch},
		"x32 ioctl":           {uint32(info.ID), x32 | 514, noSuch},
		"x32 ptrace":          {uint32(info.ID), x32 | 521, noSuch},
		"number -1":           {uint32(info.ID), 0xffffffff, noSuch},
		"newer than the list": {uint32(info.ID), 999, noSuch},
	} {
		if got := ask(t, info, c.arch, c.nr, args()); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if got := ask(t, arch.AARCH64, uint32(arch.ARM.ID), 3, args()); got != deadly {
		t.Errorf("arm on arm64: %s, want %s", got, deadly)
	}
}

func TestEveryNameIsACall(t *testing.T) {
	for _, names := range allNames() {
		for _, name := range names {
			_, amd := arch.X86_64.SyscallNames[name]
			_, arm := arch.AARCH64.SyscallNames[name]
			if !amd && !arm {
				t.Errorf("%q is in no table", name)
			}
		}
	}
}

// For a duplicate name the first rule would apply.
func TestEveryNameStandsOnce(t *testing.T) {
	all := slices.Concat(allNames()...)
	slices.Sort(all)
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			t.Errorf("duplicate %q", all[i])
		}
	}
}

// runc treats two conditions on one argument as alternatives, and libseccomp masks the
// value that it compares with.
func TestConditionsSuitLibseccomp(t *testing.T) {
	for _, r := range conditional {
		for _, all := range r.any {
			used := map[int]bool{}
			for _, c := range all {
				if used[c.arg] {
					t.Errorf("%v: argument %d has two conditions in one alternative", r.names, c.arg)
				}
				used[c.arg] = true
				if c.value&^c.mask != 0 {
					t.Errorf("%v: %#x can never be equal under the mask %#x", r.names, c.value, c.mask)
				}
			}
		}
	}
}

func allNames() [][]string {
	out := [][]string{allowed}
	for _, r := range conditional {
		out = append(out, r.names)
	}
	for _, r := range refusals {
		out = append(out, r.names)
	}
	return out
}

func ask(t *testing.T, info *arch.Info, archID, nr uint32, a [6]uint64) verdict {
	t.Helper()
	return run(t, machine(t, info), archID, nr, a)
}

func machine(t *testing.T, info *arch.Info) *bpf.VM {
	t.Helper()
	program, err := assemble(info)
	if err != nil {
		t.Fatal(err)
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// run gives the VM a struct seccomp_data. The VM reads big-endian words, as packets
// have them; each word is therefore written so, where the kernel has its own order.
func run(t *testing.T, vm *bpf.VM, archID, nr uint32, a [6]uint64) verdict {
	t.Helper()
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offNumber:], nr)
	binary.BigEndian.PutUint32(data[offArch:], archID)
	for i, v := range a {
		binary.BigEndian.PutUint32(data[offArgs+8*i:], uint32(v))
		binary.BigEndian.PutUint32(data[offArgs+8*i+4:], uint32(v>>32))
	}
	ret, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	switch uint32(ret) {
	case retAllow:
		return pass
	case retKill:
		return deadly
	case retErrno | errnoPerm:
		return refused
	case retErrno | errnoNoSys:
		return noSuch
	case retErrno | errnoNotSup:
		return notHere
	}
	return verdict(fmt.Sprintf("%#x", ret))
}

func parseDocker(t *testing.T) dockerProfile {
	t.Helper()
	var p dockerProfile
	dec := json.NewDecoder(strings.NewReader(Docker()))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		t.Fatal(err)
	}
	return p
}

// ask evaluates the profile as libseccomp does: a rule holds when all its arguments
// match, any rule will do.
func (p dockerProfile) ask(name string, a [6]uint64) verdict {
	for _, r := range p.Syscalls {
		if !slices.Contains(r.Names, name) {
			continue
		}
		holds := true
		for _, c := range r.Args {
			holds = holds && c.Op == dockerMasked && a[c.Index]&c.Value == c.ValueTwo
		}
		switch {
		case !holds:
		case r.Action == dockerAllow:
			return pass
		case r.Action == dockerErrno && r.ErrnoRet != nil && *r.ErrnoRet == errnoNoSys:
			return noSuch
		case r.Action == dockerErrno && r.ErrnoRet != nil && *r.ErrnoRet == errnoNotSup:
			return notHere
		}
	}
	if p.DefaultAction == dockerErrno {
		return refused
	}
	return verdict(p.DefaultAction)
}
