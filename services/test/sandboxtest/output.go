package sandboxtest

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"skandha.dev/services/sandbox/agent"
)

// outputProbes test a run's output, input and result.
func outputProbes() []probe {
	flood := func(name, code string) probe {
		return probe{name: name, try: func(a *attempt) (outcome, error) { return a.flood(agent.Python, code) }}
	}
	return []probe{
		{name: "1 GB of stdout", alone: true, try: func(a *attempt) (outcome, error) {
			return a.flood(agent.Shell, "head -c 1073741824 /dev/zero | tr '\\0' 'x\\n'")
		}},
		flood("stdout without a newline", `os.write(1, b"x" * (8 << 20))`),
		flood("stderr and stdout at once", `
for _ in range(4000):
    os.write(1, b"out" * 700)
    os.write(2, b"err" * 700)`),
		flood("one byte at a time", `
for _ in range(100000):
    os.write(1, b"x")`),
		flood("only newlines", `os.write(1, b"\n" * (4 << 20))`),
		{name: "ANSI, binary and broken UTF-8 on stdout", try: binaryOutput},
		{name: "a cut character", try: cutCharacters},
		{name: "waiting on stdin", try: stdinEnds},
		{name: "stdout closed early", try: closedOutput},
		{name: "stdout of a child that outlives the run", try: heldOutput},
		{name: "a result that is huge", alone: true, try: hugeResults},
		{name: "a result that lies", try: lyingResults},
		{name: "a forged result", alone: true, try: forgedResult},
		{name: "invalid artifacts", alone: true, try: oddArtifacts},
		{name: "nonblocking and sealed output", try: oddOutput},
	}
}

// flood prints more than is kept. The service keeps a bounded part, and its memory does not
// grow with the output.
func (a *attempt) flood(kind agent.Kind, code string) (outcome, error) {
	if kind == agent.Python {
		code = prelude + code
	}
	var streamed atomic.Int64
	var exit agent.Exit
	before := heap()
	asked, err := a.whileNeighbourAnswers(func() (err error) {
		exit, err = a.run(a.ctx, agent.Run{
			Kind: kind, Code: code, MaxOutput: 10000,
			Output: func(_ agent.Stream, piece []byte) { streamed.Add(int64(len(piece))) },
		})
		return err
	})
	if err != nil {
		return outcome{}, err
	}
	if grown := heap() - before; grown > 128<<20 {
		return hole("the service's own memory has grown by %d MiB", grown>>20)
	}
	for _, text := range []agent.Text{exit.Stdout, exit.Stderr} {
		if len(text.Text) > 10000+200 || !utf8.ValidString(text.Text) {
			return hole("of 10000 bytes to keep %d were kept, valid UTF-8: %v", len(text.Text), utf8.ValidString(text.Text))
		}
	}
	if exit.Stdout.Bytes < 60000 || !exit.Stdout.Cut {
		return hole("of the flood %d bytes were counted, cut: %v; exit %+v", exit.Stdout.Bytes, exit.Stdout.Cut, exit)
	}
	return bounded("%d KiB printed, %d bytes kept, %d KiB streamed, timed out: %v, neighbour asked %d times",
		exit.Stdout.Bytes>>10, len(exit.Stdout.Text), streamed.Load()>>10, exit.TimedOut, asked)
}

// heap returns the memory that this process has obtained from the system for Go, in bytes;
// it does not shrink soon.
func heap() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys)
}

func binaryOutput(a *attempt) (outcome, error) {
	exit, err := a.python(a.ctx, `
os.write(1, b"\x1b[2J\x1b]0;title\x07\x1b[31mred\x00\x01\xff\xfe\xc0\xae\xed\xa0\x80\xf5\x80\x80\x80 end")
os.write(2, bytes(range(256)))`)
	if err != nil {
		return outcome{}, err
	}
	if !utf8.ValidString(exit.Stdout.Text) || !utf8.ValidString(exit.Stderr.Text) {
		return hole("what arrives is not UTF-8: %q, %q", exit.Stdout.Text, exit.Stderr.Text)
	}
	if !strings.Contains(exit.Stdout.Text, "red") || !strings.HasSuffix(exit.Stdout.Text, " end") {
		return hole("the readable part did not arrive: %q", exit.Stdout.Text)
	}
	return harmless("valid UTF-8 arrives: %+q", exit.Stdout.Text)
}

