package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/sandbox/agent"
)

func TestATimeoutEndsARun(t *testing.T) {
	b := start(t)
	for name, tc := range map[string]struct {
		run    agent.Run
		stdout string
		signal string
		code   int
	}{
		"a loop": {
			agent.Run{Kind: agent.Python, Code: "print('before', flush=True)\nopen('ready', 'w')\nwhile True: pass"},
			"before\n",
			"SIGTERM", 143,
		},
		"a sleep": {
			agent.Run{Kind: agent.Shell, Code: "echo before; touch ready; sleep 100"}, "before\n", "SIGTERM", 143,
		},
		"SIGTERM is handled": {
			agent.Run{Kind: agent.Shell, Code: "trap 'echo bye; exit 5' TERM; touch ready; while :; do sleep .02; done"},
			"bye\n", "", 5,
		},
		"SIGTERM is ignored": {
			agent.Run{Kind: agent.Shell, Code: "trap '' TERM; echo stubborn; touch ready; while :; do sleep .02; done"},
			"stubborn\n", "SIGKILL", 137,
		},
		"all signals are ignored": {
			agent.Run{
				Kind: agent.Python,
				Code: "import signal, time\nfor s in range(1, 65):\n try: signal.signal(s, signal.SIG_IGN)\n except (OSError, ValueError): pass\nopen('ready', 'w')\nwhile True: time.sleep(1)",
			}, "", "SIGKILL", 137,
		},
		"stopped": {agent.Run{Kind: agent.Python, Code: stops}, "", "SIGKILL", 137},
		"it closes its pipes": {
			agent.Run{Kind: agent.Python, Code: "import os, time\nopen('ready', 'w')\nos.closerange(0, 1000)\ntime.sleep(100)"},
			"", "SIGTERM", 143,
		},
		"waiting for a thread": {
			agent.Run{
				Kind: agent.Python,
				Code: "import threading, time\nthreading.Thread(target=time.sleep, args=(100,)).start()\nopen('ready', 'w')",
			}, "", "SIGTERM", 143,
		},
		"waiting in an exit's hook": {
			agent.Run{
				Kind: agent.Python,
				Code: "import atexit, time\natexit.register(time.sleep, 100)\natexit.register(open, 'ready', 'w')",
			}, "", "SIGTERM", 143,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.run.Grace = patience
			if tc.signal == "SIGKILL" { // which it takes
				tc.run.Grace = 300 * time.Millisecond
			}
			x := b.outOfTime(t, tc.run)
			if !x.TimedOut || x.Stopped || x.Signal != tc.signal || x.Code != tc.code || x.Stdout.Text != tc.stdout {
				t.Errorf("got %+v", x)
			}
			b.works(t)
		})
	}
}

// stops is Python code that stops itself, with a fork that makes sure of it.
const stops = `
import os, signal, time
me = os.getpid()
if os.fork() == 0:
    while open(f"/proc/{me}/stat").read().rpartition(")")[2].split()[0] != "T": time.sleep(.01)
    open("ready", "w")
    os._exit(0)
os.kill(me, signal.SIGSTOP)`

func TestACancelledContextStopsARun(t *testing.T) {
	b := start(t)
	for _, code := range []string{
		"print('on', flush=True)\nwhile True: pass",
		"import signal\nsignal.signal(15, signal.SIG_IGN)\nprint('on', flush=True)\nwhile True: pass",
	} {
		ctx, cancel := context.WithCancel(t.Context())
		p := newPrinted()
		go func() {
			<-p.more
			cancel()
		}()
		x, err := b.Run(ctx,
			agent.Run{Kind: agent.Python, Code: code, Timeout: time.Minute, Grace: 100 * time.Millisecond, Output: p.add})
		if err != nil || !x.Stopped || x.TimedOut || x.Stdout.Text != "on\n" {
			t.Errorf("got %+v, %v", x, err)
		}
		b.works(t)
	}
}

