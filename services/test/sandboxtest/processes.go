package sandboxtest

import (
	"runtime"
	"strings"

	"skandha.dev/services/sandbox/agent"
)

// attach is a system call on another process, with amd64's numbers.
const attach = `
def iov(target):
    local = ctypes.create_string_buffer(8)
    return (ctypes.c_void_p * 2)(ctypes.addressof(local), 8), (ctypes.c_void_p * 2)(target, 8), local
def vm(nr, pid):
    local, remote, keep = iov(0x10000)
    return syscall(nr, pid, local, 1, remote, 1, 0)
def sibling(f):
    pid = child(lambda: time.sleep(60))
    try:
        return f(pid)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
def steal(pid, fd):
    return syscall(438, syscall(434, pid, 0), fd, 0)
`

// processProbes attack the sandbox's first process, the agent, and its other processes.
func processProbes() []probe {
	denied := append([]string{"ENOENT", "ENXIO"}, no...)
	var out []probe
	for _, p := range []struct {
		name, code string
		no         []string
	}{
		{"ptrace of itself by its parent", `syscall(101, 0, 0, 0, 0)`, no},
		{"ptrace of PID 1", `syscall(101, 16, 1, 0, 0)`, no},
		{"ptrace of a sibling", `sibling(lambda pid: syscall(101, 0x4206, pid, 0, 0))`, no},
		{"process_vm_writev to PID 1", `vm(311, 1)`, no},
		{"process_vm_readv of PID 1", `vm(310, 1)`, no},
		{"process_vm_writev to a sibling", `sibling(lambda pid: vm(311, pid))`, no},
		{"pidfd_getfd of PID 1", `steal(1, 0)`, no},
		{"kcmp with PID 1", `syscall(312, 1, os.getpid(), 2, 0, 0)`, no},
		{"memory of PID 1 by /proc", `os.open("/proc/1/mem", os.O_RDWR)`, denied},
		{"environment of PID 1", `get("/proc/1/environ")`, denied},
		{"map of PID 1", `get("/proc/1/maps")`, denied},
		{"root of PID 1", `os.listdir("/proc/1/root/")`, denied},
		{"seccomp of PID 1 by ptrace", `syscall(101, 0x420c, 1, 0, 0)`, no},
	} {
		unfit := ""
		if runtime.GOARCH != "amd64" && strings.Contains(p.code, "(") && !strings.HasPrefix(p.code, "os.") &&
			!strings.HasPrefix(p.code, "get(") {
			unfit = "the numbers are amd64's, this is " + runtime.GOARCH
		}
		out = append(out, probe{name: p.name, unfit: unfit, try: func(a *attempt) (outcome, error) {
			return a.mustRefuse(attach+"attempt(lambda: "+p.code+")", p.no...)
		}})
	}
	return append(
		out,
		probe{name: "the agent's pipe by /proc/1/fd", try: forgeByProc},
		probe{name: "the agent's pipe by inherited descriptors", try: forgeByInheritance},
		probe{name: "kill PID 1 with every signal", alone: true, try: killInit},
		probe{name: "kill everybody", alone: true, try: killAll},
		probe{name: "limits of PID 1", alone: true, try: limitInit},
		probe{name: "PID 1 as the out-of-memory killer's victim", alone: true, limit: "memory", try: sacrificeInit},
		probe{name: "stop PID 1 from being scheduled", alone: true, try: starveInit},
		probe{name: "rename and group of PID 1", try: regroupInit},
	)
}

// forgeByProc writes forged frames to the agent's descriptors.
func forgeByProc(a *attempt) (outcome, error) {
	said, err := a.says(`
out = []
for fd in range(0, 10):
    for flags in (os.O_RDONLY, os.O_WRONLY):
        said = attempt(put if flags else get, "/proc/1/fd/%d" % fd, *([b"\x00\x00\x00\x02{}\n"] if flags else [16]))
        if said.startswith("done") or said == "EAGAIN":
            out.append("%d: %s" % (fd, said))
" ".join(out)`)
	if err != nil {
		return outcome{}, err
	}
	if said != "" {
		return hole("descriptors of PID 1 can be used: %s", said)
	}
	return refused("none can be opened")
}

// forgeByInheritance writes garbage to every descriptor that a run inherits from the agent.
// Its own result pipe may accept it: the result is the run's report about itself.
func forgeByInheritance(a *attempt) (outcome, error) {
	exit, err := a.python(a.ctx, `
import fcntl
tried = 0
for fd in range(0, 256):
    try:
        if fd in (1, 2):
            continue
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)
        tried += 1
        os.write(fd, b'\x00\x00\x00\x10{"id":1,"exit":{"code":77}}\n{"type":"exit","code":77}\n' * 3)
    except OSError:
        pass
tried`)
	if err != nil && a.answersAfterForging() != nil {
		return harmless("the sandbox is broken: %v", err)
	}
	if exit.Code == 77 {
		return hole("a run has forged its exit frame: %+v", exit)
	}
	if err := a.answersAfterForging(); err != nil {
		return harmless("the sandbox is broken: %v", err)
	}
	return harmless("%s descriptors tried, the next call is answered correctly", exit.Result)
}

