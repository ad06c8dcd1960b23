package sandboxtest

import (
	"context"
	"errors"
	"strings"
	"time"

	"skandha.dev/services/sandbox/agent"
)

// lifecycleProbes are about how runs end, and what they leave for the next one.
func lifecycleProbes() []probe {
	return []probe{
		{name: "ignored SIGTERM", try: ignoredTerm},
		{name: "daemonised child", try: daemon},
		{name: "daemonised child of a killed run", try: daemonOfKilled},
		{name: "silent exit", try: silentExits},
		{name: "threads alive at exit", try: endsByTimeout(`threading.Thread(target=time.sleep, args=(3600,)).start()`)},
		{name: "atexit that hangs", try: endsByTimeout(`
import atexit
atexit.register(time.sleep, 3600)`)},
		{name: "destructor that hangs", try: endsByTimeout(`
class C:
    def __del__(self): time.sleep(3600)
keep = C()
del keep`)},
		{name: "stopped by itself", try: endsByTimeout(`os.kill(os.getpid(), signal.SIGSTOP)`)},
		{name: "all signals blocked", try: endsByTimeout(`
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
while True:
    time.sleep(1)`)},
		{name: "delete the workspace", alone: true, try: deletedWorkspace},
		{name: "python's modules in the workspace", alone: true, try: shadowedModules},
		{name: "python's start-up files in the workspace", alone: true, try: startupFiles},
		{name: "environment that persists", try: lastingEnvironment},
		{name: "directory that persists", try: lastingDirectory},
		{name: "monkeypatched agent", try: monkeypatched},
		{name: "limits that persist", try: lastingLimits},
		{name: "programs in the workspace", try: shadowedPrograms},
		{name: "all processes killed from inside", alone: true, try: killedFromInside},
		{name: "cancelled by the service", try: cancelled},
		{name: "cancelled before it begins", try: cancelledEarly},
		{name: "many calls at once", try: manyCalls},
		{name: "destroyed in the middle of a run", alone: true, try: destroyedInRun},
		{name: "a call after the sandbox has ended", alone: true, try: callAfterEnd},
	}
}

func ignoredTerm(a *attempt) (outcome, error) {
	exit, err := a.endless("here", agent.Run{Kind: agent.Python, Grace: 300 * time.Millisecond, Code: prelude + `
for s in signal.valid_signals():
    try:
        signal.signal(s, signal.SIG_IGN)
    except OSError:
        pass
print("here", flush=True)
while True:
    time.sleep(1)`})
	if err != nil {
		return outcome{}, err
	}
	if !exit.TimedOut || exit.Signal != "SIGKILL" || !strings.Contains(exit.Stdout.Text, "here") {
		return hole("a run that ignores SIGTERM ends with %+v", exit)
	}
	return bounded("ended by %s", exit.Signal)
}

// fork2 creates a daemon.
const fork2 = `
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.closerange(0, 256)
            while True:
                time.sleep(0.05)
                fd = os.open("/workspace/heartbeat", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.write(fd, b"x")
                os.close(fd)
        os._exit(0)
    os.wait()
for _ in range(5):
    daemon()
`

func daemon(a *attempt) (outcome, error) {
	exit, err := a.python(a.ctx, fork2+"None")
	if err != nil {
		return outcome{}, err
	}
	if left := a.strays(); len(left) > 0 {
		return hole("daemons outlive their call: %v", left)
	}
	if exit.Strays < 1 {
		return hole("5 daemons were left, %d strays are reported", exit.Strays)
	}
	return bounded("%d strays ended", exit.Strays)
}

func daemonOfKilled(a *attempt) (outcome, error) {
	exit, err := a.python(a.ctx, fork2+"os.kill(os.getpid(), 9)")
	if err != nil {
		return outcome{}, err
	}
	if left := a.strays(); len(left) > 0 {
		return hole("daemons outlive their call: %v", left)
	}
	if exit.Signal != "SIGKILL" || exit.Code != 137 {
		return hole("a run that kills itself ends with %+v", exit)
	}
	return bounded("%d strays ended", exit.Strays)
}