// Runs go one after the other; one whose context ends while it waits never runs.
func TestRunsTakeTurns(t *testing.T) {
	b := start(t)
	p := newPrinted()
	first := make(chan agent.Exit, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		x, err := b.Run(ctx, agent.Run{Kind: agent.Shell, Code: "echo on; sleep 100", Timeout: time.Minute, Output: p.add})
		if err != nil {
			t.Error(err)
		}
		first <- x
	}()
	<-p.more
	waits, give := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer give()
	if _, err := b.Run(waits, agent.Run{Kind: agent.Shell, Code: "touch ran"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second run: %v", err)
	}
	// Files can be seen to meanwhile.
	b.write(t, "a", "beside a run")
	if got := b.read(t, "a"); got != "beside a run" {
		t.Errorf("read %q", got)
	}
	cancel()
	if x := <-first; !x.Stopped {
		t.Errorf("the first run: %+v", x)
	}
	if _, err := os.Stat(b.path("ran")); err == nil {
		t.Error("a run that was given up while it waited has run")
	}
	b.works(t)
}

// What a run leaves running is ended when its main process ends.
func TestNothingOutlivesARun(t *testing.T) {
	b := start(t)
	for name, code := range map[string]string{
		"in the background":    "sleep 1000 & echo $! > pid",
		"a separate session":   "setsid sh -c 'echo $$ > pid; exec sleep 1000' & while [ ! -s pid ]; do sleep .01; done",
		"holding the pipes":    "sh -c 'trap \"\" TERM HUP; echo $$ > pid; while :; do sleep 1; done' & while [ ! -s pid ]; do sleep .01; done",
		"printing without end": "yes > /dev/stdout & echo $! > pid",
		"a daemon, forked twice": `python3 -c "
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open('pid', 'w').write(str(os.getpid()))
        time.sleep(1000)
    os._exit(0)
os.wait()
while not os.path.exists('pid') or not open('pid').read(): time.sleep(.01)"`,
	} {
		t.Run(name, func(t *testing.T) {
			x := b.shell(t, "rm -f pid; "+code)
			if x.Strays == 0 || x.TimedOut {
				t.Errorf("got %+v", x)
			}
			pid := strings.TrimSpace(b.read(t, "pid"))
			if _, err := os.Stat("/proc/" + pid); pid == "" || err == nil {
				t.Errorf("process %s is still there", pid)
			}
			b.works(t)
		})
	}
}

// 1 GB, a flood without newlines: head and tail are kept, the rest is counted.
func TestOutputIsBoundedInTheMiddle(t *testing.T) {
	b := start(t)
	p := newPrinted()
	x := b.must(t,
		agent.Run{
			Kind: agent.Shell, Code: "echo first; head -c 1000000000 /dev/zero | tr '\\0' x; echo last", MaxOutput: 1000,
			Output: p.add, Timeout: 5 * time.Minute,
		})
	if !x.Stdout.Cut || x.Stdout.Bytes != 1000000011 || !strings.HasPrefix(x.Stdout.Text, "first\nxxx") ||
		!strings.HasSuffix(x.Stdout.Text, "xxxlast\n") {
		t.Errorf("cut %t, %d bytes, %d kept", x.Stdout.Cut, x.Stdout.Bytes, len(x.Stdout.Text))
	}
	if n := len(x.Stdout.Text); n < 1000 || n > 1100 {
		t.Errorf("%d bytes are kept", n)
	}
	if got := p.of(agent.Stdout); len(got) > 1000 || !strings.HasPrefix(got, "first\n") {
		t.Errorf("%d bytes were shown while it ran: %.20q", len(got), got)
	}
	if rss := residentKB(t, b); rss > 40<<10 {
		t.Errorf("the agent has %d KiB", rss)
	}
	x = b.python(t, "print('ü' * 100000)")
	if !x.Stdout.Cut || strings.Contains(x.Stdout.Text, "\uFFFD") {
		t.Errorf("characters were cut apart: %+v", x.Stdout.Cut)
	}
	b.works(t)
}

func residentKB(t *testing.T, b *sandbox) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.process.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kb int
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb
}