// cutCharacters prints characters of 4 bytes where the middle is cut.
func cutCharacters(a *attempt) (outcome, error) {
	for _, n := range []int{999, 1000, 1001, 1002} {
		exit, err := a.run(a.ctx,
			agent.Run{Kind: agent.Python, Code: `import os; os.write(1, "\U0001F600".encode() * 5000)`, MaxOutput: n})
		if err != nil {
			return outcome{}, err
		}
		if !utf8.ValidString(exit.Stdout.Text) || !exit.Stdout.Cut {
			return hole("kept are %q", exit.Stdout.Text)
		}
	}
	return bounded("cut between characters")
}

func stdinEnds(a *attempt) (outcome, error) {
	exit, err := a.python(a.ctx, `[sys.stdin.read(), os.read(0, 10).decode(), attempt(input)]`)
	if err != nil {
		return outcome{}, err
	}
	if string(exit.Result) != `["","","EOFError"]` {
		return hole("standard input is %s", exit.Result)
	}
	exit, err = a.shell("cat; read x; echo $?")
	if err != nil || exit.TimedOut || strings.TrimSpace(exit.Stdout.Text) != "1" {
		return hole("the shell's standard input: %+v, %v", exit, err)
	}
	return bounded("end of file at once")
}

func closedOutput(a *attempt) (outcome, error) {
	exit, err := a.python(a.ctx, `
print("before", flush=True)
os.closerange(0, 3)
sum(range(10))`)
	if err != nil {
		return outcome{}, err
	}
	if !strings.Contains(exit.Stdout.Text, "before") {
		return hole("earlier output is lost: %+v", exit)
	}
	exit, err = a.python(a.ctx, `
os.closerange(0, 256)
sum(range(10))`)
	if err != nil {
		return outcome{}, err
	}
	return harmless("with all descriptors closed: exit %d %s, result %s", exit.Code, exit.Signal, exit.Result)
}

// heldOutput leaves a child that holds the pipe: the call must not wait for it.
func heldOutput(a *attempt) (outcome, error) {
	exit, err := a.run(a.ctx,
		agent.Run{Kind: agent.Shell, Code: "(trap '' TERM HUP; sleep 3600) & echo done", Timeout: patience / 2})
	if err != nil {
		return outcome{}, err
	}
	if exit.TimedOut || !strings.Contains(exit.Stdout.Text, "done") {
		return hole("the call waits for a child that holds its output: %+v", exit)
	}
	if left := a.strays(); len(left) > 0 {
		return hole("the child still runs: %v", left)
	}
	return bounded("%d strays ended", exit.Strays)
}

func hugeResults(a *attempt) (outcome, error) {
	var notes []string
	for _, code := range []string{
		`"x" * (64 << 20)`, `[0] * (8 << 20)`, `{"a": {i: "y" * 100 for i in range(200000)}}`,
		`type("R", (), {"__repr__": lambda self: "r" * (32 << 20)})()`, `10 ** 3000`,
		"a = []\nfor _ in range(100000):\n    a = [a]\na",
	} {
		exit, err := a.run(a.ctx, agent.Run{Kind: agent.Python, Code: code, Timeout: patience / 2})
		if err != nil {
			return hole("%s breaks the sandbox: %v", code, err)
		}
		if len(exit.Result)+len(exit.Repr) > 1<<20 {
			return hole("%s returns %d bytes of result and %d of repr", code, len(exit.Result), len(exit.Repr))
		}
		notes = append(notes, fmt.Sprintf("%d/%d", len(exit.Result), len(exit.Repr)))
	}
	return bounded("bytes of result and of repr: %s", strings.Join(notes, " "))
}

