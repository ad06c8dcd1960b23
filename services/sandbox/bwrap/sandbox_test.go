//go:build linux

package bwrap

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"skandha.dev/services/sandbox/driver"
)

func TestReportSaysWhatHolds(t *testing.T) {
	d := newDriver(t, Config{})
	r, err := d.Report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if r.Driver != "bwrap" || r.Untrusted || !strings.HasPrefix(r.Version, "bubblewrap 0.") || r.Python == "" ||
		!strings.Contains(r.Platform, r.Python) {
		t.Errorf("%+v", r)
	}
	// Each limit is either held or said to be missing.
	for _, limit := range []string{"memory", "cpu", "pids", "workspace", "files"} {
		missing := slices.ContainsFunc(r.Missing, func(s string) bool { return strings.HasPrefix(s, limit+": ") })
		if slices.Contains(r.Enforced, limit) == missing {
			t.Errorf("%s: enforced %v, missing %v", limit, r.Enforced, r.Missing)
		}
	}
}

// What a program sees and can do, as it reports itself.
func TestInside(t *testing.T) {
	d := newDriver(t, Config{})
	for name, c := range map[string]struct{ code, want string }{
		"it is nobody": {
			`say([os.getuid(), os.getgid(), os.getgroups(), os.getpid()])`, `[65532,65532,[],1]`,
		},
		"no capability": {
			`say([l.split()[1] for l in open("/proc/self/status") if l.startswith("Cap")])`,
			`["0000000000000000","0000000000000000","0000000000000000","0000000000000000","0000000000000000"]`,
		},
		"no new privileges": {
			`say([l.split()[1] for l in open("/proc/self/status") if l.startswith(("NoNewPrivs", "Seccomp:"))])`, `["1","2"]`,
		},
		"no neighbour":           {`say([p for p in os.listdir("/proc") if p.isdigit()])`, `["1"]`},
		"no file of the service": {`say(sorted(os.listdir("/proc/self/fd"))[:-1])`, `["0","1","2"]`},
		"no network": {
			`import socket; say([i.split(":")[0].strip() for i in open("/proc/net/dev").readlines()[2:]])`, `["lo"]`,
		},
		"no way out": {
			`import socket; s = socket.socket(); say(fails(s.connect, ("192.0.2.1", 80)))`, `"ENETUNREACH"`,
		},
		"no user namespace": {
			`import ctypes; say([ctypes.CDLL(None, use_errno=True).unshare(0x10000000), ctypes.get_errno()])`, `[-1,1]`,
		},
		"no mount": {
			`import ctypes; say([ctypes.CDLL(None, use_errno=True).mount(b"x", b"/tmp", b"tmpfs", 0, None), ctypes.get_errno()])`, `[-1,1]`,
		},
		"no setuid": {`say(fails(os.setuid, 0))`, `"EINVAL"`},
		"nothing sealed is writable": {
			`say([fails(open, d + "/x", "w") for d in ["", "/usr", "/etc", "/dev", "/proc/sys", "/packages", "/dev/pts"]])`,
			`["EROFS","EROFS","EROFS","EROFS","EROFS","EROFS","EROFS"]`,
		},
		"places to write": {
			`say([fails(open, d + "/x", "w") for d in ["/workspace", "/tmp", "/dev/shm"]])`, `["","",""]`,
		},
		"no execution of devices": {`say(fails(os.mknod, "/tmp/x", 0o020600, 0x103))`, `"EPERM"`},
		"the root": {
			`say(sorted(set(os.listdir("/")) - {"lib32", "libx32", "lib64", "sbin", "root", "nix", "gnu", "opt", "home"}))`,
			`["bin","dev","etc","lib","packages","proc","tmp","usr","workspace"]`,
		},
		"devices": {
			`say(sorted(set(os.listdir("/dev")) - {"console", "core"}))`,
			`["fd","full","null","ptmx","pts","random","shm","stderr","stdin","stdout","tty","urandom","zero"]`,
		},
		"users": {
			`import pwd; say([open("/etc/passwd").read().count("\n"), pwd.getpwuid(os.getuid()).pw_dir])`, `[1,"/workspace"]`,
		},
		"no kernel settings":     {`say([os.listdir("/proc/sys"), fails(open, "/proc/keys")])`, `[[],"EACCES"]`},
		"the name":               {`say(os.uname().nodename)`, `"sandbox"`},
		"it begins in workspace": {`say(os.getcwd())`, `"/workspace"`},
		"no terminal":            {`say(fails(open, "/dev/tty"))`, `"ENXIO"`},
		"its own session":        {`say(os.getsid(0))`, `1`},
		"localhost": {
			`import socket; s = socket.create_server(("localhost", 0)); socket.create_connection(s.getsockname()); say(1)`, `1`,
		},
		"no core, few files": {
			`import resource as r; say([r.getrlimit(r.RLIMIT_CORE), r.getrlimit(r.RLIMIT_NOFILE)])`, `[[0,0],[64,64]]`,
		},
		"limits cannot be raised": {
			`import resource as r; say(fails(lambda: r.setrlimit(r.RLIMIT_NOFILE, (64, 65))) or "raised")`, `"ValueError"`,
		},
		"shells and programs work": {
			`import subprocess; say(subprocess.run(["/bin/sh", "-c", "echo a | tr a b"], capture_output=True, text=True).stdout)`, `"b\n"`,
		},
		"threads and processes": {
			`import multiprocessing as m; say(m.get_context("fork").Pool(2).map(abs, [-1, -2]))`, `[1,2]`,
		},
		"the first process cannot be killed": {
			`import signal; p = os.fork(); p or os.kill(1, signal.SIGKILL) or os._exit(0); os.waitpid(p, 0); say(1)`, `1`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			code := strings.Replace(c.code, "fails(lambda: r.setrlimit", "vfails(lambda: r.setrlimit", 1)
			b := begin(t, d,
				"def vfails(f):\n    try: f()\n    except (OSError, ValueError) as e: return type(e).__name__\n"+
					"    return ''\ngo()\n"+code, nil)
			proceed(t, b)
			line, err := readLine(b)
			if err != nil {
				t.Fatalf("it says nothing: %v (%v)", err, ended(b))
			}
			if got := strings.ReplaceAll(string(line), ", ", ","); got != c.want {
				t.Errorf("it says %s, want %s", got, c.want)
			}
		})
	}
}

