package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"skandha.dev/services/sandbox/agent"
)

// What code prints, what its last expression is, and how it ends.
func TestPythonAnswersLikeAnInterpreter(t *testing.T) {
	b := start(t)
	for name, tc := range map[string]struct {
		code, stdout, stderr, result, repr string
		exit                               int
	}{
		"prints and a result":      {code: "print('a')\n1 + 1", stdout: "a\n", result: "2"},
		"no expression at the end": {code: "x = 5"},
		"None is no result":        {code: "None"},
		"empty code":               {code: ""},
		"a statement after it":     {code: "5\nx = 1"},
		"a string alone":           {code: "'hello'", result: `"hello"`},
		"a structure": {
			code: "{'a': [1, 2.5, None, True], 'b': 'ü'}", result: `{"a":[1,2.5,null,true],"b":"ü"}`,
		},
		"a tuple is a list": {code: "(1, 2)", result: "[1,2]"},
		"not a number":      {code: "float('nan')", repr: "nan"},
		"a set":             {code: "{1}", repr: "{1}"},
		"an object":         {code: "class A:\n def __repr__(self): return 'I'\nA()", repr: "I"},
		"a repr that fails": {
			code: "class A:\n def __repr__(self): 1/0\nA()", repr: "<A whose repr fails: ZeroDivisionError>",
		},
		"a cycle":                 {code: "a = []\na.append(a)\na", repr: "[[...]]"},
		"a lone surrogate":        {code: `"\ud800"`, result: `"\ud800"`},
		"a number of 5000 digits": {code: "10 ** 5000 > 0", result: "true"},
		"the main module":         {code: "if __name__ == '__main__': print('main')", stdout: "main\n"},
		"main is importable":      {code: "x = 3\nimport __main__\n__main__.x", result: "3"},
		"argv":                    {code: "import sys\nsys.argv", result: `[""]`},
		"exit with a code":        {code: "import sys\nprint('x')\nsys.exit(7)", stdout: "x\n", exit: 7},
		"exit with nothing":       {code: "raise SystemExit"},
		"exit with a message":     {code: "import sys\nsys.exit('because')", stderr: "because\n", exit: 1},
		"the names of site":       {code: "exit(4)", exit: 4},
		"end of input":            {code: "try: input()\nexcept EOFError: print('end')", stdout: "end\n"},
		"atexit": {
			code: "import atexit\natexit.register(print, 'bye')\nprint('hi')", stdout: "hi\nbye\n",
		},
		"threads are waited for": {
			code:   "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.05), print('done'))).start()",
			stdout: "done\n",
		},
		"daemon threads are not": {
			code: "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
		},
		"no newline at the end": {code: "print('x', end='')", stdout: "x"},
		"bytes that are no text": {
			code: "import sys\nsys.stdout.buffer.write(b'a\\xff\\x1b[0mb')\nNone", stdout: "a\uFFFD\x1b[0mb",
		},
		"stdout is closed":       {code: "import sys\nsys.stdout.close()\n5", result: "5"},
		"all files are closed":   {code: "import os\nos.closerange(0, 300)\n5"},
		"a process ends at once": {code: "import os\nos.write(1, b'x')\nos._exit(9)", stdout: "x", exit: 9},
		"a future statement": {
			code: "from __future__ import annotations\ndef f(x: Nope): pass\nf.__annotations__", result: `{"x":"Nope"}`,
		},
		"annotations": {code: "x: int = 3\n__annotations__['x'] is int", result: "true"},
		"subprocess": {
			code: "import subprocess\nsubprocess.run(['echo', 'sub'], capture_output=True, text=True).stdout", result: `"sub\n"`,
		},
		"multiprocessing by fork": {
			code:   "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: r = p.map(abs, [-1, -2])\nr",
			result: "[1,2]",
		},
		"an executor's threads": {
			code: "from concurrent.futures import ThreadPoolExecutor as E\nlist(E().map(abs, [-1]))", result: "[1]",
		},
		"asyncio": {code: "import asyncio\nasync def f(): return 5\nasyncio.run(f())", result: "5"},
		"signals are the usual": {
			code: "import signal\n" +
				"[signal.getsignal(s) == signal.SIG_DFL for s in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD)]",
			result: "[true,true,true]",
		},
		"the collector works": {code: "import gc\ngc.isenabled()", result: "true"},
		"the import path":     {code: "import sys, os\nsys.path[0] == os.getcwd()", result: "true"},
		"no core dumps":       {code: "import resource\nresource.getrlimit(resource.RLIMIT_CORE)", result: "[0,0]"},
		"a separate session":  {code: "import os\nos.getsid(0) == os.getpid() == os.getpgid(0)", result: "true"},
		"source of a function": {
			code: "import inspect\ndef f():\n  return 1\ninspect.getsource(f)", result: `"def f():\n  return 1\n"`,
		},
		"random is not the same twice": {
			code: "import random, os\nr = random.random()\nos.path.exists('r') and open('r').read() == str(r)", result: "false",
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := b.python(t, tc.code)
			got := fmt.Sprintf("stdout %q stderr %q result %s repr %s code %d signal %q", x.Stdout.Text, x.Stderr.Text, x.Result,
				x.Repr, x.Code, x.Signal)
			want := fmt.Sprintf("stdout %q stderr %q result %s repr %s code %d signal %q", tc.stdout, tc.stderr, tc.result,
				tc.repr, tc.exit, "")
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// A traceback begins in the code and shows its lines.
func TestTracebacksShowTheCodeAndNothingElse(t *testing.T) {
	b := start(t)
	for name, tc := range map[string]struct {
		code string
		want []string
	}{
		"an exception": {
			"def f():\n    raise ValueError('bad')\nf()",
			[]string{
				"Traceback (most recent call last):\n  File \"<code>\", line 3, in <module>\n    f()\n",
				"    raise ValueError('bad')\n", "ValueError: bad\n",
			},
		},
		"of what is no syntax": {"x = (1,\ny = 2", []string{"File \"<code>\", line 1", "SyntaxError"}},
		"a chain": {
			"try: 1/0\nexcept ZeroDivisionError as e: raise KeyError(1) from e",
			[]string{"ZeroDivisionError", "direct cause", "KeyError: 1"},
		},
		"in a thread": {
			"import threading\ndef work(): 1/0\nt = threading.Thread(target=work); t.start(); t.join()\nraise SystemExit(1)",
			[]string{"Exception in thread Thread-", "def work(): 1/0", "ZeroDivisionError"},
		},
		"its own hook": {
			"import sys\nsys.excepthook = lambda t, v, tb: print('mine', t.__name__, file=sys.stderr)\n1/0",
			[]string{"mine ZeroDivisionError"},
		},
		"recursion": {"def f(): f()\nf()", []string{"RecursionError"}},
		"NUL":       {"x = '\x00'", []string{"null byte"}},
		"at exit": {
			"import atexit\ndef bye(): 1/0\natexit.register(bye)\nraise SystemExit(1)", []string{"ZeroDivisionError"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := b.python(t, tc.code)
			if x.Code != 1 || strings.Contains(x.Stderr.Text, "agent") {
				t.Errorf("code %d, %s", x.Code, x.Stderr.Text)
			}
			for _, want := range tc.want {
				if !strings.Contains(x.Stderr.Text, want) {
					t.Errorf("%q is missing in %s", want, x.Stderr.Text)
				}
			}
		})
	}
}

func TestACommandRunsWithAndWithoutAShell(t *testing.T) {
	b := start(t)
	for name, tc := range map[string]struct {
		run    agent.Run
		stdout string
		stderr string
		code   int
	}{
		"shell":            {run: agent.Run{Kind: agent.Shell, Code: "echo a | tr a b; exit 3"}, stdout: "b\n", code: 3},
		"argv":             {run: agent.Run{Kind: agent.Argv, Argv: []string{"echo", "$HOME", ";"}}, stdout: "$HOME ;\n"},
		"a program's path": {run: agent.Run{Kind: agent.Argv, Argv: []string{"/bin/echo", "x"}}, stdout: "x\n"},
		"no such program": {
			run: agent.Run{Kind: agent.Argv, Argv: []string{"nope"}}, stderr: "nope: not found\n", code: 127,
		},
		"no program": {
			run: agent.Run{Kind: agent.Argv, Argv: []string{"/etc/passwd"}}, stderr: "/etc/passwd: Permission denied\n",
			code: 126,
		},
		"stdin": {run: agent.Run{Kind: agent.Argv, Argv: []string{"cat"}, Stdin: []byte("in")}, stdout: "in"},
		"a lot of stdin": {
			run: agent.Run{Kind: agent.Shell, Code: "wc -c", Stdin: make([]byte, 3<<20)}, stdout: "3145728\n",
		},
		"stdin nobody reads": {run: agent.Run{Kind: agent.Shell, Code: "echo x", Stdin: make([]byte, 3<<20)}, stdout: "x\n"},
		"env": {
			run: agent.Run{Kind: agent.Shell, Code: "echo $X", Env: map[string]string{"X": "y z"}}, stdout: "y z\n",
		},
		"env of python": {
			run:    agent.Run{Kind: agent.Python, Code: "import os\nprint(os.environ['X'])", Env: map[string]string{"X": "y"}},
			stdout: "y\n",
		},
		"SIGPIPE": {run: agent.Run{Kind: agent.Shell, Code: "yes | head -1"}, stdout: "y\n"},
		"a long script": {
			run: agent.Run{Kind: agent.Shell, Code: "echo ok #" + strings.Repeat("x", 100<<10)}, stdout: "ok\n",
		},
		"long python": {
			run: agent.Run{Kind: agent.Python, Code: "print('ok') #" + strings.Repeat("x", 300<<10)}, stdout: "ok\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := b.must(t, tc.run)
			if x.Stdout.Text != tc.stdout || x.Stderr.Text != tc.stderr || x.Code != tc.code {
				t.Errorf("got %+v", x)
			}
		})
	}
	x := b.shell(t, "kill -9 $$")
	if x.Signal != "SIGKILL" || x.Code != 137 {
		t.Errorf("killed: %+v", x)
	}
}

// Files left out of the list are counted, with the reasons.
func TestFilesThatAreNotListedAreCounted(t *testing.T) {
	many := "import os\nfor i in range(5000): open('out/%04d' % i, 'w').close()"
	for name, c := range map[string]struct {
		run    agent.Run
		files  int
		more   int
		unseen string
	}{
		"many":            {agent.Run{Kind: agent.Python, Code: many}, 64, 4936, "[]"},
		"many by a shell": {agent.Run{Kind: agent.Shell, Code: "cd out && seq 5000 | xargs touch"}, 64, 4936, "[]"},
		"a link": {
			agent.Run{Kind: agent.Shell, Code: "rmdir out; ln -s /tmp out"},
			0, 0,
			"[out is not a directory, so no file in it is kept; replace it with a directory]",
		},
		"a file": {
			agent.Run{Kind: agent.Python, Code: "import os\nos.rmdir('out')\nopen('out', 'w').close()"},
			0, 0,
			"[out is not a directory, so no file in it is kept; replace it with a directory]",
		},
		"levels": {
			agent.Run{Kind: agent.Python, Code: "import os\nos.makedirs('out' + '/d' * 20)\nopen('out/f', 'w')"},
			1, 0,
			"[1 directories more than 16 levels below out were not examined]",
		},
		"closed directory": {
			agent.Run{Kind: agent.Shell, Code: "mkdir out/x; touch out/x/f; chmod 0 out/x"},
			0, 0,
			"[1 directories below out were not readable]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			x := b.must(t, c.run)
			if x.Code != 0 || len(x.Files) != c.files || x.MoreFiles != c.more || fmt.Sprint(x.UnseenFiles) != c.unseen {
				t.Errorf("got %d files, %d more, %v, want %d, %d, %s; %s", len(x.Files), x.MoreFiles, x.UnseenFiles, c.files,
					c.more, c.unseen, x.Stderr.Text)
			}
			if x := b.must(t, agent.Run{Kind: agent.Python, Code: "1"}); len(x.Files) != 0 || x.MoreFiles != 0 {
				t.Errorf("a run that makes no file has %d and %d more", len(x.Files), x.MoreFiles)
			}
		})
	}
}

// Every run finds the directory for the user's files.
func TestOutIsThere(t *testing.T) {
	b := start(t)
	for range 2 {
		if x := b.must(t, agent.Run{Kind: agent.Shell, Code: "echo x > out/f && rm -r out"}); x.Code != 0 {
			t.Errorf("got %+v", x)
		}
	}
}