func silentExits(a *attempt) (outcome, error) {
	for code, want := range map[string]agent.Exit{
		`os._exit(7)`:                   {Code: 7},
		`sys.exit(8)`:                   {Code: 8},
		`raise SystemExit("bye")`:       {Code: 1},
		`os.kill(os.getpid(), 9)`:       {Code: 137, Signal: "SIGKILL"},
		`os.abort()`:                    {Code: 134, Signal: "SIGABRT"},
		`ctypes.string_at(0)`:           {Code: 139, Signal: "SIGSEGV"},
		`os.execv("/bin/false", ["x"])`: {Code: 1},
		// The fork reaches the script's end first, and must not report for it.
		"if os.fork():\n    time.sleep(0.3)\nelse:\n    sys.exit(3)": {Code: 0},
		`raise MemoryError`:               {Code: 1},
		`raise KeyboardInterrupt`:         {Code: 130},
		`os.kill(os.getpid(), 34)`:        {Code: 128 + 34},
		`1 / 0`:                           {Code: 1},
		`def broken(:`:                    {Code: 1},
		`os.killpg(os.getpgid(0), 15)`:    {Code: 143, Signal: "SIGTERM"},
		`os.kill(os.getppid(), 9) or 1+1`: {Code: 0},
	} {
		exit, err := a.python(a.ctx, code)
		if err != nil {
			return hole("%s breaks the sandbox: %v", code, err)
		}
		if exit.Code != want.Code || want.Signal != "" && exit.Signal != want.Signal || exit.TimedOut {
			return hole("%s ends with %d %q (%s), want %d %q", code, exit.Code, exit.Signal, tail(exit.Stderr.Text), want.Code,
				want.Signal)
		}
	}
	return harmless("each is reported correctly")
}

// endsByTimeout runs code that does not end by itself.
func endsByTimeout(code string) func(*attempt) (outcome, error) {
	return func(a *attempt) (outcome, error) {
		exit, err := a.run(a.ctx, agent.Run{Kind: agent.Python, Timeout: shortRun, Code: prelude + code})
		if err != nil {
			return outcome{}, err
		}
		if !exit.TimedOut {
			return hole("it ended by itself: %+v", exit)
		}
		if left := a.strays(); len(left) > 0 {
			return hole("it still runs: %v", left)
		}
		return bounded("ended at its timeout by %s", exit.Signal)
	}
}

func deletedWorkspace(a *attempt) (outcome, error) {
	if _, err := a.shell("cd / && rm -rf /workspace /workspace/.* /workspace/* /tmp/* /tmp/.*"); err != nil {
		return outcome{}, err
	}
	if _, err := a.Write(a.ctx, "again.txt", []byte("x"), agent.Create); err != nil {
		return hole("nothing can be written any more: %v", err)
	}
	said, err := a.says(`open("again.txt").read() + str(os.path.exists("/packages") or "")`)
	if err != nil {
		return hole("nothing runs any more: %v", err)
	}
	return harmless("it can be written to again: %q", said)
}

// shadowedModules puts modules into the workspace that the agent might import.
func shadowedModules(a *attempt) (outcome, error) {
	said, err := a.says(`
names = sorted(set(sys.stdlib_module_names) | {"agent", "agent_child", "agent_files", "sitecustomize", "usercustomize"})
for d in ("/workspace", "/tmp"):
    for n in names:
        if not n.startswith("__"):
            try:
                open("%s/%s.py" % (d, n), "w").write("open('/tmp/ran','a').write(%r)\nraise SystemExit(99)\n" % (n + " "))
            except OSError:
                pass
"laid"`)
	if err != nil {
		return outcome{}, err
	}
	_, listErr := a.List(a.ctx, ".")
	_, _, grepErr := a.Grep(a.ctx, agent.GrepQuery{Pattern: "SystemExit", Max: 1})
	_, _, globErr := a.Glob(a.ctx, "*.py", 1)
	exportErr := a.Export(a.ctx, new(counter))
	if err := errors.Join(listErr, grepErr, globErr, exportErr); err != nil {
		return hole("modules in the workspace harm the agent: %v", err)
	}
	exit, err := a.shell("cat /tmp/ran; rm -f /tmp/ran /tmp/*.py /workspace/*.py")
	if err != nil {
		return hole("modules in the workspace harm the agent: %v", err)
	}
	if exit.Stdout.Text != "" {
		return hole("the agent has run modules of the workspace: %s", exit.Stdout.Text)
	}
	return harmless("%s; the agent imports none of them", said)
}

func startupFiles(a *attempt) (outcome, error) {
	said, err := a.says(`
import site
out = []
for d in {site.getusersitepackages(), "/workspace", "/tmp", "/workspace/.config"}:
    try:
        os.makedirs(d, exist_ok=True)
        for n in ("evil.pth", "sitecustomize.py", "usercustomize.py", "pyvenv.cfg", ".pythonrc.py", ".profile", ".bashrc", ".shinit"):
            open(d + "/" + n, "w").write("import os; os.write(1, b'started by a file')\n")
        out.append(d)
    except OSError:
        pass
" ".join(out)`)
	if err != nil {
		return outcome{}, err
	}
	for _, r := range []agent.Run{
		{Kind: agent.Python, Code: "1"}, {Kind: agent.Shell, Code: "true"}, {Kind: agent.Argv, Argv: []string{"true"}},
	} {
		exit, err := a.run(a.ctx, r)
		if err != nil || strings.Contains(exit.Stdout.Text, "started") {
			return hole("a file in the workspace is run at the start of %s: %+v, %v", r.Kind, exit, err)
		}
	}
	return harmless("put into %s, not run", said)
}

