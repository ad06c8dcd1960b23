package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
)

// conformance checks a driver against the contract of package driver.
func (s *suite) conformance(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(*suite, *testing.T)
	}{
		{"the report is correct", (*suite).reports},
		{"the environment is what the contract says", (*suite).environment},
		{"a sandbox is where and who the contract says", (*suite).place},
		{"each limit is the sandbox's own", (*suite).limitsHold},
		{"processor time is bounded", (*suite).boundsCPU},
		{"two sandboxes see nothing of each other", (*suite).sandboxesAreApart},
		{"the pipe carries any bytes, and standard error goes nowhere", (*suite).pipeIsClean},
		{"the context of Start bounds only the start", (*suite).outlivesStart},
		{"an invalid spec is not started", (*suite).refusesNonsense},
		{"Destroy is complete and can be repeated", (*suite).destroys},
		{"a sandbox that ends says why", (*suite).saysWhyItEnded},
		{"a sandbox that runs out of memory says so", (*suite).runsOutOfMemory},
		{"Close destroys all", (*suite).closes},
		{"Reap removes what a killed service has left, and nothing else", (*suite).reaps},
		{"files survive the sandbox", (*suite).filesSurvive},
		{"many sandboxes at once", (*suite).startsAtOnce},
		{"30 sandboxes, one after the other, leak nothing", (*suite).leaksNothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(s, t)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := s.neighbour.knows(ctx); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
	t.Run("package sets", s.sets)
}

// within bounds a test's calls by the suite's patience.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

var limitNames = []string{"memory", "socket buffers", "cpu", "pids", "workspace", "files"}

func (s *suite) reports(t *testing.T) {
	r := s.report
	if r.Driver == "" || r.Version == "" || r.Isolation == "" || r.Platform == "" {
		t.Errorf("the report leaves fields empty: %+v", r)
	}
	for _, e := range r.Enforced {
		if !slices.Contains(limitNames, e) {
			t.Errorf("it enforces %q; the contract knows %q", e, limitNames)
		}
	}
	for _, name := range limitNames {
		if !s.enforces(name) &&
			!slices.ContainsFunc(r.Missing, func(m string) bool { return strings.HasPrefix(m, name+":") }) {
			t.Errorf("it does not enforce %q and gives no reason: %q", name, r.Missing)
		}
	}
	again, err := s.driver.Report(within(t))
	if err != nil || again.Platform != r.Platform {
		t.Errorf("the platform is %q the second time, %q the first (%v)", again.Platform, r.Platform, err)
	}
	b := s.start(t, sandboxOptions{})
	var version string
	if err := b.eval(t.Context(), &version, `sys.version.split()[0]`); err != nil || version != r.Python {
		t.Errorf("the interpreter is %q, the report says %q (%v)", version, r.Python, err)
	}
	t.Logf("%+v", r)
}

func (s *suite) environment(t *testing.T) {
	b := s.start(t, sandboxOptions{})
	want := slices.Sorted(slices.Values(driver.Environment()))
	exit, err := b.run(t.Context(), agent.Run{Kind: agent.Argv, Argv: []string{"env"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(strings.Lines(strings.TrimSpace(exit.Stdout.Text))); !slices.Equal(trimmed(got), want) {
		t.Errorf("the environment of a program is\n%q, want\n%q", trimmed(got), want)
	}
	var got []string
	if err := b.eval(t.Context(), &got, `sorted("=".join(i) for i in os.environ.items())`); err != nil ||
		!slices.Equal(got, want) {
		t.Errorf("the environment of Python is\n%q, want\n%q (%v)", got, want, err)
	}
}

func trimmed(lines []string) (out []string) {
	for _, l := range lines {
		out = append(out, strings.TrimSpace(l))
	}
	return out
}

func (s *suite) place(t *testing.T) {
	b := s.start(t, sandboxOptions{})
	var got []any
	if err := b.eval(t.Context(), &got,
		`[os.getuid(), os.getgid(), os.getgroups(), os.getcwd(), os.access("/tmp", os.W_OK), os.access("/workspace", os.W_OK), os.listdir("/packages"), os.access("/packages", os.W_OK), os.statvfs("/").f_flag & 1]`); err != nil {
		t.Fatal(err)
	}
	groups, _ := got[2].([]any)
	for _, g := range groups {
		if g != float64(driver.GID) {
			t.Errorf("it is in group %v", g)
		}
	}
	got[2] = nil
	if uid, ok := got[0].(float64); !ok || !ownUser(int(uid)) {
		t.Errorf("it runs as %v", got[0])
	}
	got[0] = nil
	if text, want := fmt.Sprint(got), fmt.Sprint([]any{
		nil, driver.GID, nil, driver.Workspace, true, true, []any{}, false, 1,
	}); text != want {
		t.Errorf("uid, gid, –, directory, tmp and workspace writable, packages, those writable, root read-only: %s, want %s", text, want)
	}
}

// ownUser reports whether sandboxes may have that user id.
func ownUser(uid int) bool { return uid == driver.UID || uid >= driver.FirstOwnUID }

// sandboxesAreApart compares what two sandboxes could share.
func (s *suite) sandboxesAreApart(t *testing.T) {
	a, b := s.start(t, sandboxOptions{}), s.start(t, sandboxOptions{})
	secret := token()
	ctx := within(t)
	said := map[*sandbox]map[string]string{}
	for _, x := range []*sandbox{a, b} {
		var got map[string]string
		if err := x.eval(ctx, &got,
			`{n: attempt(os.readlink, "/proc/self/ns/" + n) for n in ("pid", "mnt", "net", "ipc", "uts")}`); err != nil {
			t.Fatal(err)
		}
		said[x] = got
	}
	for _, ns := range []string{"pid", "mnt", "net", "ipc", "uts"} {
		own, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(said[a][ns], own) || said[a][ns] == said[b][ns] {
			t.Errorf("the %s namespaces are %s and %s, the host's is %s", ns, said[a][ns], said[b][ns], own)
		}
	}
	leave := fmt.Sprintf(`
out = []
for d in ("/workspace", "/tmp", "/dev/shm", "/var/tmp", "/run", "/dev/mqueue"):
    try:
        open(d + "/left", "w").write(%q)
        out.append(d)
    except OSError:
        pass
out`, secret)
	var left, seen []string
	if err := a.eval(ctx, &left, leave); err != nil || len(left) < 2 {
		t.Fatalf("files could be left in %q: %v", left, err)
	}
	if err := b.eval(ctx, &seen,
		`[os.path.join(t, n) for t, ds, ns in os.walk("/") for n in ns if n == "left"]`); err != nil || len(seen) > 0 {
		t.Errorf("the other sandbox sees %q, %v", seen, err)
	}
}

// pipeIsClean runs the test's own first process.
func (s *suite) pipeIsClean(t *testing.T) {
	b := s.first(t, `
import sys
for _ in range(4000):
    sys.stderr.write("noise" * 200)
n = int(sys.stdin.buffer.readline())
sys.stdout.buffer.write(sys.stdin.buffer.read(n))
sys.stdout.buffer.flush()
sys.stdin.buffer.read()`)
	want := make([]byte, 4<<20)
	for i := range want {
		want[i] = byte(i * 7 / 3)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := fmt.Fprintf(b, "%d\n", len(want))
		if err == nil {
			_, err = b.Write(want)
		}
		failed <- err
	}()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(b, got); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("4 MiB come back changed")
	}
}

// first starts a sandbox whose first process runs the code, without the agent.
func (s *suite) first(t *testing.T, code string) driver.Sandbox {
	t.Helper()
	ctx := within(t)
	b, err := s.driver.Start(ctx, driver.Spec{Name: NewName("f"), Args: []string{"-c", code}, Limits: smallLimits()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Destroy(ctx); err != nil {
			t.Errorf("destroying sandbox %s: %v", b.Name(), err)
		}
		if left := until(gone, func() []string { return traces(b.Name()) }); len(left) > 0 {
			t.Errorf("left of sandbox %s is %v", b.Name(), left)
		}
	})
	return b
}

func (s *suite) outlivesStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b, err := s.driver.Start(ctx, driver.Spec{Name: NewName("c"), Args: agent.Args(), Limits: smallLimits()})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Destroy(context.Background()) }) // Close would report it
	opening, opened := context.WithTimeout(t.Context(), patience)
	defer opened()
	c, err := agent.Open(opening, b)
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := c.List(opening, "."); err != nil {
			t.Fatalf("when Start's context has ended, the sandbox says %v", err)
		}
	}
}

