package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/sandbox"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/sandbox/tools"
	"skandha.dev/services/test/drivertest"
	"skandha.dev/services/test/natstest"
)

func TestWhatIsOffered(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1, Slots: 5})
	var names []string
	for _, s := range c.offer.Tools {
		names = append(names, s.Name)
		if s.Pool != tools.Pool || !s.Sticky || s.Risk == tool.RiskHigh || s.Description == "" || len(s.Permissions) == 0 {
			t.Errorf("%+v", s)
		}
		for _, tag := range s.ScenarioTags {
			if !slices.Contains(tool.Scenarios(), tag) {
				t.Errorf("%s has the tag %s", s.Name, tag)
			}
		}
	}
	slices.Sort(names)
	want := []string{
		"python:execute", "sandbox_fs:download", "sandbox_fs:edit", "sandbox_fs:glob", "sandbox_fs:grep", "sandbox_fs:list",
		"sandbox_fs:mkdir",
		"sandbox_fs:move", "sandbox_fs:read", "sandbox_fs:remove", "sandbox_fs:stat", "sandbox_fs:upload", "sandbox_fs:write",
		"shell:execute",
	}
	if !slices.Equal(names, want) {
		t.Errorf("got %v", names)
	}
	if c.offer.Service != "sandbox" || !slices.Contains(c.offer.Pools, executor.Pool{Name: "sandbox", Slots: 5}) {
		t.Errorf("got %+v", c.offer)
	}
}

func TestPythonAnswersWhatItPrintedAndItsLastValue(t *testing.T) {
	s := start(t, sandbox.Config{Warm: -1}).session("s")
	got := s.python("import sys\nprint('hello')\nprint('oops', file=sys.stderr)\n{'n': 6*7}")
	if got.Stdout != "hello\n" || got.Stderr != "oops\n" ||
		string(got.Result) != `{"n":42}` && string(got.Result) != `{"n": 42}` || got.ExitCode != 0 || got.Truncated ||
		got.Notice != "" {
		t.Errorf("got %+v", got)
	}
	if got := s.python("x = 1"); got.Result != nil {
		t.Errorf("a statement has the value %s", got.Result)
	}
	if got := s.python("object"); text(t, got.Result) != "<class 'object'>" {
		t.Errorf("what is no JSON is %s", got.Result)
	}
}

func text(t *testing.T, data json.RawMessage) (s string) {
	t.Helper()
	if err := json.Unmarshal(data, &s); err != nil {
		t.Errorf("%s: %v", data, err)
	}
	return s
}

