package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
)

// fill writes into a directory until it is full.
func fill(dir string, limit func(driver.Limits) int64) func(*attempt) (outcome, error) {
	return func(a *attempt) (outcome, error) {
		exit, err := a.run(a.ctx, agent.Run{Kind: agent.Python, Code: prelude + fmt.Sprintf(`
n, said = 0, ""
for i in range(64):
    try:
        with open(%q + str(i), "wb", buffering=0) as f:
            while n < 1 << 32:
                n += f.write(b"x" * (1 << 20))
                os.write(1, b"%%d\n" %% n)
    except OSError as e:
        said = errno.errorcode[e.errno]
    if said != "EFBIG": # what bounds one file bounds nothing
        break
[n, said]`, dir+"/fill")})
		var got []any
		if err == nil && exit.Result != nil {
			if err := decode(exit, &got); err != nil {
				return outcome{}, err
			}
		}
		reached := int64(lastNumber(exit.Stdout.Text))
		if most := limit(a.limits); reached > most {
			return hole("%d bytes fit into %s, the limit is %d", reached, dir, most)
		}
		if err == nil && exit.Code == 0 && (len(got) != 2 || got[1] == "") {
			return hole("the writer was not stopped: %+v", exit)
		}
		if len(got) == 2 && got[1] == "EFBIG" {
			return hole("%s accepts one full file after the other: %d bytes", dir, reached)
		}
		if reached == 0 {
			return refused("%v", got)
		}
		return bounded("%d MiB of %d, then %v %s", reached>>20, limit(a.limits)>>20, got, orNone(exit.Signal))
	}
}

// lastNumber returns the last number that a program printed before it was ended.
func lastNumber(text string) (n int) {
	for f := range strings.FieldsSeq(text) {
		_, _ = fmt.Sscan(f, &n) // a cut line leaves the previous number
	}
	return n
}

// inodes creates empty files until no more fit.
func inodes(dir string, limit func(driver.Limits) int64) func(*attempt) (outcome, error) {
	return func(a *attempt) (outcome, error) {
		exit, err := a.run(a.ctx, agent.Run{Kind: agent.Python, Code: prelude + fmt.Sprintf(`
os.mkdir(%q)
os.chdir(%[1]q)
n, said = 0, ""
try:
    while n < 400000:
        os.close(os.open("%%x" %% n, os.O_CREAT | os.O_WRONLY))
        n += 1
except OSError as e:
    said = errno.errorcode[e.errno]
[n, said]`, dir+"/many")})
		if err != nil {
			return bounded("%v", err)
		}
		if exit.TimedOut || exit.Signal != "" {
			return hole("%s accepts files without end: %+v", dir, exit)
		}
		var got []any
		if err := decode(exit, &got); err != nil {
			return outcome{}, err
		}
		made, _ := got[0].(float64)
		if most := limit(a.limits); int64(made) > most || got[1] == "" {
			return hole("%s accepted %v, the limit is %d", dir, got, most)
		}
		return bounded("%.0f files, then %v", made, got[1])
	}
}