func lastingEnvironment(a *attempt) (outcome, error) {
	if _, err := a.shell("export LD_PRELOAD=/workspace/evil.so PATH=/workspace PYTHONPATH=/workspace EVIL=1; alias ls=false; umask 777; ulimit -n 3; true"); err != nil {
		return outcome{}, err
	}
	if _, err := a.says(`os.environ.update(EVIL="1", LD_PRELOAD="/workspace/evil.so", PATH="/workspace"); os.umask(0o777); ""`); err != nil {
		return outcome{}, err
	}
	if _, err := a.run(a.ctx,
		agent.Run{
			Kind: agent.Python, Code: "1",
			Env: map[string]string{"EVIL": "1", "LD_PRELOAD": "/workspace/evil.so", "PATH": "/workspace"},
		}); err != nil {
		return outcome{}, err
	}
	said, err := a.says(`repr(sorted(k for k in os.environ if k in ("EVIL", "LD_PRELOAD", "PYTHONPATH"))) + os.environ["PATH"] + oct(os.umask(0))`)
	if err != nil || strings.Contains(said, "EVIL") || strings.Contains(said, "LD_") ||
		strings.Contains(said, "/workspace") || strings.HasSuffix(said, "0o777") {
		return hole("the next call has %s, %v", said, err)
	}
	return harmless("nothing persists: %s", said)
}

func lastingDirectory(a *attempt) (outcome, error) {
	if _, err := a.says(`os.chdir("/tmp"); sys.path.insert(0, "/tmp/evil"); ""`); err != nil {
		return outcome{}, err
	}
	exit, err := a.shell("pwd")
	said, err2 := a.says(`os.getcwd() + ("evil" if "/tmp/evil" in sys.path else "")`)
	if strings.TrimSpace(exit.Stdout.Text) != "/workspace" || said != "/workspace" {
		return hole("the next calls are in %q and %q (%v)", exit.Stdout.Text, said, errors.Join(err, err2))
	}
	return harmless("the next call is in the workspace again")
}

// monkeypatched changes everything of the agent that a run's process has.
func monkeypatched(a *attempt) (outcome, error) {
	if _, err := a.python(a.ctx, `
import builtins, gc
for name, module in list(sys.modules.items()):
    if name in ("os", "posix", "sys", "builtins", "json", "io", "_io", "select", "signal", "struct", "time"):
        for attr in ("fork", "write", "read", "waitpid", "loads", "dumps", "kill", "_exit", "open", "pack", "unpack", "select", "poll", "len", "str", "print"):
            try:
                setattr(module, attr, lambda *a, **k: 666)
            except Exception:
                pass
for o in gc.get_objects():
    if isinstance(o, dict) and o.get("__name__") in ("__main__", "agent", "agent_child", "agent_files"):
        for k in list(o):
            if callable(o[k]):
                o[k] = lambda *a, **k: 666`); err != nil {
		return harmless("the sandbox is broken: %v", err)
	}
	for range 3 {
		if err := a.answers(a.ctx); err != nil {
			return hole("a patch persists: %v", err)
		}
	}
	return harmless("the next calls are answered correctly")
}

func lastingLimits(a *attempt) (outcome, error) {
	usual, err := a.says(`str(os.nice(0))`)
	if err != nil {
		return outcome{}, err
	}
	if _, err := a.python(a.ctx, `
import resource
for r in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_CPU, resource.RLIMIT_STACK):
    attempt(resource.setrlimit, r, (1, 1))
os.nice(19)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())`); err != nil {
		return outcome{}, err
	}
	said, err := a.says(`
import resource
open("/tmp/limits", "w").write("x" * 1000)
raised = [attempt(resource.setrlimit, r, (1 << 20, 1 << 20)) for r in (resource.RLIMIT_NOFILE,)]
"%d %s %s" % (os.nice(0), sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), raised[0])`)
	if err != nil {
		return hole("the next call is limited: %v", err)
	}
	if !strings.HasPrefix(said, usual+" [] ") || strings.Contains(said, "done") {
		return hole("niceness, blocked signals and raised limits of the next call: %s", said)
	}
	return harmless("nothing lasts: %s", said)
}