func TestAProgramThatFailsIsAFailureWithWhatItPrinted(t *testing.T) {
	s := start(t, sandbox.Config{Warm: -1}).session("s")
	for name, c := range map[string]struct {
		tool    string
		args    args
		message string
		want    ran
	}{
		"an exception": {
			"python:execute",
			args{"code": "print('before')\n1/0"},
			"ZeroDivisionError: division by zero (exit 1)",
			ran{Stdout: "before\n", Stderr: "Traceback", ExitCode: 1},
		},
		"an exit code": {"python:execute", args{"code": "raise SystemExit(3)"}, "exit 3", ran{ExitCode: 3}},
		"no Python": {
			"python:execute",
			args{"code": "1 +"},
			"SyntaxError: invalid syntax (exit 1)",
			ran{Stderr: "SyntaxError", ExitCode: 1},
		},
		"a shell command": {
			"shell:execute", args{"command": "echo no >&2; exit 7"}, "no (exit 7)", ran{Stderr: "no\n", ExitCode: 7},
		},
		"a signal": {
			"shell:execute", args{"argv": []string{"sh", "-c", "kill -TERM $$"}}, "ended by SIGTERM", ran{ExitCode: 143},
		},
		"a long last line": {
			"shell:execute",
			args{"command": "head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1"},
			strings.Repeat("x", 500) + "… (exit 1)",
			ran{Stderr: "xxx", ExitCode: 1},
		},
	} {
		r := s.call(c.tool, c.args)
		got := s.decode(r)
		if r.Success || r.Error == nil || r.Error.Code != tool.CodeFailed || r.Error.Message != c.message {
			t.Errorf("%s: success %t, %+v, want tool_failed: %s", name, r.Success, r.Error, c.message)
		}
		if got.ExitCode != c.want.ExitCode || got.Stdout != c.want.Stdout || !strings.Contains(got.Stderr, c.want.Stderr) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestAFailedProgramsFilesAreKept(t *testing.T) {
	s := start(t, sandbox.Config{Warm: -1}).session("s")
	r := s.call("python:execute",
		args{"code": "import os\nos.makedirs('out', exist_ok=True)\nopen('out/a.csv','w').write('x')\n1/0"})
	if got := s.decode(r); r.Success || len(got.Artifacts) != 1 || got.Artifacts[0].Path != "out/a.csv" {
		t.Errorf("success %t, got %+v", r.Success, got)
	}
}

func TestARunOutOfTimeIsAFailureWithWhatItPrinted(t *testing.T) {
	s := start(t, sandbox.Config{Warm: -1}).session("s")
	var r tool.Result
	for ms := 300; ; ms *= 2 { // a machine may be too slow to begin in that time
		r = s.call("python:execute",
			args{"code": "import time\nprint('so far')\nopen('begun','w')\ntime.sleep(60)", "timeout": float64(ms) / 1000})
		if r.Success || r.Error.Code != tool.CodeTimeout {
			t.Fatalf("got %+v", r)
		}
		contains(t, "the error", r.Error.Message, (time.Duration(ms) * time.Millisecond).String(), "timeout")
		if s.call("sandbox_fs:stat", args{"path": "begun"}).Success {
			break
		}
	}
	if got := s.decode(r); got.Stdout != "so far\n" {
		t.Fatalf("got %+v", got)
	}
	if got := s.python("1"); got.Notice != "" {
		t.Errorf("the sandbox is new: %s", got.Notice)
	}
}

func TestAKilledRunIsAFailure(t *testing.T) {
	s := start(t, sandbox.Config{Warm: -1}).session("s")
	r := s.call("python:execute", args{"code": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"})
	if r.Success || r.Error.Code != tool.CodeFailed {
		t.Fatalf("got %+v", r)
	}
	contains(t, "the error", r.Error.Message, "killed", "memory")
}

func TestCommandsRunByAShellOrWithoutOne(t *testing.T) {
	s := start(t, sandbox.Config{Warm: -1}).session("s")
	for _, c := range []struct {
		args args
		want string
	}{
		{args{"command": "echo $((6*7)) | cat"}, "42\n"},
		{args{"argv": []string{"echo", "$HOME", "a b"}}, "$HOME a b\n"},
		{args{"argv": []string{"cat"}, "stdin": "from stdin"}, "from stdin"},
		{args{"command": "mkdir -p d && pwd"}, "/workspace\n"},
		{args{"argv": []string{"pwd"}, "dir": "d"}, "/workspace/d\n"},
		{args{"argv": []string{"pwd"}, "dir": "/workspace/d"}, "/workspace/d\n"},
	} {
		if got := s.decode(s.call("shell:execute", c.args)); got.Stdout != c.want || got.ExitCode != 0 {
			t.Errorf("%v: got %+v", c.args, got)
		}
	}
}

func TestArgumentsThatDoNotFitCostNoSandbox(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	for _, x := range []struct {
		tool string
		args args
		want string
	}{
		{"python:execute", args{}, "/code: is required"},
		{"python:execute", args{"code": "1", "timeout": 601}, "/timeout"},
		{"python:execute", args{"code": "1", "lifecycle": "for ever"}, "/lifecycle"},
		{"python:execute", args{"code": "1", "dependencies": []string{"--index-url=x"}}, "dependencies[0]"},
		{"shell:execute", args{}, "neither"},
		{"shell:execute", args{"command": "ls", "argv": []string{"ls"}}, "both"},
		{"sandbox_fs:read", args{"path": "a", "mode": 1}, "/mode"},
	} {
		r := s.call(x.tool, x.args)
		if r.Success || r.Error.Code != tool.CodeInvalidArgs {
			t.Errorf("%s %v: got %+v", x.tool, x.args, r)
			continue
		}
		contains(t, "the error", strings.Join(r.Error.Details, "\n"), x.want)
	}
	if n := c.driver.Started(); n != 0 {
		t.Errorf("%d sandboxes were started", n)
	}
}

func TestFilesInOutBecomeArtifacts(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	got := s.python("import os\nos.makedirs('out/deep', exist_ok=True)\nopen('out/a.csv','w').write('x,y\\n')\n" +
		"open('out/deep/b.bin','wb').write(bytes(300))\nopen('not-out.txt','w').write('-')")
	if len(got.Artifacts) != 2 || len(got.LeftOut) != 0 {
		t.Fatalf("got %+v", got)
	}
	a := got.Artifacts[0]
	if a.Path != "out/a.csv" || a.MediaType != "text/csv" || a.Bytes != 4 || !strings.HasPrefix(a.Ref, "main/s/t") ||
		!strings.HasSuffix(a.Ref, "/n/out/a.csv") {
		t.Errorf("got %+v", a)
	}
	if body, err := c.bus.GetArtifact(natstest.Context(t), a.Ref); err != nil || string(body) != "x,y\n" {
		t.Errorf("got %q, %v", body, err)
	}
	if b := got.Artifacts[1]; b.MediaType != "application/octet-stream" || b.Bytes != 300 {
		t.Errorf("got %+v", b)
	}
	if again := s.python("1"); len(again.Artifacts) != 0 {
		t.Errorf("files of an earlier call are handed over again: %+v", again.Artifacts)
	}
}

func TestTooManyAndTooLargeFilesAreLeftOutByName(t *testing.T) {
	s := start(t, sandbox.Config{Warm: -1}).session("s")
	got := s.python("import os\nos.makedirs('out', exist_ok=True)\n" +
		"with open('out/0-big.bin','wb') as f: f.truncate(17<<20)\n" +
		"for i in range(100): open(f'out/{i:02}.txt','w').write(str(i))")
	if len(got.Artifacts) != 20 {
		t.Errorf("%d are kept", len(got.Artifacts))
	}
	contains(t, "what is left out", strings.Join(got.LeftOut, "\n"), "0-big.bin", "17825792", "80 more files")
}

func TestLargeOutputIsCutAndKeptWhole(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	r := s.call("python:execute", args{"code": "for i in range(5000): print('line', i)"})
	got := s.decode(r)
	if !r.Success || len(r.Data) > result.MaxData || !got.Truncated || r.Metadata["truncated"] != true {
		t.Fatalf("%d bytes, truncated %t, %v", len(r.Data), got.Truncated, r.Metadata)
	}
	contains(t, "stdout", got.Stdout, "line 0\n", "line 4999\n", "bytes left out")
	ref := r.Metadata["artifact"].(map[string]any)["ref"]
	whole, err := c.bus.GetArtifact(natstest.Context(t), fmt.Sprint(ref))
	if err != nil || !strings.Contains(string(whole), `line 2500\n`) {
		t.Errorf("%v, %d bytes are kept", err, len(whole))
	}
}

func TestWhatIsPrintedIsStreamed(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	type said struct {
		event.Event
		tool.Output
	}
	heard := make(chan said, 1000)
	if _, err := c.bus.Conn().Subscribe(s.ref.Stream(), func(m *nats.Msg) {
		e, err := event.Decode(m.Data)
		var o tool.Output
		if err == nil {
			err = json.Unmarshal(e.Data, &o)
		}
		if err != nil {
			t.Error(err)
		}
		heard <- said{e, o}
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.bus.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	s.turn++
	req := s.request("python:execute", `{"code":"import time\nprint('äö')\ntime.sleep(600)","timeout":600}`)
	answers := s.send(req)
	var first said
	select {
	case first = <-heard:
	case <-time.After(natstest.Patience):
		t.Fatal("nothing was streamed")
	}
	if first.Type != event.TypeOutput || first.Turn != "t2" || first.Call != req.Call || first.Attempt != "n" ||
		first.N != 0 || first.Stream != "stdout" || first.Text != "äö\n" {
		t.Errorf("got %+v", first)
	}
	req.Op, req.Tool = executor.OpStop, nil // it still runs
	s.send(req)
	if a := s.final(answers); a.State != executor.Stopped {
		t.Errorf("got %+v", a)
	}
}

func TestARunIsStopped(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	s.python("open('kept','w')")
	req, answers := s.begin("import time\ntime.sleep(600)")
	req.Op, req.Tool = executor.OpStop, nil
	s.send(req)
	if a := s.final(answers); a.State != executor.Stopped {
		t.Errorf("got %+v", a)
	}
	if got := s.python("import os\nsorted(os.listdir())"); !strings.Contains(string(got.Result), "kept") ||
		got.Notice != "" {
		t.Errorf("got %+v", got)
	}
}

func TestWithoutADriverEveryCallSaysWhatToInstallUntilThereIsOne(t *testing.T) {
	var there atomic.Bool
	c := start(t, sandbox.Config{Warm: 1}, func(d *drivertest.Driver) {
		d.BeforeStart = func(context.Context, driver.Spec) error {
			if there.Load() {
				return nil
			}
			return fmt.Errorf("%w: install bubblewrap", driver.ErrUnavailable)
		}
	})
	s := c.session("s")
	for _, name := range []string{"python:execute", "sandbox_fs:list"} {
		r := s.call(name, args{"code": "1"}.only(name))
		if r.Success || r.Error.Code != tool.CodeFailed {
			t.Fatalf("got %+v", r)
		}
		contains(t, "the error", r.Error.Message, "install bubblewrap", "the tool was not run")
	}
	there.Store(true)
	if got := s.python("6*7"); string(got.Result) != "42" || got.Notice != "" {
		t.Errorf("got %+v", got)
	}
}

// only drops the arguments that the tool does not accept.
func (a args) only(name string) args {
	if name == "python:execute" {
		return a
	}
	return args{}
}
