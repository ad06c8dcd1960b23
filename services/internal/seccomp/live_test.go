//go:build linux

package seccomp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// The test binary runs itself again, under the filter; this variable selects the role.
const liveEnv = "SECCOMP_TEST_LIVE"

func TestMain(m *testing.M) {
	switch os.Getenv(liveEnv) {
	case "":
		os.Exit(m.Run())
	case "calls":
		confine()
		callAll()
	case "exec":
		confine()
		err := syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(3)
}

// confine applies the filter to all threads of this process.
func confine() {
	code, err := BPF()
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if err == nil {
		prog := unix.SockFprog{Len: uint16(len(code) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(&code[0]))}
		_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
			uintptr(unsafe.Pointer(&prog)))
		if e != 0 {
			err = e
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "confining the test:", err)
		os.Exit(4)
	}
}

// callAll makes every call that must be refused, and prints the kernel's answers.
func callAll() {
	info, err := arch.GetInfo("")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(5)
	}
	said := map[int]verdict{}
	for i, c := range calls {
		nr, ok := info.SyscallNames[c.name]
		if !ok || c.want == pass {
			continue
		}
		a := c.args
		_, _, e := unix.RawSyscall6(uintptr(nr), uintptr(a[0]), uintptr(a[1]), uintptr(a[2]), uintptr(a[3]), uintptr(a[4]),
			uintptr(a[5]))
		switch e {
		case unix.EPERM:
			said[i] = refused
		case unix.ENOSYS:
			said[i] = noSuch
		case unix.ENOTSUP:
			said[i] = notHere
		default:
			said[i] = verdict(fmt.Sprintf("errno %d", e))
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(said)
	os.Exit(0)
}

func TestKernelRefuses(t *testing.T) {
	out := live(t, "calls")
	said := map[int]verdict{}
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(said) < 100 {
		t.Fatalf("only %d calls were tried", len(said))
	}
	for i, got := range said {
		if c := calls[i]; got != c.want {
			t.Errorf("%s%#x: %s, want %s", c.name, c.args, got, c.want)
		}
	}
}

// A child's end by int 0x80 would need assembly; that a foreign table kills is
// checked by TestForeignTables.

// Ordinary Python programs work under the filter.
func TestPythonWorks(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		missing(t, "python3 is not on PATH")
	}
	for name, code := range map[string]string{
		"threads": `
import threading, queue
q = queue.Queue()
ts = [threading.Thread(target=lambda i=i: q.put(i)) for i in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
assert sorted(q.get() for _ in ts) == list(range(8))`,
		"subprocess": `
import subprocess
assert subprocess.run(["/bin/sh", "-c", "cat | wc -c; exit 7"], input=b"x" * 100000, capture_output=True).returncode == 7
assert subprocess.check_output("echo $((6*7))", shell=True) == b"42\n"
assert subprocess.run(["cp", "-a", "/etc/hostname", "c"]).returncode == 0`,
		"multiprocessing, fork": `
import multiprocessing as m
with m.get_context("fork").Pool(2) as p: assert p.map(abs, [-1, 2]) == [1, 2]`,
		"multiprocessing, spawn and shared memory": `
import multiprocessing as m
from multiprocessing import shared_memory
if __name__ == "__main__":
    c = m.get_context("spawn"); lock = c.Lock(); v = c.Value("i", 0)
    with lock: v.value += 1
    p = c.Process(target=abs, args=(-1,)); p.start(); p.join(); assert p.exitcode == 0
    s = shared_memory.SharedMemory(create=True, size=100); s.buf[0] = 7; s.close(); s.unlink()`,
		"asyncio": `
import asyncio
async def main():
    async def serve(r, w): w.write(await r.readline()); await w.drain(); w.close()
    s = await asyncio.start_server(serve, "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*s.sockets[0].getsockname()); w.write(b"hi\n")
    assert await r.readline() == b"hi\n"; w.close(); s.close()
    p = await asyncio.create_subprocess_exec("/bin/echo", "x", stdout=-1); assert (await p.communicate())[0] == b"x\n"
asyncio.run(main())`,
		"sockets": `
import socket, select
a, b = socket.socketpair(); a.send(b"x"); assert select.select([b], [], [], 5)[0]
socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); socket.getaddrinfo("127.0.0.1", 80)`,
		"files": `
import os, shutil, mmap, tempfile, fcntl
open("a", "w").write("x" * 5000); shutil.copy2("a", "b"); os.mkfifo("f"); os.symlink("a", "l"); os.mkdir("d")
shutil.copytree("d", "e"); shutil.make_archive("z", "gztar", "d"); os.scandir("."); os.utime("a"); os.chmod("a", 0o600)
f = open("a", "r+b"); m = mmap.mmap(f.fileno(), 0); m[0:1] = b"y"; m.flush(); fcntl.flock(f, fcntl.LOCK_EX)
os.posix_fallocate(f.fileno(), 0, 9000); tempfile.TemporaryFile().write(b"x"); os.sendfile(1, f.fileno(), 0, 0)`,
		"signals and timers": `
import signal, time
hit = []; signal.signal(signal.SIGALRM, lambda *_: hit.append(1)); signal.setitimer(signal.ITIMER_REAL, 0.001)
while not hit: time.sleep(0.001)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); signal.raise_signal(signal.SIGUSR1); assert signal.sigwait([signal.SIGUSR1])`,
		"terminals": `
import os, pty, termios, tty
m, s = pty.openpty(); tty.setraw(s); assert os.isatty(s); termios.tcgetwinsize(s) if hasattr(termios, "tcgetwinsize") else None
pid, fd = pty.fork()
if not pid: os._exit(0)
assert os.waitpid(pid, 0)[1] == 0`,
		"resources": `
import resource, os, platform
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); os.sched_getaffinity(0); os.nice(1); platform.uname(); os.getloadavg(); os.urandom(4)`,
		"sqlite, compression, hashes": `
import sqlite3, zlib, hashlib, lzma
c = sqlite3.connect("db"); c.execute("pragma journal_mode=wal"); c.execute("create table t(x)"); c.execute("insert into t values(1)"); c.commit()
hashlib.sha256(lzma.compress(zlib.compress(b"x"))).digest()`,
	} {
		t.Run(name, func(t *testing.T) {
			file := t.TempDir() + "/main.py"
			if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			live(t, "exec", python, "-B", file)
		})
	}
}

func TestNumPyWorks(t *testing.T) {
	python := "/usr/bin/python3" // a version manager's has no packages of the distribution
	if exec.CommandContext(t.Context(), python, "-c", "import numpy").Run() != nil {
		missing(t, "NumPy is not installed (Debian: python3-numpy)")
	}
	live(t, "exec", python, "-c", "import numpy as n; a = n.random.rand(500, 500); assert (a @ a).shape == (500, 500)")
}

// live runs the test binary under the filter and returns what it printed.
func live(t *testing.T, what string, args ...string) []byte {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), liveEnv+"="+what)
	cmd.Dir = t.TempDir()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 4 {
		missing(t, stderr.String())
	}
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", what, args, err, out, stderr.Bytes())
	}
	return out
}

func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		t.Fatal(why)
	}
	t.Skip(why)
}