// shadowedPrograms puts a program where a search might find it first.
func shadowedPrograms(a *attempt) (outcome, error) {
	if _, err := a.shell("for p in ls sh true python3 cat; do printf '#!/bin/sh\\necho evil\\n' > $p; chmod +x $p; done"); err != nil {
		return outcome{}, err
	}
	defer func() { _ = a.Remove(a.ctx, "ls", false) }() // the sandbox ends with the group
	for _, r := range []agent.Run{
		{Kind: agent.Argv, Argv: []string{"ls"}},
		{Kind: agent.Shell, Code: "ls; true"},
		{Kind: agent.Argv, Argv: []string{"cat", "/dev/null"}},
	} {
		exit, err := a.run(a.ctx, r)
		if err != nil || strings.Contains(exit.Stdout.Text, "evil") {
			return hole("a program of the workspace is run: %+v, %v", exit, err)
		}
	}
	return harmless("the workspace is not in PATH")
}

func killedFromInside(a *attempt) (outcome, error) {
	exit, err := a.python(a.ctx, `
for s in (19, 15, 9):
    attempt(os.kill, -1, s)
    attempt(os.kill, 1, s)
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) != os.getpid():
        attempt(os.kill, int(pid), 9)
os.kill(0, 9)`)
	if err != nil {
		return harmless("%v", err)
	}
	return harmless("exit %d %s", exit.Code, exit.Signal)
}

// cancelled cancels a run once it is running.
func cancelled(a *attempt) (outcome, error) {
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	exit, err := a.run(ctx, agent.Run{
		Kind: agent.Python, Code: prelude + fork2 + `
print("running", flush=True)
while True:
    time.sleep(1)`,
		Output: func(agent.Stream, []byte) { cancel() },
	})
	if !exit.Stopped && !errors.Is(err, context.Canceled) {
		return hole("a cancelled run ends with %+v, %v", exit, err)
	}
	if left := a.strays(); len(left) > 0 {
		return hole("it is still there: %v", left)
	}
	return bounded("stopped: %v, %v, %d strays", exit.Stopped, err, exit.Strays)
}

func cancelledEarly(a *attempt) (outcome, error) {
	ctx, cancel := context.WithCancel(a.ctx)
	cancel()
	exit, err := a.Run(ctx, agent.Run{Kind: agent.Python, Code: `open("/workspace/was-run", "w")`, Timeout: patience / 2})
	if err == nil && !exit.Stopped {
		return hole("a run that was cancelled before it began ends with %+v", exit)
	}
	if _, err := a.Stat(a.ctx, "was-run"); err == nil {
		return hole("it ran")
	}
	return refused("%v", err)
}

// manyCalls makes concurrent calls; each must get its own answer.
func manyCalls(a *attempt) (outcome, error) {
	const calls = 20
	errs := make(chan error, calls)
	for i := range calls {
		go func() {
			var got int
			err := a.eval(a.ctx, &got, strings.Repeat("1 + ", i)+"0")
			if err == nil && got != i {
				err = errors.New("calls got each other's answers")
			}
			errs <- err
		}()
	}
	var all []error
	for range calls {
		all = append(all, <-errs)
	}
	if err := errors.Join(all...); err != nil {
		return hole("%v", err)
	}
	return bounded("%d calls at once, each answered correctly", calls)
}

func destroyedInRun(a *attempt) (outcome, error) {
	started, done := make(chan struct{}, 1000), make(chan error, 1)
	go func() {
		_, err := a.run(a.ctx, agent.Run{
			Kind: agent.Python, Code: prelude + fork2 + "print('running', flush=True)\ntime.sleep(3600)",
			Output: func(agent.Stream, []byte) { started <- struct{}{} },
		})
		done <- err
	}()
	select {
	case <-started:
	case err := <-done:
		return outcome{}, err
	}
	if err := a.end(); err != nil {
		return hole("%v", err)
	}
	if err := <-done; !errors.Is(err, agent.ErrBroken) {
		return hole("the run in a destroyed sandbox ends with %v", err)
	}
	return bounded("everything has ended, and the run's caller was informed")
}

func callAfterEnd(a *attempt) (outcome, error) {
	if err := a.end(); err != nil {
		return hole("%v", err)
	}
	_, runErr := a.Run(a.ctx, agent.Run{Kind: agent.Python, Code: "1", Timeout: patience})
	_, fileErr := a.List(a.ctx, ".")
	if !errors.Is(runErr, agent.ErrBroken) || !errors.Is(fileErr, agent.ErrBroken) {
		return hole("in a destroyed sandbox a run says %v, a file operation %v", runErr, fileErr)
	}
	return refused("%v", runErr)
}
