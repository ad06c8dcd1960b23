package docker

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/docker/proxy"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/enginetest"
)

// patience bounds every wait, for slow and busy machines.
const patience = time.Minute

func TestMain(m *testing.M) {
	if job := os.Getenv(childVariable); job != "" {
		child(job)
		return
	}
	enginetest.Main(m)
}

// runner is a first process that executes each line, a JSON string of Python, and
// answers with what it printed and whether it succeeded.
const runner = `
import sys, json, io, contextlib
for line in sys.stdin:
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(json.loads(line), {})
        ok = True
    except BaseException as e:
        ok = False
        out.write(repr(e))
    print(json.dumps({"ok": ok, "out": out.getvalue()}), flush=True)
`

// deaf is a first process that does not end with its input.
const deaf = `
import signal, sys
print("here", flush=True)
sys.stdin.read()
while True:
    signal.pause()
`

// small are limits that suit many sandboxes at once.
var small = driver.Limits{
	Memory: 64 << 20, CPUs: 0.5, PIDs: 32, OpenFiles: 128, Workspace: 4 << 20, WorkspaceFiles: 100, Tmp: 2 << 20,
}

// rig is a driver on the package's engine, with a separate owner. Unless it says otherwise, an engine proxy is
// between them, so that these tests hold the proxy's rules to what the driver needs.
type rig struct {
	*Driver
	engine  *enginetest.Engine
	image   string
	restart func() // of the proxy
}

func newRig(t testing.TB, change ...func(*Config)) *rig {
	t.Helper()
	e := enginetest.Shared(t)
	return rigOn(t, e, change...)
}

// directRig is a rig without the engine proxy between the driver and the engine, as in an embedded system.
func directRig(t testing.TB, change ...func(*Config)) *rig {
	t.Helper()
	return rigAt(t, enginetest.Shared(t), "", change...)
}

// rigOn is a rig behind an engine proxy.
func rigOn(t testing.TB, e *enginetest.Engine, change ...func(*Config)) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "skandha-proxy-") // short: the paths of sockets are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return rigAt(t, e, filepath.Join(dir, "engine.sock"), change...)
}

// guard starts an engine proxy with the driver's configuration, until the test or stop ends it.
func guard(t testing.TB, cfg Config, socket string) (stop func()) {
	t.Helper()
	p, err := proxy.New(proxy.Config{
		Engine: cfg.Host, Image: cfg.Image, Runtime: cfg.Runtime, Owner: cfg.Owner, Network: cfg.Network,
		Drain: time.Millisecond, Log: cfg.Log,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := proxy.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // it ends after the driver
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("the engine proxy ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func rigAt(t testing.TB, e *enginetest.Engine, socket string, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{engine: e, image: enginetest.SandboxImage(t, e)}
	cfg := Config{
		Host: e.Host, Image: r.image, Owner: "test-" + strings.ToLower(rand.Text()[:8]), Instance: t.Name(), Runtime: Runc,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, c := range change {
		c(&cfg)
	}
	if socket != "" && cfg.Host == e.Host {
		behind := cfg
		stop := guard(t, cfg, socket)
		r.restart = func() {
			stop()
			stop = guard(t, behind, socket)
		}
		cfg.Host = "unix://" + socket
	}
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the driver: %v", err)
		}
	})
	r.Driver = d
	return r
}

// left returns the containers with the driver's label, in any state.
func (r *rig) left(t testing.TB) []string {
	t.Helper()
	return strings.Fields(r.engine.Docker(t, "ps", "--all", "--quiet", "--no-trunc", "--filter",
		"label="+form.LabelOwner+"="+r.cfg.Owner))
}

func (r *rig) volumes(t testing.TB) []string {
	t.Helper()
	return strings.Fields(r.engine.Docker(t, "volume", "ls", "--quiet", "--filter",
		"label="+form.LabelOwner+"="+r.cfg.Owner))
}

// program is a sandbox that runs Python as its first process, and its output by lines.
type program struct {
	driver.Sandbox
	lines *bufio.Reader
}

func (r *rig) start(t testing.TB, source string, limits driver.Limits, set string) *program {
	t.Helper()
	b, err := r.Start(t.Context(),
		driver.Spec{Name: strings.ToLower(rand.Text()), Args: []string{"-c", source}, Limits: limits, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Destroy(context.Background()) }) // a second time, if the test has done it
	return &program{b, bufio.NewReader(b)}
}

// do executes Python in a sandbox of runner.
func (p *program) do(t testing.TB, code string) (out string, ok bool) {
	t.Helper()
	var reply struct {
		OK  bool
		Out string
	}
	line, err := json.Marshal(code)
	if err == nil {
		_, err = p.Write(append(line, '\n'))
	}
	if err == nil {
		line, err = p.lines.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(line, &reply)
	}
	if err != nil {
		t.Fatalf("executing %s: %v", code, err)
	}
	return strings.TrimSpace(reply.Out), reply.OK
}

// awaitEnd waits until the sandbox has ended and checks why.
func awaitEnd(t testing.TB, b driver.Sandbox) error {
	t.Helper()
	select {
	case <-b.Done():
		return b.Err()
	case <-time.After(patience):
		t.Fatalf("sandbox %s has not ended", b.Name())
		return nil
	}
}

func TestSandboxAnswersAndIsGoneWhenDestroyed(t *testing.T) {
	r := newRig(t)
	b := r.start(t, runner, small, "")
	if out, ok := b.do(t, "print(6*7)"); !ok || out != "42" {
		t.Errorf("6*7 is %q, %t", out, ok)
	}
	if b.Err() != nil {
		t.Errorf("a sandbox that runs has ended: %v", b.Err())
	}
	if n := len(r.left(t)); n != 2 {
		t.Errorf("%d containers are there, want a sandbox and a lease", n)
	}
	for range 2 {
		if err := b.Destroy(t.Context()); err != nil {
			t.Errorf("destroying: %v", err)
		}
	}
	if err := awaitEnd(t, b); err != driver.ErrDestroyed { //nolint:errorlint // it is documented so
		t.Errorf("the sandbox ended because %v, want %v", err, driver.ErrDestroyed)
	}
	if n := len(r.left(t)); n != 1 {
		t.Errorf("%d containers are there, want the lease alone", n)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("after Close there are %v", left)
	}
}

func TestReport(t *testing.T) {
	r := newRig(t)
	report, err := r.Report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	image := r.engine.Docker(t, "image", "inspect", "--format", "{{.Id}}", r.image)
	if report.Driver != "docker" || !strings.HasPrefix(report.Version, "engine ") ||
		!strings.HasSuffix(report.Version, ", runc") || !report.Untrusted {
		t.Errorf("it is %+v", report)
	}
	if !strings.HasPrefix(report.Python, "3.") || !strings.Contains(report.Platform, image) ||
		!strings.HasSuffix(report.Platform, report.Python) {
		t.Errorf("Python is %q, the platform %q, want it to name the image %s", report.Python, report.Platform, image)
	}
	for _, limit := range []string{"memory", "cpu", "pids", "workspace", "files"} {
		missing := slices.ContainsFunc(report.Missing, func(s string) bool { return strings.HasPrefix(s, limit+": ") })
		if slices.Contains(report.Enforced, limit) == missing {
			t.Errorf("%s is enforced or missing, and not both: %q, %q", limit, report.Enforced, report.Missing)
		}
	}
}