// Output arrives while it is made, and all of it has arrived when Run returns.
func TestOutputIsShownWhileItRuns(t *testing.T) {
	b := start(t)
	p := newPrinted()
	x := b.must(t, agent.Run{
		Kind: agent.Python, Output: func(s agent.Stream, piece []byte) {
			p.add(s, piece)
			if p.of(agent.Stdout) == "one\n" { // only now goes it on: nothing was held back
				if err := os.WriteFile(b.path("go"), nil, 0o666); err != nil {
					t.Error(err)
				}
			}
		},
		Code: "import os, sys, time\nprint('one')\nwhile not os.path.exists('go'): time.sleep(.01)\nprint('two')\nprint('three', file=sys.stderr)\nsys.stdout.buffer.write('é'.encode()[:1]); sys.stdout.flush(); time.sleep(.2); sys.stdout.buffer.write('é'.encode()[1:])",
	})
	if p.of(agent.Stdout) != "one\ntwo\né" || p.of(agent.Stdout) != x.Stdout.Text || p.of(agent.Stderr) != "three\n" {
		t.Errorf("shown %q %q, kept %q", p.of(agent.Stdout), p.of(agent.Stderr), x.Stdout.Text)
	}
	p = newPrinted()
	x = b.must(t, agent.Run{Kind: agent.Python, Code: "for i in range(20000): print(i)", MaxOutput: 200000, Output: p.add})
	if p.of(agent.Stdout) != x.Stdout.Text || x.Stdout.Cut {
		t.Errorf("%d bytes were shown, %d kept", len(p.of(agent.Stdout)), len(x.Stdout.Text))
	}
}

// Files that a run leaves below out are listed: new and changed ones, no others.
func TestFilesBelowOutAreListed(t *testing.T) {
	b := start(t)
	names := func(x agent.Exit) string {
		s := []string{}
		for _, f := range x.Files {
			s = append(s, fmt.Sprintf("%s:%d", f.Path, f.Size))
		}
		return strings.Join(s, " ")
	}
	for _, tc := range []struct{ name, want string }{
		{
			"python: import os; os.makedirs('out/d'); open('out/a', 'w').write('1'); open('out/d/b', 'w').write('22'); os.symlink('/etc/passwd', 'out/l'); os.mkfifo('out/f')", "out/a:1 out/d/b:2",
		},
		{"python: 1", ""},
		{"python: open('out/a', 'w').write('2')", "out/a:1"},
		{"python: import os; os.rename('out/a', 'out/c')", "out/c:1"},
		{"python: import os; open('out/k', 'w').write('1'); os.kill(os.getpid(), 9)", "out/k:1"},
		{"shell: echo > out/s", "out/s:1"},
		{"shell: touch out/s; mkdir -p x/y; echo > x/y/z; mv x out/x", "out/s:1 out/x/y/z:1"},
		{"shell: rm -r out; ln -s /etc out", ""},
		{"python: 1", ""},
	} {
		kind, code, _ := strings.Cut(tc.name, ": ")
		b.later(t)
		if x := b.must(t, agent.Run{Kind: agent.Kind(kind), Code: code}); names(x) != tc.want {
			t.Errorf("%s: %s, want %s; %+v", tc.name, names(x), tc.want, x)
		}
	}
	x := b.python(t, "import os\nos.remove('out'); os.mkdir('out')", "for i in range(200): open(f'out/{i:03}', 'w')")
	if len(x.Files) != 64 || x.Files[0].Path != "out/000" {
		t.Errorf("of 200 files, %d are listed", len(x.Files))
	}
}

