//go:build linux

package bwrap

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/sandbox/driver"
)

func TestFileSystemsAreBounded(t *testing.T) {
	d := newDriver(t, Config{})
	l := small()
	for dir, limit := range map[string]int64{driver.Workspace: l.Workspace, driver.Tmp: l.Tmp, "/dev/shm": l.Tmp} {
		t.Run(dir, func(t *testing.T) {
			b := begin(t, d, `
def fill():
    global n
    n = 0
    with open(go().strip() + "/x", "wb", buffering=0) as f:
        while True: n += f.write(b"x" * 4096)
say([fails(fill), n])`, nil)
			var word string
			hear(t, b, &word)
			if _, err := b.Write([]byte(dir + "\n")); err != nil {
				t.Fatal(err)
			}
			var got []any
			hear(t, b, &got)
			if n := int64(got[1].(float64)); (got[0] != "ENOSPC" && got[0] != "EFBIG") || n > limit {
				t.Errorf("%v, want no more than %d bytes", got, limit)
			}
		})
	}
}

func TestLargeSparseFile(t *testing.T) {
	d := newDriver(t, Config{})
	b := begin(t, d, `go(); f = open("x", "wb"); say(fails(f.truncate, 1 << 40))`, nil)
	proceed(t, b)
	var got string
	if hear(t, b, &got); got != "EFBIG" {
		t.Errorf("truncate: %q", got)
	}
}

func TestFilesAreCounted(t *testing.T) {
	d := newDriver(t, Config{})
	if r, _ := d.Report(t.Context()); !slices.Contains(r.Enforced, "files") {
		missing(t, "files are not counted here: "+strings.Join(r.Missing, "; "))
	}
	for _, dir := range []string{driver.Workspace, driver.Tmp, "/dev/shm"} {
		b := begin(t, d, `
def fill():
    for i in range(1000):
        open(dir + "/%d" % i, "w").close()
        global n
        n = i + 1
dir = go().strip()
say([fails(fill), n])`, nil)
		var word string
		hear(t, b, &word)
		if _, err := b.Write([]byte(dir + "\n")); err != nil {
			t.Fatal(err)
		}
		var got []any
		if hear(t, b, &got); got[0] != "ENOSPC" || got[1].(float64) != 100 {
			t.Errorf("%s: %v, want ENOSPC after 100 files", dir, got)
		}
	}
}

// The tests run both with and without cgroups.
func TestProcessesAreCounted(t *testing.T) {
	for name, cfg := range map[string]Config{"with cgroups": {}, "without": {NoCgroups: true}} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, cfg)
			for what, code := range map[string]string{
				"processes": `
def more():
    global n
    while n < 1000:
        if os.fork() == 0:
            while True: time.sleep(100)
        n += 1`,
				"threads": `
import threading
def more():
    global n
    while n < 1000:
        threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
        n += 1`,
			} {
				b, other := begin(t, d, `n = 1`+code+"\ngo(); say([fails(more), n])", nil), begin(t, d, "go(); say(fails(os.fork))",
					nil)
				proceed(t, b)
				var got []any
				if hear(t, b, &got); got[0] == "" || got[1].(float64) > float64(small().PIDs) {
					t.Errorf("%s: %v, want an error after %d", what, got, small().PIDs)
				}
				proceed(t, other) // a neighbour is not touched
				var none string
				if hear(t, other, &none); none != "" {
					t.Errorf("a neighbour's fork: %s", none)
				}
				destroy(t, b)
			}
		})
	}
}

func TestMemoryIsBounded(t *testing.T) {
	d := newDriver(t, Config{})
	if d.host.cgroups == nil {
		missing(t, "no cgroup can be made: "+d.host.noCgroups.Error())
	}
	t.Run("a process that takes too much is ended", func(t *testing.T) {
		b := begin(t, d, `
go()
if (pid := os.fork()) == 0:
    open("/proc/self/oom_score_adj", "w").write("1000")
    x = bytearray(b"x") * (300 << 20)
    os._exit(0)
say(os.WTERMSIG(os.waitpid(pid, 0)[1]))`, nil)
		proceed(t, b)
		var signal int
		if hear(t, b, &signal); signal != 9 {
			t.Errorf("it was ended by signal %d", signal)
		}
	})
	t.Run("what is far too much fails", func(t *testing.T) {
		b := begin(t, d, `go(); say(fails(bytearray, 8 << 30))`, nil)
		proceed(t, b)
		var got string
		if hear(t, b, &got); got != "MemoryError" {
			t.Errorf("%q", got)
		}
	})
	t.Run("the sandbox ends when its first process takes too much", func(t *testing.T) {
		b := begin(t, d, `go(); x = bytearray(b"x") * (300 << 20)`, nil)
		proceed(t, b)
		if err := ended(b); !errors.Is(err, driver.ErrMemory) {
			t.Errorf("it ended with %v", err)
		}
	})
	t.Run("files count", func(t *testing.T) {
		b := begin(t, d, `
go()
with open("x", "wb", buffering=0) as f:
    while True: f.write(b"x" * (1 << 20))`, func(s *driver.Spec) { s.Limits.Workspace = 1 << 30 })
		proceed(t, b)
		if err := ended(b); !errors.Is(err, driver.ErrMemory) {
			t.Errorf("it ended with %v", err)
		}
	})
}