func (a *attempt) answersAfterForging() error { return a.answers(a.ctx) }

// killInit sends all signals to PID 1, from two sides.
func killInit(a *attempt) (outcome, error) {
	said, err := a.says(`
out = []
for s in sorted(signal.valid_signals()):
    said = attempt(os.kill, 1, s)
    if not said.startswith("done"):
        out.append("%d: %s" % (s, said))
" ".join(out)`)
	if err != nil {
		return harmless("the run got no answer: %v", err)
	}
	return harmless("it survives them all; refused were: %s", orNone(said))
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// killAll ends every process that the caller may signal.
func killAll(a *attempt) (outcome, error) {
	exit, err := a.shell("kill -9 -1; kill -9 $PPID; echo survived")
	if err != nil {
		return harmless("the run got no answer: %v", err)
	}
	return harmless("exit %d %s", exit.Code, exit.Signal)
}

// limitInit removes the agent's limits, each in a separate call: failures of later calls
// would be the agent's, shown as theirs.
func limitInit(a *attempt) (outcome, error) {
	for _, limit := range []string{"NOFILE", "CPU", "AS", "DATA", "NPROC", "FSIZE"} {
		said, err := a.says(`
import resource
attempt(resource.prlimit, 1, resource.RLIMIT_` + limit + `, (0, 0))`)
		if err != nil || said != "EPERM" {
			return hole("setting %s of PID 1 to 0 returns %q, %v", limit, said, err)
		}
	}
	return refused("EPERM")
}

// sacrificeInit makes PID 1 the preferred victim of the kernel's killer and uses all memory.
func sacrificeInit(a *attempt) (outcome, error) {
	said, err := a.says(`attempt(put, "/proc/1/oom_score_adj", b"1000")`)
	if err != nil {
		return outcome{}, err
	}
	exit, err := a.python(a.ctx, `
try:
    put("/proc/self/oom_score_adj", b"0")
except OSError:
    pass
keep = []
while True:
    keep.append(bytearray(b"x") * (8 << 20))`)
	if err != nil {
		return bounded("writing the score: %s; the sandbox: %v", said, err)
	}
	return bounded("writing the score: %s; the eater: %d %s", said, exit.Code, exit.Signal)
}

// starveInit takes the processor away from PID 1, by all available system calls and then by
// processes that never pause. The deadline must hold.
func starveInit(a *attempt) (outcome, error) {
	said, err := a.says(`
" ".join([attempt(os.setpriority, os.PRIO_PROCESS, 1, 19), attempt(os.setpriority, os.PRIO_USER, 0, 19),
    attempt(os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0)), attempt(os.sched_setparam, 1, os.sched_param(0)),
    attempt(os.sched_setaffinity, 1, [sorted(os.sched_getaffinity(1))[0]]), attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50))])`)
	if err != nil {
		return outcome{}, err
	}
	if strings.Contains(said, "done") {
		return hole("a run may change how PID 1 is scheduled, or run in real time: %s", said)
	}
	exit, err := a.run(a.ctx, agent.Run{Kind: agent.Python, Timeout: shortRun, Code: prelude + `
os.sched_setaffinity(0, [sorted(os.sched_getaffinity(0))[0]])
try:
    while True:
        if os.fork() == 0:
            os.setsid()
            while True: pass
except OSError:
    while True: pass`})
	if err != nil || !exit.TimedOut {
		return hole("processes that never pause are not ended in time: %+v, %v", exit, err)
	}
	return refused("%s; %d busy processes were ended in time", said, exit.Strays)
}

func regroupInit(a *attempt) (outcome, error) {
	said, err := a.says(`" ".join([attempt(os.setpgid, 1, os.getpid()), attempt(put, "/proc/1/comm", b"probe"), attempt(put, "/proc/1/oom_adj", b"15"),
    attempt(put, "/proc/1/uid_map", b"0 0 1"), attempt(put, "/proc/self/uid_map", b"0 0 1"), attempt(put, "/proc/1/attr/current", b"x"), attempt(put, "/proc/1/clear_refs", b"1")])`)
	if err != nil {
		return outcome{}, err
	}
	if strings.Contains(said, "done") {
		return hole("it returns %q", said)
	}
	return refused("%s", said)
}