// The figures that are open at the end become files. A small substitute for
// matplotlib's interface, as a package of the workspace, is enough to see that.
func TestOpenFiguresAreSaved(t *testing.T) {
	b := start(t)
	b.write(t, "matplotlib/__init__.py", "")
	b.write(t, "matplotlib/pyplot.py",
		"class Figure:\n def __init__(self, n): self.n = n\n def savefig(self, p): open(p, 'w').write('picture %d' % self.n)\nopened = [1, 3]\ndef get_fignums(): return opened\ndef figure(n): return Figure(n)\n")
	x := b.python(t, "import matplotlib.pyplot as plt")
	if len(x.Files) != 2 || x.Files[0].Path != "out/figure-1.png" || x.Files[1].Path != "out/figure-3.png" || x.Code != 0 {
		t.Errorf("got %+v", x)
	}
	if got := b.read(t, "out/figure-3.png"); got != "picture 3" {
		t.Errorf("the figure is %q", got)
	}
	x = b.python(t, "import matplotlib.pyplot as plt\nplt.figure = None")
	if x.Code != 0 || !strings.Contains(x.Stderr.Text, "cannot save the figures") {
		t.Errorf("got %+v", x)
	}
}

// A run sees the files of earlier runs, and nothing else of them.
func TestRunsShareFilesAndNothingElse(t *testing.T) {
	b := start(t)
	b.write(t, "mine.py", "value = 41\n")
	b.python(t, "import mine, os, sys", "mine.value = x = 1", "os.environ['LEFT'] = '1'", "os.chdir('/')",
		"sys.path.clear()", "open('"+b.path("f")+"', 'w').write('kept')", "import builtins", "builtins.print = None")
	x := b.python(t, "import mine, os",
		"[mine.value, 'x' in globals(), os.environ.get('LEFT'), os.getcwd() == '"+b.workspace+"', open('f').read()]")
	if string(x.Result) != `[41,false,null,true,"kept"]` {
		t.Errorf("got %s %s", x.Result, x.Stderr.Text)
	}
	if x := b.must(t, agent.Run{Kind: agent.Shell, Code: "pwd"}); x.Stdout.Text != b.workspace+"\n" {
		t.Errorf("in %s", x.Stdout.Text)
	}
	b.write(t, "sub/dir/x", "")
	if x := b.must(t, agent.Run{Kind: agent.Shell, Code: "ls", Dir: "sub/dir"}); x.Stdout.Text != "x\n" {
		t.Errorf("in sub/dir: %+v", x)
	}
	for dir, code := range map[string]string{
		"nope": "not_found", "../x": "outside", "/etc": "outside", "mine.py": "not_a_directory",
	} {
		_, err := b.Run(t.Context(), agent.Run{Kind: agent.Shell, Code: "ls", Dir: dir})
		if e := (*agent.Error)(nil); !errors.As(err, &e) || e.Code != code {
			t.Errorf("in %s: %v, want %s", dir, err, code)
		}
	}
}

