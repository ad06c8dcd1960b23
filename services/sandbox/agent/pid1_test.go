package agent_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/sandbox/agent"
)

// firsts are ways to start an agent as the first process of a PID namespace, as in
// a sandbox.
var firsts = map[string][]string{
	"unshare": {
		"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "setpriv", "--reuid", "65534", "--regid", "65534",
		"--clear-groups", "--no-new-privs",
	},
	"bwrap": {
		"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
		"bwrap", "--unshare-all", "--as-pid-1", "--die-with-parent", "--bind", "/", "/", "--proc", "/proc", "--dev", "/dev",
		"--",
	},
}

// lack ends a test that cannot run here.
func lack(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		t.Fatal("NOT TESTED: " + why)
	}
	t.Skip("NOT TESTED: " + why)
}

func startFirst(t testing.TB, by string) *sandbox {
	t.Helper()
	if os.Getuid() != 0 {
		lack(t, "becoming another user needs root")
	}
	if _, err := exec.LookPath(by); err != nil {
		lack(t, by+" is not installed")
	}
	if by == "bwrap" && exec.Command(firsts[by][0], append(firsts[by][1:], "true")...).Run() != nil {
		lack(t, "bwrap makes no namespaces here")
	}
	b := startWith(t, options{asRoot: true, wrap: firsts[by]})
	if x := b.python(t, "import os", "os.getppid()"); string(x.Result) != "1" {
		t.Fatalf("the agent is process %s", x.Result)
	}
	return b
}

func TestAsTheFirstProcess(t *testing.T) {
	for by := range firsts {
		t.Run(by, func(t *testing.T) { testFirst(t, startFirst(t, by)) })
	}
}

func testFirst(t *testing.T, b *sandbox) {
	for name, tc := range map[string]struct {
		code   string
		strays bool
	}{
		"every signal to the agent": {"import os\nfor s in range(1, 65): os.kill(1, s)", false},
		"kill everything":           {"import os\ntry: os.kill(-1, 9)\nexcept ProcessLookupError: pass", false},
		"a daemon": {
			"import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0: time.sleep(1000)\n os._exit(0)\nos.wait()",
			true,
		},
		"orphans that end": {
			"import os\nfor _ in range(50):\n if os.fork() == 0:\n  if os.fork() == 0: os._exit(0)\n  os._exit(0)\n os.wait()",
			false,
		},
		"ignoring all signals": {
			"import os, signal, time\nif os.fork() == 0:\n for s in range(1, 65):\n  try: signal.signal(s, signal.SIG_IGN)\n" +
				"  except (OSError, ValueError): pass\n while True: time.sleep(1)", true,
		},
		"the agent's memory": {
			"try: open('/proc/1/mem', 'rb'); raise SystemExit(9)\nexcept PermissionError: pass", false,
		},
		"the agent's files": {
			"import os\ntry: os.listdir('/proc/1/fd'); raise SystemExit(9)\nexcept PermissionError: pass", false,
		},
		"a flood of forks": {
			"import os, time\nend = time.time() + 1\ntry:\n while time.time() < end:\n  if os.fork() == 0: time.sleep(1000)\n" +
				"except OSError: pass", true,
		},
		"a bomb that goes on forking": {
			"import os, time\nif os.fork() == 0:\n os.setsid()\n while True:\n  try:\n   if os.fork() == 0: os.setsid()\n" +
				"  except OSError: pass\ntime.sleep(.3)", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			// A bomb takes processes away from the whole machine, so it is bounded
			// as in a sandbox.
			code := "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (120, 120))\n" + tc.code
			x, err := b.Run(t.Context(), agent.Run{Kind: agent.Python, Code: code, Timeout: patience})
			if err != nil {
				t.Fatal(err)
			}
			if name == "orphans that end" { // the last of them may still be at it
				x.Strays = 0
			}
			if x.TimedOut || (x.Strays > 0) != tc.strays || x.Code == 9 || x.Stderr.Text != "" {
				t.Errorf("got %+v", x)
			}
			b.works(t)
			if x := b.shell(t, "ls /proc | grep -c '^[0-9]'"); x.Code != 0 || len(x.Stdout.Text) > 2 {
				t.Errorf("processes: %s", x.Stdout.Text)
			}
		})
	}
}

// File operations that run beside a run survive its end, which sweeps only the run's
// strays.
func TestTheSweepSparesFileOperations(t *testing.T) {
	b := startFirst(t, "unshare")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := b.Write(t.Context(), "f", []byte(strings.Repeat("x", 100<<10)), agent.Replace); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for range 20 {
		if x := b.shell(t, "sleep 1000 & sleep 1001 & true"); x.Strays != 2 {
			t.Errorf("got %+v", x)
		}
	}
	close(stop)
	<-stopped
}

// Without a spare process the sandbox refuses calls, and survives.
func TestWhenNothingCanBeForked(t *testing.T) {
	if os.Getuid() != 0 {
		lack(t, "another user with a limit needs root")
	}
	b := startWith(t,
		options{
			asRoot: true,
			wrap:   []string{"setpriv", "--reuid", "61234", "--regid", "61234", "--clear-groups", "prlimit", "--nproc=2:2"},
		})
	b.works(t)
	p := newPrinted()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := b.Run(ctx,
			agent.Run{
				Kind: agent.Argv, Argv: []string{"sh", "-c", "echo on; exec sleep 100"}, Timeout: time.Minute, Output: p.add,
			})
		ended <- err
	}()
	<-p.more
	if _, err := b.List(t.Context(), ""); codeOf(err) != "failed" ||
		!strings.Contains(err.Error(), "cannot start a process") {
		t.Errorf("a file operation: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	b.works(t)
	if _, err := b.List(t.Context(), ""); err != nil {
		t.Error(err)
	}
}
