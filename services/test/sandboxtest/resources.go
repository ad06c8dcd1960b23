package sandboxtest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
)

// shortRun is the timeout of endless runs.
const shortRun = 1500 * time.Millisecond

// resourceProbes exhaust a sandbox's resources.
func resourceProbes() []probe {
	return []probe{
		{name: "fork bomb", alone: true, limit: "pids", try: forkBomb(agent.Python, `
said = False
while True:
    try:
        os.fork()
    except OSError:
        if not said:
            said = True
            print('fork refused', file=sys.stderr, flush=True)`)},
		{
			name: "fork bomb in the shell", alone: true, limit: "pids",
			try: forkBomb(agent.Shell, `f() { f | f & }; f; while :; do f; done`),
		},
		{name: "fork bomb of sessions", alone: true, limit: "pids", try: forkBomb(agent.Python, `
signal.signal(signal.SIGTERM, signal.SIG_IGN)
said = False
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        if not said:
            said = True
            print('fork refused', file=sys.stderr, flush=True)`)},
		{name: "thread bomb", alone: true, limit: "pids", try: threadBomb},
		{name: "zombies", alone: true, limit: "pids", try: zombies},
		{name: "memory by bytearray", limit: "memory", try: memoryBomb(`keep.append(bytearray(b"x") * (8 << 20))`)},
		{name: "memory by malloc", limit: "memory", try: memoryBomb(`
    p = malloc(8 << 20)
    if not p:
        raise MemoryError
    ctypes.memset(p, 1, 8 << 20)`)},
		{name: "memory by shared mapping", limit: "memory", try: memoryBomb(`
    m = mmap.mmap(-1, 8 << 20)
    m.write(b"x" * (8 << 20))
    keep.append(m)`)},
		{name: "memory by memfd", limit: "memory", try: memoryBomb(`
    fd = os.memfd_create("probe")
    keep.append(fd)
    os.write(fd, b"x" * (8 << 20))`)},
		{name: "memory by many processes", alone: true, limit: "memory", try: memoryOfMany},
		{name: "memory by a list", limit: "memory", try: memoryBomb(`keep.append(list(range(1 << 18)))`)},
		{
			name: "fill the workspace", alone: true, limit: "workspace",
			try: fill(driver.Workspace, func(l driver.Limits) int64 { return l.Workspace }),
		},
		{name: "fill /tmp", alone: true, try: fill(driver.Tmp, func(l driver.Limits) int64 { return l.Tmp })},
		{name: "fill /dev/shm", alone: true, try: fill("/dev/shm", func(l driver.Limits) int64 { return l.Memory })},
		{
			name: "inodes of the workspace", alone: true, limit: "files",
			try: inodes(driver.Workspace, func(l driver.Limits) int64 { return l.WorkspaceFiles }),
		},
		{
			name: "inodes of /tmp", alone: true, limit: "files",
			try: inodes(driver.Tmp, func(driver.Limits) int64 { return 200000 }),
		},
		{name: "sparse file of 1 TB", alone: true, try: sparse},
		{name: "CPU", alone: true, try: spin},
		{name: "file descriptors", try: descriptors(`os.open("/dev/null", os.O_RDONLY)`)},
		{name: "sockets", try: descriptors(`keep.append(socket.socket(socket.AF_UNIX)) or keep.append(socket.socket())`)},
		{name: "socket buffers", alone: true, limit: "socket buffers", try: socketBuffers},
		{name: "pseudo-terminals", try: terminals},
		{name: "pipes", try: descriptors(`pipe()`)},
		{name: "huge arguments", try: hugeArguments},
		{name: "deep recursion", try: deepRecursion},
		{name: "deep directories", alone: true, try: deepDirectories},
		{name: "core dumps", try: coreDumps},
		{name: "quotas that the kernel keeps per user", alone: true, try: userQuotas},
		{name: "locked memory", limit: "memory", try: memoryBomb(`
    p = malloc(8 << 20)
    if not p or libc_mlock(ctypes.c_void_p(p), ctypes.c_size_t(8 << 20)):
        raise MemoryError
    ctypes.memset(p, 1, 8 << 20)`)},
	}
}

func forkBomb(kind agent.Kind, code string) func(*attempt) (outcome, error) {
	return func(a *attempt) (outcome, error) {
		if kind == agent.Python {
			code = prelude + code
		}
		var exit agent.Exit
		var most, asked int
		var err error
		fizzled := func() bool {
			return err == nil && most < int(a.limits.PIDs)/2 && !strings.Contains(exit.Stderr.Text, "fork")
		}
		// On a busy machine the bomb may need longer to go off.
		for _, timeout := range []time.Duration{shortRun, 10 * shortRun} {
			most, err = a.watch(namespace.threads, func() (err error) {
				asked, err = a.whileNeighbourAnswers(func() (err error) {
					exit, err = a.run(a.ctx, agent.Run{Kind: kind, Code: code, Timeout: timeout})
					return err
				})
				return err
			})
			if !fizzled() {
				break
			}
		}
		// The driver's own processes in the namespace, e.g. an init, are additional.
		if limit := int(a.limits.PIDs) + 8; most > limit {
			return hole("there were %d processes at once, the limit is %d", most, a.limits.PIDs)
		}
		if left := a.strays(); len(left) > 0 {
			return hole("after the call these are left: %v", left)
		}
		// A bomb that was not observed to fill the sandbox must itself report that.
		if fizzled() {
			return hole("it was no bomb: at most %d processes, exit %d %s %s", most, exit.Code, exit.Signal,
				tail(exit.Stderr.Text))
		}
		if err != nil {
			return bounded("at most %d processes, neighbour asked %d times; %v", most, asked, err)
		}
		return bounded("at most %d processes, neighbour asked %d times, exit %d %s, %d strays ended", most, asked, exit.Code,
			exit.Signal, exit.Strays)
	}
}