// Packages are found after the workspace and the standard library; their start-up code does
// not run.
func TestPackagesAreOnThePath(t *testing.T) {
	b := start(t)
	for name, text := range map[string]string{
		"lib.py": "value = 'package'\n", "wave.py": "value = 'shadow'\n", "evil.pth": "import sys; sys.evil = 1\n",
		"sitecustomize.py": "import sys; sys.evil = 1\n",
	} {
		if err := os.WriteFile(b.packages+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	x := b.python(t, "import lib, sys, wave",
		"[lib.value, hasattr(sys, 'evil'), hasattr(wave, 'value'), "+fmt.Sprintf("%q", b.packages)+" in sys.path]")
	if string(x.Result) != `["package",false,false,true]` {
		t.Errorf("got %s %s", x.Result, x.Stderr.Text)
	}
	b.write(t, "lib.py", "value = 'workspace'\n")
	if x := b.python(t, "import lib", "lib.value"); string(x.Result) != `"workspace"` {
		t.Errorf("got %s %s", x.Result, x.Stderr.Text)
	}
}

// Code cannot reach anything of the agent.
func TestARunHasNoHandleOnTheAgent(t *testing.T) {
	b := start(t)
	eventually(t, "the agent is not idle", func() bool { return b.python(t, "import traceback").Code == 0 })
	for range 2 { // in a new child, and in the spare one
		x := b.python(t, "import os",
			"[os.readlink(f'/proc/self/fd/{n}').split(':')[0] for n in sorted(map(int, os.listdir('/proc/self/fd'))) if os.path.lexists(f'/proc/self/fd/{n}')]")
		if string(x.Result) != `["/dev/null","pipe","pipe","pipe"]` {
			t.Errorf("files of a run: %s %s", x.Result, x.Stderr.Text)
		}
		if x := b.shell(t, "exec ls /proc/self/fd"); x.Stdout.Text != "0\n1\n2\n3\n" {
			t.Errorf("files of a command: %s", x.Stdout.Text)
		}
	}
	if os.Getuid() != 0 {
		return
	}
	for _, what := range []string{
		"open('/proc/%d/mem', 'rb')", "__import__('os').listdir('/proc/%d/fd')", "open('/proc/%d/environ')",
		"open('/proc/%d/maps')",
	} {
		if x := b.python(t, fmt.Sprintf(what, b.process.Process.Pid)); !strings.Contains(x.Stderr.Text, "PermissionError") {
			t.Errorf("%s: %+v", what, x)
		}
	}
	if x := b.python(t, "open('/proc/self/environ').read()"); x.Code != 0 {
		t.Errorf("a run may not look at itself: %s", x.Stderr.Text)
	}
}

func TestTheSandboxOutlivesWhatRunsDoToIt(t *testing.T) {
	b := start(t)
	pid := b.process.Process.Pid
	for name, code := range map[string]string{
		"signals":               fmt.Sprintf("import os\nfor s in (1, 2, 3, 10, 12, 13, 14, 15, 17, 18, 20, 21, 22, 23, 28):\n os.kill(%d, s)", pid),
		"to its own group":      "import os\nos.killpg(0, 9)",
		"to the group's parent": "import os, signal\nsignal.signal(15, signal.SIG_IGN)\nos.killpg(0, 15)",
		"the workspace is gone": "import os, shutil\nshutil.rmtree(os.getcwd())",
		"a crash":               "import ctypes\nctypes.string_at(0)",
		"deep nesting":          "eval('(' * 10000 + ')' * 10000)",
		"garbage as result":     "import os\nos.write(60, os.urandom(10000))",
		"a huge frame":          "import os\nos.write(60, b's\\xff\\xff\\xff\\xff')",
		"a forged answer":       "import os\np = b'{\"error\":{\"code\":\"nonsense\",\"message\":\"x\"}}'\nos.write(60, b'a' + len(p).to_bytes(4, 'big') + p)",
		"a forged end":          "import os, time\nos.write(60, b'e\\0\\0\\0\\1\\7')\ntime.sleep(1000)",
		"no open files":         "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
		"a result of 10 MB":     "'x' * 10_000_000",
		"a deep result":         "a = []\nfor i in range(500): a = [a]\na",
	} {
		t.Run(name, func(t *testing.T) {
			x, err := b.Run(t.Context(), agent.Run{Kind: agent.Python, Code: code, Timeout: patience})
			if e := (*agent.Error)(nil); err != nil && !errors.As(err, &e) {
				t.Fatal(err)
			}
			if x.TimedOut {
				t.Errorf("got %+v", x)
			}
			b.works(t)
		})
	}
}

func TestWhatAResultMayBe(t *testing.T) {
	b := start(t)
	x := b.python(t, "'x' * 10_000_000")
	if x.Result != nil || len(x.Repr) != 64<<10 {
		t.Errorf("%d bytes of a result, %d of a repr", len(x.Result), len(x.Repr))
	}
	x = b.python(t, "'ü' * 50_000")
	if x.Result != nil || len(x.Repr) > 64<<10 || strings.Contains(x.Repr, "\uFFFD") {
		t.Errorf("%d bytes of a repr", len(x.Repr))
	}
	x = b.python(t, "a = []", "for i in range(500): a = [a]", "a")
	if x.Result != nil || !strings.HasPrefix(x.Repr, "[[[") {
		t.Errorf("nested: %s %s", x.Result, x.Repr)
	}
}

// Limits apply to runs, not to the agent.
func TestLimitsHoldForWhatRuns(t *testing.T) {
	b := startWith(t,
		options{Config: agent.Config{Limits: map[string]int64{"nofile": 64, "fsize": 1 << 20, "as": 512 << 20}}})
	x := b.python(t, "import resource as r",
		"[r.getrlimit(r.RLIMIT_NOFILE)[1], r.getrlimit(r.RLIMIT_FSIZE)[1], r.getrlimit(r.RLIMIT_CORE)[1]]")
	if string(x.Result) != "[64,1048576,0]" {
		t.Errorf("got %s %s", x.Result, x.Stderr.Text)
	}
	if x := b.python(t, "x = bytearray(1 << 30)"); !strings.Contains(x.Stderr.Text, "MemoryError") {
		t.Errorf("got %+v", x)
	}
	_, err := b.Write(t.Context(), "big", make([]byte, 2<<20), agent.Replace)
	if e := (*agent.Error)(nil); !errors.As(err, &e) || e.Code != "too_large" {
		t.Errorf("writing 2 MiB: %v", err)
	}
	if files, err := b.List(t.Context(), ""); err != nil || len(files) != 1 || files[0].Path != "out" {
		t.Errorf("left after it: %+v, %v", files, err)
	}
	b.works(t)
}

// When memory runs out, the kernel ends the run.
func TestTheAgentIsTheLastToRunOutOfMemory(t *testing.T) {
	b := start(t)
	for range 2 {
		if x := b.shell(t, "cat /proc/self/oom_score_adj"); x.Stdout.Text != "1000\n" {
			t.Errorf("of a run: %s", x.Stdout.Text)
		}
	}
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", b.process.Process.Pid))
	if err != nil || string(own) == "1000\n" {
		t.Errorf("of the agent: %s, %v", own, err)
	}
}

// A fork of the run's process that reaches the end of the script is not the run.
func TestAForkedCopyDoesNotSpeakForTheRun(t *testing.T) {
	b := start(t)
	for range 5 {
		x := b.python(t, "import os, sys, time", "if os.fork() == 0: sys.exit(3)", "time.sleep(0.05)", "os.wait()[1] >> 8")
		if x.Code != 0 || string(x.Result) != "3" {
			t.Errorf("got %+v", x)
		}
	}
	if x := b.python(t, "import os", "n = os.fork()", "n and os.waitpid(n, 0)[1]"); x.Code != 0 ||
		string(x.Result) != "0" {
		t.Errorf("got %+v", x)
	}
}

// Whatever a run did to the workspace's mode, the next one works.
func TestAWorkspaceThatWasLockedIsOpenedAgain(t *testing.T) {
	b := start(t)
	b.write(t, "f", "kept")
	b.python(t, "import os", "os.chmod('.', 0)")
	b.works(t)
	b.python(t, "import os", "os.chmod('.', 0)")
	if got := b.read(t, "f"); got != "kept" {
		t.Errorf("got %q", got)
	}
}

func TestResultsArriveUnderTheLeastLimitOfFiles(t *testing.T) {
	b := startWith(t, options{Config: agent.Config{Limits: map[string]int64{"nofile": 64}}})
	for range 3 {
		if x := b.python(t, "f = [open('/dev/null') for _ in range(40)]", "len(f)"); string(x.Result) != "40" {
			t.Errorf("got %+v", x)
		}
	}
}