func TestEnvironmentIsWhole(t *testing.T) {
	t.Setenv("SKANDHA_TEST_SECRET", "secret")
	d := newDriver(t, Config{})
	b := begin(t, d, `say(sorted(k + "=" + v for k, v in os.environ.items()))`, nil)
	var got []string
	hear(t, b, &got)
	want := driver.Environment()
	slices.Sort(want)
	// Python itself sets LC_CTYPE where it takes the locale for unset.
	got = slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "LC_CTYPE=") })
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// On the host a sandbox has an unused user id, and no privileges.
func TestOutside(t *testing.T) {
	d := newDriver(t, Config{})
	a, b := begin(t, d, `go()`, nil), begin(t, d, `go()`, nil)
	for _, x := range []driver.Sandbox{a, b} {
		var word string
		hear(t, x, &word) // it is set up
	}
	first := func(x driver.Sandbox) int { return x.(*sandbox).first.pid }
	uid := func(x driver.Sandbox) string { return status(t, first(x), "Uid")[0] }
	if os.Geteuid() == 0 {
		if uid(a) == uid(b) || len(uid(a)) != 10 || status(t, first(a), "Uid")[2] == "0" {
			t.Errorf("sandboxes run under users %s and %s", uid(a), uid(b))
		}
	}
	for _, field := range []string{"CapEff", "CapPrm", "CapBnd", "CapAmb"} {
		if got := status(t, first(a), field)[0]; strings.Trim(got, "0") != "" {
			t.Errorf("%s is %s", field, got)
		}
	}
	for _, ns := range []string{"user", "pid", "net", "ipc", "uts", "mnt", "cgroup"} {
		mine, one, other := link(t, os.Getpid(), ns), link(t, first(a), ns), link(t, first(b), ns)
		if mine == one || one == other {
			t.Errorf("%s namespaces: the service's %s, the sandboxes' %s and %s", ns, mine, one, other)
		}
	}
}