// endless runs an endless program until its timeout. On a busy machine it may need longer
// until it prints.
func (a *attempt) endless(says string, r agent.Run) (exit agent.Exit, err error) {
	for r.Timeout = shortRun; ; r.Timeout *= 4 {
		exit, err = a.run(a.ctx, r)
		if err != nil || !exit.TimedOut || strings.Contains(exit.Stdout.Text, says) || r.Timeout > patience/4 {
			return exit, err
		}
	}
}

// strays returns the processes that a call has left, beyond those of an idle sandbox.
func (a *attempt) strays() []string {
	return until(gone, func() []string {
		procs := a.ns.processes()
		if len(procs) <= a.idle {
			return nil
		}
		var out []string
		for _, p := range procs {
			out = append(out, p.String())
		}
		return out
	})
}

func threadBomb(a *attempt) (outcome, error) {
	exit, err := a.endless("\n", agent.Run{Kind: agent.Python, Code: prelude + `
n = 0
threading.stack_size(64 << 10)
try:
    while True:
        threading.Thread(target=time.sleep, args=(3600,)).start()
        n += 1
except (RuntimeError, MemoryError):
    print(n, flush=True)`})
	if err != nil {
		return bounded("%v", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(exit.Stdout.Text))
	if err != nil || n > int(a.limits.PIDs) {
		return hole("%q threads were started (%v), the limit is %d", exit.Stdout.Text, exit, a.limits.PIDs)
	}
	return bounded("%d threads; timed out: %v, %d %s", n, exit.TimedOut, exit.Code, exit.Signal)
}

// zombies leaves unreaped children, call after call.
func zombies(a *attempt) (outcome, error) {
	for range 4 {
		if _, err := a.python(a.ctx, `
for _ in range(20):
    child(lambda: child(lambda: None))`); err != nil {
			return outcome{}, fmt.Errorf("zombies of one call outlive it: %w", err)
		}
	}
	if left := a.strays(); len(left) > 0 {
		return hole("zombies are left: %v", left)
	}
	return bounded("all are reaped when the call ends")
}

// memoryBomb repeats the step, which uses 8 MiB, and reports the total.
func memoryBomb(step string) func(*attempt) (outcome, error) {
	return func(a *attempt) (outcome, error) {
		exit, err := a.run(a.ctx, agent.Run{Kind: agent.Python, Code: prelude + `
import mmap
malloc, libc_mlock = _libc.malloc, _libc.mlock
malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
keep, n = [], 0
while n < 4096:
    ` + strings.TrimSpace(step) + `
    n += 8
    os.write(1, b"%d\n" % n)`})
		steps := strings.Fields(exit.Stdout.Text)
		reached := 0
		if len(steps) > 0 {
			reached, _ = strconv.Atoi(steps[len(steps)-1]) // a number, or nothing was reached
		}
		if int64(reached)<<20 > a.limits.Memory {
			return hole("it got %d MiB, the limit is %d MiB", reached, a.limits.Memory>>20)
		}
		if err != nil {
			return bounded("%d MiB: %v", reached, err)
		}
		if exit.Signal != "SIGKILL" && !strings.Contains(exit.Stderr.Text, "MemoryError") {
			return hole("after %d MiB it was stopped by something else: %d %s %s", reached, exit.Code, exit.Signal,
				tail(exit.Stderr.Text))
		}
		if reached == 0 {
			return refused("not even 8 MiB")
		}
		return bounded("%d MiB of %d, then %d %s", reached, a.limits.Memory>>20, exit.Code, exit.Signal)
	}
}

// memoryOfMany uses, in each of 16 processes, as much as one process may use.
func memoryOfMany(a *attempt) (outcome, error) {
	asked := 0
	most, err := a.watch(namespace.resident, func() (err error) {
		asked, err = a.whileNeighbourAnswers(func() error {
			_, err := a.run(a.ctx, agent.Run{Kind: agent.Python, Timeout: 3 * time.Second, Code: prelude + `
def eat():
    keep = []
    for n in range(1, 65):
        keep.append(bytearray(b"x") * (1 << 20))
    time.sleep(60)
for _ in range(16):
    child(eat)
for _ in range(16):
    os.wait()`})
			return err
		})
		return err
	})
	if int64(most) > a.limits.Memory+a.limits.Memory/8 {
		return hole("they had %d MiB at once, the limit is %d MiB", most>>20, a.limits.Memory>>20)
	}
	return bounded("at most %d MiB resident of 1024 wanted, limit %d, neighbour asked %d times (%v)", most>>20,
		a.limits.Memory>>20, asked, err)
}