// sparse creates a file that is 1 TB long and uses no space, and reads it through the agent.
func sparse(a *attempt) (outcome, error) {
	said, err := a.says(`
open("big", "w").close()
attempt(os.truncate, "big", 1 << 40)`)
	if err != nil {
		return outcome{}, err
	}
	data, size, readErr := a.Read(a.ctx, "big", 0, 1000)
	if len(data) > 1000 {
		return hole("reading 1000 bytes returns %d", len(data))
	}
	_, _, grepErr := a.Grep(a.ctx, agent.GrepQuery{Pattern: "needle", Max: 10})
	var counted counter
	exportErr := a.Export(a.ctx, &counted)
	if most := 4*a.limits.Workspace + 1<<20; int64(counted) > most {
		return hole("the export has %d bytes, the workspace is bounded to %d", counted, a.limits.Workspace)
	}
	if a.ctx.Err() != nil {
		return hole("reading it (%v), searching it (%v) or exporting it (%v) did not end", readErr, grepErr, exportErr)
	}
	if !strings.HasPrefix(said, "done") {
		return refused("truncate: %s", said)
	}
	return bounded("read %d bytes of %d (%v), grep %v, export of %d bytes %v", len(data), size, readErr, grepErr, counted,
		exportErr)
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func spin(a *attempt) (outcome, error) {
	var exit agent.Exit
	asked, err := a.whileNeighbourAnswers(func() (err error) {
		exit, err = a.run(a.ctx, agent.Run{Kind: agent.Python, Timeout: shortRun, Code: prelude + `
def burn():
    while True:
        pass
for _ in range(12):
    child(burn)
for _ in range(12):
    threading.Thread(target=burn, daemon=True).start()
burn()`})
		return err
	})
	if err != nil {
		return outcome{}, err
	}
	if !exit.TimedOut {
		return hole("24 endless loops ended by themselves: %+v", exit)
	}
	if left := a.strays(); len(left) > 0 {
		return hole("after the call these are left: %v", left)
	}
	return bounded("ended at its timeout, neighbour asked %d times", asked)
}

// descriptors opens descriptors until that is refused.
func descriptors(open string) func(*attempt) (outcome, error) {
	return func(a *attempt) (outcome, error) {
		var got []any
		err := a.eval(a.ctx, &got, fmt.Sprintf(`
keep = []
def pipe():
    import fcntl
    r, w = os.pipe()
    try:
        fcntl.fcntl(w, 1031, 1 << 20)
        os.set_blocking(w, False)
        os.write(w, b"x" * (1 << 20))
    except OSError:
        pass
said = ""
try:
    for _ in range(100000):
        %s
except OSError as e:
    said = errno.errorcode[e.errno]
[len([f for f in range(100000) if attempt(os.fstat, f).startswith("done")]), said]`, open))
		if err != nil {
			return outcome{}, err
		}
		if n, _ := got[0].(float64); int64(n) > a.limits.OpenFiles || got[1] == "" {
			return hole("it has %v open, the limit is %d", got, a.limits.OpenFiles)
		}
		return bounded("%v open, then %v", got[0], got[1])
	}
}

func hugeArguments(a *attempt) (outcome, error) {
	said, err := a.says(`attempt(os.execv, "/bin/true", ["true"] + ["x" * 100000] * 200)`)
	if err != nil {
		return outcome{}, err
	}
	if said != "E2BIG" {
		return hole("20 MB of arguments: %s", said)
	}
	// An argument that the kernel refuses must not harm the agent either.
	exit, err := a.run(a.ctx, agent.Run{Kind: agent.Argv, Argv: []string{"true", strings.Repeat("x", 200<<10)}})
	if err == nil && exit.Code == 0 {
		return hole("an argument of 200 KiB was accepted")
	}
	return refused("%s in the sandbox; by the agent: exit %d, %v", said, exit.Code, err)
}

func deepRecursion(a *attempt) (outcome, error) {
	exit, err := a.python(a.ctx, `
sys.setrecursionlimit(10 ** 9)
class C:
    def __repr__(self): return repr([self])
repr(C())`)
	if err != nil {
		return outcome{}, err
	}
	if exit.Code == 0 {
		return hole("it ended: %+v", exit)
	}
	return bounded("exit %d %s", exit.Code, exit.Signal)
}

// deepDirectories creates paths that are longer than any path may be, and has the agent
// search and remove them.
func deepDirectories(a *attempt) (outcome, error) {
	said, err := a.says(`
n = 0
os.mkdir("deep")
os.chdir("deep")
try:
    while n < 3000:
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
        n += 1
except OSError:
    pass
str(n)`)
	if err != nil {
		return outcome{}, err
	}
	_, _, globErr := a.Glob(a.ctx, "**/*", 10)
	_, _, grepErr := a.Grep(a.ctx, agent.GrepQuery{Pattern: "needle"})
	exportErr := a.Export(a.ctx, new(counter))
	removeErr := a.Remove(a.ctx, "deep", true)
	if a.ctx.Err() != nil {
		return hole("glob (%v), grep (%v), export (%v) or remove (%v) did not end", globErr, grepErr, exportErr, removeErr)
	}
	return bounded("%s levels; glob: %v, grep: %v, export: %v, remove: %v", said, globErr, grepErr, exportErr, removeErr)
}

// coreDumps checks for core dumps, which the host's own handler would write.
func coreDumps(a *attempt) (outcome, error) {
	var limits []int64
	if err := a.eval(a.ctx, &limits, `
import resource
list(resource.getrlimit(resource.RLIMIT_CORE))`); err != nil {
		return outcome{}, err
	}
	if limits[0] != 0 || limits[1] != 0 {
		return hole("a core may have %d bytes, and %d if the sandbox raises the limit", limits[0], limits[1])
	}
	exit, err := a.python(a.ctx, `ctypes.string_at(0)`)
	if err != nil || exit.Signal != "SIGSEGV" {
		return hole("a segmentation fault ended with %+v, %v", exit, err)
	}
	return refused("RLIMIT_CORE is 0")
}

// userQuotas exhausts what the kernel counts per user and not per namespace or cgroup:
// where sandboxes share a user, a neighbour would get nothing.
func userQuotas(a *attempt) (outcome, error) {
	const take = `
import fcntl
keep, said = [], {}
def inotify():
    keep.append(syscall(294, 0o2000000))
def pipe():
    r, w = os.pipe()
    keep.extend((r, w))
    return fcntl.fcntl(w, 1031, 1 << 20)
def inflight():
    l, r = socket.socketpair()
    keep.extend((l, r))
    socket.send_fds(l, [b"x"], [0] * 200)
`
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	full, done := make(chan struct{}), make(chan error, 1)
	tell := sync.OnceFunc(func() { close(full) })
	go func() {
		_, err := a.run(ctx, agent.Run{
			Kind: agent.Python, Timeout: patience / 2, Output: func(agent.Stream, []byte) { tell() }, Code: prelude + take + `
ready, tell = os.pipe()
def all():
    for f in (inotify, inflight, pipe):
        for _ in range(80):
            try:
                f()
            except OSError:
                break
    os.write(tell, b"x")
    time.sleep(3600)
for _ in range(20):
    child(all)
for _ in range(20):
    os.read(ready, 1)
print("full", flush=True)
time.sleep(3600)`,
		})
		done <- err
	}()
	select {
	case <-full:
	case err := <-done:
		return outcome{}, fmt.Errorf("nothing was used up: %w", err)
	}
	var said []string
	err := a.s.neighbour.eval(a.ctx, &said, take+`[attempt(inotify), attempt(inflight), attempt(pipe)]`)
	cancel()
	if ended := <-done; errors.Is(ended, agent.ErrBroken) {
		err = errors.Join(err, ended)
	}
	if err != nil {
		return hole("while another sandbox exhausts quotas the neighbour reports %v", err)
	}
	for _, what := range said {
		if !strings.HasPrefix(what, "done") && what != "EPERM" && what != "ENOSYS" {
			return hole("another sandbox has exhausted what the neighbour needs: inotify %s, descriptors in flight %s, pipes %s",
				said[0], said[1], said[2])
		}
	}
	return bounded("the neighbour still has its own: %q", said)
}

// socketBuffers fills sockets without readers, in many processes, until the kernel accepts
// no more or far too much is buffered. Every sandbox sees the total of the host's sockets.
func socketBuffers(a *attempt) (outcome, error) {
	var pages []int
	err := a.eval(a.ctx, &pages, `
def used():
    return sum(int(line.split("mem ")[1]) for line in get("/proc/net/sockstat").decode().splitlines() if "mem " in line)
def streams():
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    while sum(sent) < most:
        keep.append(socket.create_connection(listener.getsockname(), 5))
        keep[-1].setblocking(False)
        try:
            while sum(sent) < most:
                sent.append(keep[-1].send(piece))
        except BlockingIOError:
            pass
def datagrams():
    while sum(sent) < most:
        keep.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        keep[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 30)
        keep[-1].bind(("127.0.0.1", 0))
        for _ in range(400):
            sent.append(keep[-1].sendto(piece[:32768], keep[-1].getsockname()))
def fill(kind):
    try:
        kind()
    except OSError:
        pass
    os.write(full[1], b".")
    os.read(over[0], 1)
most, sent, keep, piece = 64 << 20, [], [], b"x" * (1 << 16)
full, over, before = os.pipe(), os.pipe(), used()
for kind in [streams, datagrams] * 6:
    child(lambda: fill(kind))
for _ in range(12):
    select.select([full[0]], [], [], 10) and os.read(full[0], 1)
[before, used()]`)
	if err != nil {
		return bounded("the sandbox: %v", err)
	}
	taken := int64(pages[1]-pages[0]) * int64(os.Getpagesize())
	if taken > a.limits.Memory {
		return hole("they have %d MiB of the host's memory, the limit is %d MiB", taken>>20, a.limits.Memory>>20)
	}
	return bounded("%d MiB, the limit of memory is %d MiB", taken>>20, a.limits.Memory>>20)
}

// terminals opens pseudo-terminals, whose number is limited for the whole host.
func terminals(a *attempt) (outcome, error) {
	var n int
	if err := a.eval(a.ctx, &n, `
n = 0
try:
    while n < 100:
        os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
        n += 1
except OSError:
    pass
n`); err != nil {
		return outcome{}, err
	}
	if n > 64 {
		return hole("one process got %d pseudo-terminals", n)
	}
	return bounded("%d pseudo-terminals", n)
}