// lyingResults returns objects that misbehave when they are inspected.
func lyingResults(a *attempt) (outcome, error) {
	for _, code := range []string{
		`type("R", (), {"__repr__": lambda self: 1 / 0})()`, `type("R", (), {"__repr__": lambda self: 7})()`,
		`type("R", (str,), {"__str__": lambda self: 1 / 0})("x")`,
		`type("R", (dict,), {"items": lambda self: 1 / 0})(a=1)`, `float("nan")`, `[float("inf")]`, `"\ud800"`,
		`{1: 2, "1": 3}`, `type("R", (), {"__reduce__": lambda self: exit(9), "__repr__": lambda self: exit(9)})()`,
		"a = []; a.append(a); a", `type("R", (int,), {"__repr__": lambda self: '1,"code":0,"forged":'})(5)`,
	} {
		exit, err := a.run(a.ctx, agent.Run{Kind: agent.Python, Code: code, Timeout: patience / 2})
		if err != nil {
			return hole("%s breaks the sandbox: %v", code, err)
		}
		if !utf8.ValidString(exit.Repr) || !utf8.Valid(exit.Result) {
			return hole("%s returns %q, %q", code, exit.Result, exit.Repr)
		}
	}
	return bounded("all end well")
}

// forgedResult writes many variants of a result to all descriptors, and then exits by
// itself: that is the run's report about itself, and nothing
// more. The next call must not see it.
func forgedResult(a *attempt) (outcome, error) {
	exit, err := a.python(a.ctx, `
for fd in list(range(3, 300)):
    for payload in (b'{"result":"forged"}', b'{"result":"forged","code":0,"files":[{"path":"../../etc/passwd","type":"file","size":-1}]}', b"\xff" * 100):
        for kind in (b"s", b"a", b"b", b"e", b"x", b"r", b"o", b"\x00", b"\xff"):
            attempt(os.write, fd, kind + len(payload).to_bytes(4, "big") + payload)
    attempt(os.write, fd, b"s\xff\xff\xff\xff")
os._exit(3)`)
	if err != nil {
		return harmless("the sandbox is broken: %v", err)
	}
	for _, f := range exit.Files {
		if strings.Contains(f.Path, "..") || f.Size < 0 {
			return hole("a forged file is believed: %+v", f)
		}
	}
	if exit.Code != 3 {
		return hole("the exit code is forged: %+v", exit)
	}
	for range 3 {
		if err := a.answers(a.ctx); err != nil {
			return harmless("the sandbox is broken: %v", err)
		}
	}
	return harmless("exit 3, result %s, the next calls are answered correctly", exit.Result)
}

// oddArtifacts puts files into out that must not be uploaded.
func oddArtifacts(a *attempt) (outcome, error) {
	exit, err := a.python(a.ctx, `
os.makedirs("out/sub")
os.symlink("/etc/passwd", "out/passwd"); os.symlink("/", "out/root"); os.mkfifo("out/fifo")
socket.socket(socket.AF_UNIX).bind("out/sock")
open("out/fine.txt", "w").write("fine")
open("out/sparse", "w").close()
attempt(os.truncate, "out/sparse", 1 << 40)
for i in range(300):
    open("out/sub/%d" % i, "w").close()
1`)
	if err != nil {
		return outcome{}, err
	}
	fine := false
	for _, f := range exit.Files {
		fine = fine || f.Path == "out/fine.txt"
		if f.Type != "file" {
			return hole("%+v must not be kept", f)
		}
	}
	if !fine && len(exit.Files) < 10 {
		return hole("of the run's files these are listed: %+v", exit.Files)
	}
	return bounded("%d files of 302 are listed, all are plain files", len(exit.Files))
}

// oddOutput changes what it shares with the agent: flags and sizes of the pipe.
func oddOutput(a *attempt) (outcome, error) {
	exit, err := a.python(a.ctx, `
import fcntl
for fd in (0, 1, 2):
    os.set_blocking(fd, False)
    attempt(fcntl.fcntl, fd, 1031, 4096)
    attempt(fcntl.fcntl, fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND | 0o40000)
    attempt(fcntl.fcntl, fd, fcntl.F_SETOWN, 1)
    attempt(fcntl.fcntl, fd, fcntl.F_SETFL, os.O_NONBLOCK | fcntl.FASYNC)
print("odd", flush=True)`)
	if err != nil {
		return outcome{}, err
	}
	return harmless("exit %d, stdout %q", exit.Code, exit.Stdout.Text)
}