func (s *suite) refusesNonsense(t *testing.T) {
	good := driver.Spec{Name: NewName("n"), Args: agent.Args(), Limits: smallLimits()}
	for name, change := range map[string]func(*driver.Spec){
		"no name":            func(s *driver.Spec) { s.Name = "" },
		"a path as name":     func(s *driver.Spec) { s.Name = "../../etc" },
		"a long name":        func(s *driver.Spec) { s.Name = strings.Repeat("x", 49) },
		"a shouting name":    func(s *driver.Spec) { s.Name = "LOUD" },
		"too little memory":  func(s *driver.Spec) { s.Limits.Memory = 1 },
		"negative processes": func(s *driver.Spec) { s.Limits.PIDs = -1 },
		"a set by its path":  func(s *driver.Spec) { s.Set = "../../../etc" },
		"a missing set":      func(s *driver.Spec) { s.Set = strings.Repeat("0", 64) },
	} {
		spec := good
		change(&spec)
		b, err := s.driver.Start(within(t), spec)
		if err == nil {
			t.Errorf("a sandbox with %s was started", name)
			_ = b.Destroy(within(t)) // Close would report it
			continue
		}
		if spec.Set == strings.Repeat("0", 64) && !errors.Is(err, driver.ErrNoSet) {
			t.Errorf("a missing set: %v, want ErrNoSet", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if b, err := s.driver.Start(ctx, good); err == nil {
		t.Error("a sandbox was started under a context that had ended")
		_ = b.Destroy(within(t)) // Close would report it
	}
	if left := until(gone, func() []string { return traces(good.Name) }); len(left) > 0 {
		t.Errorf("a start that failed left %v", left)
	}
}
