package sandboxtest

import (
	"os"
	"testing"
	"time"

	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
)

// need skips limits that the driver reports as missing here; where everything is required,
// it fails instead.
func (s *suite) need(t *testing.T, limit string) {
	t.Helper()
	if s.enforces(limit) {
		return
	}
	why := "NOT TESTED: " + s.missing(limit)
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// limitsHold compares sandboxes that differ in one limit.
func (s *suite) limitsHold(t *testing.T) {
	const memory = `
n = 0
try:
    keep = []
    while n < 2048:
        keep.append(bytearray(b"x") * (4 << 20))
        n += 4
        os.write(1, b"%d\n" % n)
except MemoryError:
    pass
os._exit(0)`
	const threads = `
n = 0
threading.stack_size(64 << 10)
try:
    while n < 1000:
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        n += 1
except RuntimeError:
    pass
print(n, flush=True)
os._exit(0)`
	const filesOf = `
n = 0
try:
    while n < 5000:
        os.close(os.open("/workspace/%d" % n, os.O_CREAT | os.O_WRONLY))
        n += 1
except OSError:
    pass
print(n)`
	bytesOf := func(dir string) string {
		return `
n = 0
for i in range(32): # what bounds one file bounds nothing
    try:
        with open("` + dir + `/fill%d" % i, "wb", buffering=0) as f:
            while n < 1 << 30:
                n += f.write(b"x" * 65536)
    except OSError:
        pass
print(n)`
	}
	for _, c := range []struct {
		limit, enforced, code string
		small, large          int64 // two values, in the unit of the code's output
		set                   func(*driver.Limits, int64)
	}{
		{"memory", "memory", memory, 128, 320, func(l *driver.Limits, v int64) { l.Memory = v << 20 }},
		{"processes", "pids", threads, 24, 80, func(l *driver.Limits, v int64) { l.PIDs = v }},
		{
			"open files", "", "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[1])", 128, 512,
			func(l *driver.Limits, v int64) { l.OpenFiles = v },
		},
		{
			"workspace", "workspace", bytesOf(driver.Workspace), 4 << 20, 24 << 20,
			func(l *driver.Limits, v int64) { l.Workspace = v },
		},
		{"files of the workspace", "files", filesOf, 100, 1000, func(l *driver.Limits, v int64) { l.WorkspaceFiles = v }},
		{"tmp", "", bytesOf(driver.Tmp), 2 << 20, 12 << 20, func(l *driver.Limits, v int64) { l.Tmp = v }},
	} {
		t.Run(c.limit, func(t *testing.T) {
			if c.enforced != "" {
				s.need(t, c.enforced)
			}
			var got [2]int64
			for i, v := range []int64{c.small, c.large} {
				b := s.start(t, sandboxOptions{limits: func(l *driver.Limits) { c.set(l, v) }})
				exit, err := b.python(t.Context(), c.code)
				if err != nil && exit.Stdout.Text == "" {
					t.Fatalf("with %d: %v", v, err)
				}
				got[i] = int64(lastNumber(exit.Stdout.Text))
				if got[i] > v || got[i] < v/3 {
					t.Errorf("a limit of %d allows %d; exit %d %s %s", v, got[i], exit.Code, exit.Signal, tail(exit.Stderr.Text))
				}
				if err := b.end(); err != nil {
					t.Error(err)
				}
			}
			if got[0] >= got[1] {
				t.Errorf("limits of %d and %d allow %d and %d", c.small, c.large, got[0], got[1])
			}
		})
	}
}

// boundsCPU compares processor time with time. A busy machine yields less processor time,
// never more.
func (s *suite) boundsCPU(t *testing.T) {
	s.need(t, "cpu")
	const cpus = 0.25
	b := s.start(t, sandboxOptions{limits: func(l *driver.Limits) { l.CPUs = cpus }})
	var used float64
	exit, err := b.run(t.Context(), agent.Run{Kind: agent.Python, Timeout: patience, Code: prelude + `
def burn():
    end = time.monotonic() + 2
    while time.monotonic() < end:
        pass
begin = time.monotonic()
pids = [child(burn) for _ in range(4)]
for p in pids:
    os.waitpid(p, 0)
t = os.times()
(t.children_user + t.children_system) / (time.monotonic() - begin)`})
	if err == nil {
		err = decode(exit, &used)
	}
	if err != nil {
		t.Fatal(err)
	}
	if used > 2*cpus {
		t.Errorf("4 processes used %.2f processors, the limit is %.2f", used, cpus)
	}
	t.Logf("4 processes used %.2f of %.2f processors for %s", used, cpus, 2*time.Second)
}