func TestPipe(t *testing.T) {
	d := newDriver(t, Config{})
	b := begin(t, d, `
import shutil
print("error", file=sys.stderr)
shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)`, nil)
	sent := strings.Repeat("0123456789abcdef", 1<<16)
	go func() {
		_, _ = io.WriteString(b, sent)
		_ = b.(*sandbox).stdin.Close()
	}()
	got, err := io.ReadAll(b)
	if err != nil || string(got) != sent {
		t.Errorf("%d of %d bytes came back: %v", len(got), len(sent), err)
	}
	if err := ended(b); err == nil || !strings.Contains(err.Error(), "exit code 0") {
		t.Errorf("it ended with %v", err)
	}
}

func TestEnds(t *testing.T) {
	d := newDriver(t, Config{})
	for name, c := range map[string]struct{ code, want string }{
		"by itself":   {`sys.exit(3)`, "exit code 3"},
		"by a signal": {`import ctypes; go(); ctypes.string_at(0)`, "SIGSEGV"},
	} {
		t.Run(name, func(t *testing.T) {
			b := begin(t, d, c.code, nil)
			if strings.Contains(c.code, "go()") {
				proceed(t, b)
			}
			if err := ended(b); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it ended with %v, want %s", err, c.want)
			}
			if left := traces(b.Name()); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestDestroyLeavesNothing(t *testing.T) {
	d := newDriver(t, Config{})
	b := begin(t, d, `
import signal
for s in [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]: signal.signal(s, signal.SIG_IGN)
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        while True: time.sleep(1)
say(os.readlink("/proc/self/ns/pid"))
while True: time.sleep(1)`, nil)
	var ns string
	hear(t, b, &ns)
	if pids := inNamespace(ns); len(pids) != 6 {
		t.Fatalf("%d processes are there, want 6", len(pids))
	}
	if b.Err() != nil {
		t.Errorf("it runs, and Err is %v", b.Err())
	}
	destroy(t, b)
	if pids := inNamespace(ns); len(pids) > 0 {
		t.Errorf("processes %v are there", pids)
	}
	if left := traces(b.Name()); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	select {
	case <-b.Done():
	default:
		t.Error("Done is not closed")
	}
	if !errors.Is(b.Err(), driver.ErrDestroyed) {
		t.Errorf("Err is %v", b.Err())
	}
	destroy(t, b) // again
	if _, err := b.Write([]byte("x")); err == nil {
		t.Error("something was written to it")
	}
}

func TestTwentyAtOnce(t *testing.T) {
	d := newDriver(t, Config{})
	warm := begin(t, d, `go()`, nil)
	destroy(t, warm)
	fds, goroutines := openFiles(t), runtime.NumGoroutine()
	var wg sync.WaitGroup
	left := make([][]string, 20)
	for i := range left {
		name := newName()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			b, err := d.Start(ctx,
				driver.Spec{Name: name, Limits: small(), Args: []string{"-I", "-S", "-c", "print(6 * 7); input()"}})
			if err != nil {
				left[i] = []string{err.Error()}
				return
			}
			if line, err := readLine(b); err != nil || string(line) != "42" {
				left[i] = append(left[i], "it says "+string(line))
			}
			if err := b.Destroy(ctx); err != nil {
				left[i] = append(left[i], err.Error())
			}
			left[i] = append(left[i], traces(name)...)
		})
	}
	wg.Wait()
	for i, l := range left {
		if len(l) > 0 {
			t.Errorf("sandbox %d: %v", i, l)
		}
	}
	eventually(t, func() string {
		if now := openFiles(t); now > fds {
			return "files are open that were not before"
		}
		if runtime.NumGoroutine() > goroutines {
			return "goroutines run that did not before"
		}
		return ""
	})
}

// The thread that requested a sandbox may end; the sandbox stays.
func TestSandboxesOutliveThreads(t *testing.T) {
	d := newDriver(t, Config{})
	var b driver.Sandbox
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the thread ends with the goroutine
		b, err = d.Start(context.Background(),
			driver.Spec{Name: newName(), Args: []string{"-I", "-S", "-c", "while True: print(input(), flush=True)"}})
	}()
	<-ended
	if err != nil {
		t.Fatal(err)
	}
	defer destroy(t, b)
	for range 50 {
		if _, err := b.Write([]byte("1\n")); err != nil {
			t.Fatal(err)
		}
		var n int
		hear(t, b, &n)
	}
}