func TestMemoryOfAProcessWithoutCgroups(t *testing.T) {
	d := newDriver(t, Config{NoCgroups: true})
	b := begin(t, d, `go(); say(fails(bytearray, 200 << 20)); go()`, nil) // and waits, so that it can be looked at
	proceed(t, b)
	var got string
	if hear(t, b, &got); got != "MemoryError" {
		t.Errorf("%q", got)
	}
	if n := status(t, b.(*sandbox).first.pid, "State"); len(n) == 0 {
		t.Error("the sandbox is gone")
	}
}

func TestCPUIsBounded(t *testing.T) {
	d := newDriver(t, Config{})
	if d.host.cgroups == nil {
		missing(t, "no cgroup can be made: "+d.host.noCgroups.Error())
	}
	b := begin(t, d, `
go()
while True: pass`, func(s *driver.Spec) { s.Limits.CPUs = 0.1 })
	proceed(t, b)
	file := filepath.Join(d.host.cgroups.bases["cpu"], filepath.Base(b.(*sandbox).group.dirs[0]), "cpu.stat")
	eventually(t, func() string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if n, ok := strings.CutPrefix(line, "nr_throttled "); ok && strings.TrimSpace(n) != "0" {
				return ""
			}
		}
		return "it is not held back: " + string(text)
	})
}

func TestCgroupSettings(t *testing.T) {
	l := driver.Limits{Memory: 1 << 30, CPUs: 1.5, PIDs: 10}
	for _, c := range []struct {
		v2   bool
		want string
	}{
		{
			false,
			"memory.limit_in_bytes=1073741824 memory.memsw.limit_in_bytes=1073741824 memory.swappiness=0 " +
				"memory.kmem.tcp.limit_in_bytes=67108864 pids.max=11 cpu.cfs_period_us=100000 cpu.cfs_quota_us=150000",
		},
		{true, "memory.max=1073741824 memory.swap.max=0 pids.max=11 cpu.max=150000 100000"},
	} {
		var got []string
		for _, controller := range controllers {
			for _, s := range settings(c.v2, controller, l) {
				got = append(got, s.file+"="+s.value)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("v2 %v: %s, want %s", c.v2, text, c.want)
		}
	}
}

// With v2 a process begins in its cgroup, and dies with it. The controllers do not
// matter for that; here they may belong to v1.
func TestUnifiedCgroup(t *testing.T) {
	mounts, err := cgroupMounts()
	if err != nil {
		t.Fatal(err)
	}
	if mounts[""].point == "" {
		missing(t, "there is no cgroup2 mount")
	}
	g := &group{v2: true, dirs: []string{filepath.Join(mounts[""].point, cgroupPrefix+newName())}}
	if err := os.Mkdir(g.dirs[0], 0o755); err != nil { //nolint:gosec // as cgroups are
		missing(t, err.Error())
	}
	defer g.remove() //nolint:errcheck // checked below
	s := newStarter()
	defer s.close()
	p, err := s.start("/bin/sh", []string{"sh", "-c", "cat <&1 & cat <&1"}, pipeEnds(t), 0, g)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/" + itoa(p.Pid) + "/cgroup")
	if err != nil || !strings.Contains(string(text), filepath.Base(g.dirs[0])) {
		t.Errorf("its cgroups are %s, %v", text, err)
	}
	if err := g.remove(); err != nil {
		t.Error(err)
	}
	if state, err := p.Wait(); err != nil || state.Success() {
		t.Errorf("it ended with %v, %v", state, err)
	}
	if exists(g.dirs[0]) {
		t.Error("the cgroup is there")
	}
}

// pipeEnds are standard files of a process that waits for input.
func pipeEnds(t *testing.T) []*os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeAll(r, w) })
	return []*os.File{r, r, w}
}

// The service's cgroup may be seen from the root of its mount, or from elsewhere.
func TestCgroupDirectories(t *testing.T) {
	for _, c := range []struct {
		m          mount
		path, want string
	}{
		{mount{"/", "/sys/fs/cgroup/memory"}, "/a/b", "/sys/fs/cgroup/memory/a/b"},
		{mount{"/docker/x", "/sys/fs/cgroup/memory"}, "/docker/x", "/sys/fs/cgroup/memory"},
		{mount{"/docker/x", "/sys/fs/cgroup/memory"}, "/docker/x/y", "/sys/fs/cgroup/memory/y"},
		{mount{"/docker/x", "/sys/fs/cgroup/memory"}, "/other", "/sys/fs/cgroup/memory"},
	} {
		if got := c.m.dir(c.path); got != c.want {
			t.Errorf("%v %s: %s, want %s", c.m, c.path, got, c.want)
		}
	}
}
