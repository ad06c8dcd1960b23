package agent_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skandha.dev/services/sandbox/agent"
)

// sandbox is an agent as in a sandbox, but without isolation: a process beside this one,
// with a temporary directory as its workspace.
type sandbox struct {
	*agent.Conn
	workspace, packages string

	process *exec.Cmd
	pipe    *pipe
}

// pipe is a process's standard output and input.
type pipe struct {
	io.Reader
	io.WriteCloser
}

func interpreter() string {
	if p := os.Getenv("SKANDHA_TEST_PYTHON"); p != "" {
		return p
	}
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		return "/usr/bin/python3"
	}
	return "python3"
}

// options of a sandbox in a test.
type options struct {
	agent.Config
	wrap   []string // what the interpreter is started by
	asRoot bool     // what wraps needs it, and becomes somebody else itself
}

func start(t testing.TB) *sandbox {
	t.Helper()
	return startWith(t, options{})
}

func startWith(t testing.TB, o options) *sandbox {
	t.Helper()
	b := launch(t, o)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o.Workspace, o.Packages = b.workspace, b.packages
	var err error
	if b.Conn, err = agent.OpenIn(ctx, b.pipe, o.Config); err != nil {
		t.Fatal(err)
	}
	return b
}

// launch starts the interpreter without a Conn.
func launch(t testing.TB, o options) *sandbox {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &sandbox{workspace: filepath.Join(dir, "workspace"), packages: filepath.Join(dir, "packages")}
	args := append(append(o.wrap, interpreter()), agent.Args()...)
	b.process = exec.Command(args[0], args[1:]...)
	b.process.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + b.workspace, "LANG=C.UTF-8", "TMPDIR=" + dir}
	b.process.Dir = "/"
	for _, d := range []string{dir, b.workspace, b.packages} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if os.Getuid() == 0 {
			if err := os.Chown(d, nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
	}
	if os.Getuid() == 0 && !o.asRoot {
		b.process.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	in, err := b.process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	b.pipe = &pipe{out, in}
	if os.Getenv("SKANDHA_TEST_STDERR") != "" {
		b.process.Stderr = os.Stderr
	}
	if err := b.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.end(t) })
	return b
}

const nobody = 65534

// patience bounds every wait, for slow and busy machines.
const patience = time.Minute

// end closes the agent's pipe, which must end it and everything it has started.
func (b *sandbox) end(t testing.TB) {
	_ = b.pipe.Close()
	gone := make(chan struct{})
	go func() { _ = b.process.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(patience):
		_ = b.process.Process.Kill()
		t.Error("the agent did not end with its pipe")
	}
}

func (b *sandbox) path(name string) string { return filepath.Join(b.workspace, name) }

// must runs r and fails the test if it could not be run.
func (b *sandbox) must(t testing.TB, r agent.Run) agent.Exit {
	t.Helper()
	if r.Timeout == 0 {
		r.Timeout = patience
	}
	x, err := b.Run(t.Context(), r)
	if err != nil {
		t.Fatalf("%s: %v", r.Code, err)
	}
	return x
}

// outOfTime runs r, which does not end by itself, until its timeout. Its code creates the
// file "ready" when it has reached the tested state; if the timeout comes earlier, this
// machine is too slow for the test.
func (b *sandbox) outOfTime(t testing.TB, r agent.Run) agent.Exit {
	t.Helper()
	for r.Timeout = 300 * time.Millisecond; ; r.Timeout *= 2 {
		x := b.must(t, r)
		if !x.TimedOut || b.Remove(t.Context(), "ready", false) == nil {
			return x
		}
	}
}

func (b *sandbox) python(t testing.TB, code ...string) agent.Exit {
	t.Helper()
	return b.must(t, agent.Run{Kind: agent.Python, Code: strings.Join(code, "\n")})
}

func (b *sandbox) shell(t testing.TB, code string) agent.Exit {
	t.Helper()
	return b.must(t, agent.Run{Kind: agent.Shell, Code: code})
}

// works fails the test if the sandbox does not answer as a new one.
func (b *sandbox) works(t testing.TB) {
	t.Helper()
	if x := b.python(t, "print('works')", "6 * 7"); x.Stdout.Text != "works\n" || string(x.Result) != "42" ||
		x.Strays != 0 {
		t.Fatalf("the sandbox does not work any more: %+v", x)
	}
}

// write puts a file into the workspace from outside.
func (b *sandbox) write(t testing.TB, name, text string) {
	t.Helper()
	if _, err := b.Write(t.Context(), name, []byte(text), agent.Replace); err != nil {
		t.Fatal(err)
	}
}

func (b *sandbox) read(t testing.TB, name string) string {
	t.Helper()
	data, _, err := b.Read(t.Context(), name, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// later waits until the clock of file times has advanced: it ticks some hundred times a
// second, and a file that changes twice within a tick looks unchanged.
func (b *sandbox) later(t *testing.T) {
	t.Helper()
	touch := func() time.Time {
		if err := os.WriteFile(b.packages+"/clock", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(b.packages + "/clock")
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	now := touch()
	eventually(t, "the clock of files moves", func() bool { return touch().After(now) })
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// printed collects live output.
type printed struct {
	mu     sync.Mutex
	text   map[agent.Stream]string
	pieces int
	more   chan struct{}
}

func newPrinted() *printed {
	return &printed{text: map[agent.Stream]string{}, more: make(chan struct{}, 1000)}
}

func (p *printed) add(s agent.Stream, piece []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text[s] += string(piece)
	p.pieces++
	select {
	case p.more <- struct{}{}:
	default:
	}
}

func (p *printed) of(s agent.Stream) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text[s]
}

func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// findPython finds an interpreter that the user of a sandbox may execute.
func findPython(version string) string {
	for _, pattern := range []string{
		"/usr/bin/python" + version, "/usr/local/bin/python" + version, "/opt/*/bin/python" + version,
	} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return found[0]
		}
	}
	if p, err := exec.LookPath("python" + version); err == nil && os.Getuid() != 0 {
		return p
	}
	return ""
}