func TestCloseDestroysAll(t *testing.T) {
	d := newDriver(t, Config{})
	a, b := begin(t, d, `go()`, nil), begin(t, d, `go()`, nil)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, x := range []driver.Sandbox{a, b} {
		if left := traces(x.Name()); len(left) > 0 || !errors.Is(x.Err(), driver.ErrDestroyed) {
			t.Errorf("%v, left: %v", x.Err(), left)
		}
	}
	if _, err := d.Start(t.Context(), driver.Spec{Name: "x", Args: []string{"-c", ""}}); err == nil {
		t.Error("a closed driver starts sandboxes")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestStartRefuses(t *testing.T) {
	d := newDriver(t, Config{})
	good := driver.Spec{Name: "x", Args: []string{"-c", "0"}}
	for name, c := range map[string]struct {
		change func(*driver.Spec)
		want   string
	}{
		"a name that is none":     {func(s *driver.Spec) { s.Name = "../x" }, "name"},
		"no arguments":            {func(s *driver.Spec) { s.Args = nil }, "args"},
		"limits too small":        {func(s *driver.Spec) { s.Limits = small(); s.Limits.PIDs = 1 }, "limits.pids"},
		"a set that is none":      {func(s *driver.Spec) { s.Set = "../../etc" }, "set"},
		"a set that is not there": {func(s *driver.Spec) { s.Set = strings.Repeat("a", 64) }, driver.ErrNoSet.Error()},
	} {
		spec := good
		c.change(&spec)
		if b, err := d.Start(t.Context(), spec); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", name, b, err, c.want)
		}
	}
}

func link(t *testing.T, pid int, ns string) string {
	t.Helper()
	to, err := os.Readlink("/proc/" + itoa(pid) + "/ns/" + ns)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// A first process that does not get the processor dies with its competitors.
func TestKillEndsASandboxWhoseFirstProcessIsStarved(t *testing.T) {
	d := newDriver(t, Config{})
	if d.host.cgroups == nil {
		missing(t, "no cgroup can be made: "+d.host.noCgroups.Error())
	}
	b := begin(t, d, `
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
go()
for _ in range(15):
    if os.fork() == 0:
        while True: pass
say("busy"); go()`, nil).(*sandbox)
	proceed(t, b)
	var word string
	hear(t, b, &word)
	if err := unix.SchedSetAttr(b.first.pid, &unix.SchedAttr{Policy: unix.SCHED_IDLE}, 0); err != nil {
		t.Fatal(err)
	}
	b.kill()
	if b.group.kill(b.bwrap.Pid) {
		t.Error("after kill something is left in the cgroup")
	}
	if err := ended(b); err == nil {
		t.Error("nothing says why it has ended")
	}
}

// Each sandbox has matplotlib's font list, which is built once.
func TestFontsAreListed(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for range 2 {
		d := newDriver(t, Config{})
		if d.host.python.matplotlib == "" {
			missing(t, "the host's Python has no matplotlib (Debian: python3-matplotlib)")
		}
		b := begin(t, d,
			"say([json.load(open(p))['_version'] for p in sys.argv[1:]]); say(os.listdir('"+driver.FontLists+"'))",
			func(s *driver.Spec) {
				for _, list := range d.host.fonts {
					s.Args = append(s.Args, driver.FontLists+"/"+filepath.Base(list))
				}
			})
		var versions []any
		var names []string
		hear(t, b, &versions)
		hear(t, b, &names)
		if len(versions) != 1 || len(names) != 1 {
			t.Errorf("it reads %v of %v, want one list", versions, names)
		}
		destroy(t, b)
	}
}
