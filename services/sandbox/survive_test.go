package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/workspace"
	"skandha.dev/services/sandbox"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/drivertest"
	"skandha.dev/services/test/natstest"
)

// leave leaves files, and found describes them.
const (
	leave = `
import os
os.makedirs("d/e")
open("d/e/f", "w").write("text"); os.chmod("d/e/f", 0o640); os.utime("d/e/f", (1, 1577836800))
os.symlink("/usr/bin/python3", "python"); open("/tmp/t", "w")`
	found = `
import os
st = os.stat("d/e/f")
[open("d/e/f").read(), oct(st.st_mode), st.st_mtime, os.readlink("python"), os.path.exists("/tmp/t")]`
	left = `["text","0o100640",1577836800.0,"/usr/bin/python3",false]`
)

func TestFilesSurviveTheirSandbox(t *testing.T) {
	for name, x := range map[string]struct {
		cfg  sandbox.Config
		lose func(c *core, s *session)
		why  string
	}{
		"it is idle": {
			sandbox.Config{Idle: time.Second}, func(c *core, _ *session) { c.sandboxes(0) }, "it was idle for 1s",
		},
		"it dies": {
			sandbox.Config{}, func(c *core, _ *session) {
				sb := c.driver.Sandboxes()[0]
				sb.End(errors.New("the engine was stopped"))
				<-sb.Done()
			}, "the engine was stopped",
		},
		"another session needs its place": {
			sandbox.Config{Max: 1}, func(c *core, _ *session) { c.session("other").python("1") }, "another session",
		},
		"the service stops": {
			sandbox.Config{}, func(c *core, s *session) {
				s.at = c.serve(sandbox.Config{Warm: -1}, drivertest.New(t), nil)
				c.instance.stop()
			}, "another instance",
		},
		"the machine dies": { // the service is cut off with its sandbox, and does not know it
			sandbox.Config{}, func(c *core, s *session) {
				s.at = c.serve(sandbox.Config{Warm: -1}, drivertest.New(t), nil)
				c.driver.Sandboxes()[0].End(errors.New("power failure"))
			}, "another instance",
		},
	} {
		t.Run(name, func(t *testing.T) {
			x.cfg.Warm = -1
			c := start(t, x.cfg)
			s := c.session("s")
			s.python(leave)
			x.lose(c, s)
			got := s.python(found)
			if strings.ReplaceAll(string(got.Result), " ", "") != left {
				t.Errorf("found %s, want %s", got.Result, left)
			}
			contains(t, "the notice", got.Notice, x.why, "files in /workspace are restored", "files in /tmp, is gone")
			if strings.Contains(got.Notice, "lost") {
				t.Errorf("it claims a loss: %s", got.Notice)
			}
			if got := s.python("open('d/e/f').read()"); string(got.Result) != `"text"` || got.Notice != "" {
				t.Errorf("the next call: %+v", got)
			}
		})
	}
}

func TestFilesOfAnotherSessionOrBeforeAResetAreNotRestored(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	second := c.serve(sandbox.Config{Warm: -1}, drivertest.New(t), nil)
	s, other := c.session("s"), c.session("other")
	s.python("open('mine','w')")
	other.ref = subject.Ref{Agent: "other", Session: "s"} // the same name, of another agent
	other.python("1")
	other.at = second
	if got := other.python("import os\nsorted(os.listdir())"); string(got.Result) != `["out"]` {
		t.Errorf("another agent finds %s", got.Result)
	}
	s.reset()
	s.at = second
	if got := s.python("import os\nsorted(os.listdir())"); string(got.Result) != `["out"]` || got.Notice != "" {
		t.Errorf("after a reset: %s, %s", got.Result, got.Notice)
	}
}

func TestAResetRemovesTheSavedFiles(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	store, err := workspace.New(c.bus)
	if err != nil {
		t.Fatal(err)
	}
	s := c.session("s")
	s.python("open('mine','w')")
	if _, err := store.Head(natstest.Context(t), s.ref); err != nil {
		t.Fatal(err)
	}
	s.live(event.SessionReset{By: "ada"}, fmt.Sprint(s.turn+1))
	natstest.Eventually(t, "they are removed", func() bool {
		_, err := store.Head(natstest.Context(t), s.ref)
		names, listing := store.Stored(natstest.Context(t), s.ref)
		return err != nil && listing == nil && len(names) == 0
	})
}

func TestTooManyFilesAreNotSavedAndTheModelKnows(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1, Keep: 1 << 20})
	s := c.session("s")
	s.python("open('small','w').write('kept')")
	got := s.python("import os\nopen('big','wb').write(os.urandom(2 << 20))\nprint('done')")
	contains(t, "the notice", got.Notice, "are not saved", "2MiB", "SKANDHA_SANDBOX_KEEP", "big (2MiB)")
	if got := s.python("open('big','ab').write(b'x')"); got.Notice != "" {
		t.Errorf("it is said again: %s", got.Notice)
	}
	sb := c.driver.Sandboxes()[0]
	sb.End(errors.New("the engine was stopped"))
	<-sb.Done()
	got = s.python("import os\nsorted(os.listdir())")
	contains(t, "the notice", got.Notice, "are restored", "Changes since call", "are lost", "at most 1MiB")
	if string(got.Result) != `["out","small"]` {
		t.Errorf("got %s", got.Result)
	}
	s.python("import os\nopen('big','wb').write(os.urandom(2 << 20))")
	if got := s.python("import os\nos.remove('big')\nopen('small').read()"); got.Notice != "" {
		t.Errorf("got %+v", got)
	}
	s.at = c.serve(sandbox.Config{Warm: -1}, drivertest.New(t), nil)
	if got := s.python("open('small').read()"); string(got.Result) != `"kept"` || strings.Contains(got.Notice, "lost") {
		t.Errorf("after it fits again: %+v", got)
	}
}

func TestAFullStoreCostsNoCall(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	if err := c.bus.EnsureStreams(natstest.Context(t), journal.StreamsConfig{MaxFilesBytes: 300 << 10}); err != nil {
		t.Fatal(err)
	}
	s := c.session("s")
	got := s.python("import os\nopen('f','wb').write(os.urandom(400 << 10))\nprint('done')")
	if got.Stdout != "done\n" {
		t.Errorf("got %+v", got)
	}
	contains(t, "the notice", got.Notice, "are not saved", "full", "streams.max_files_bytes")
	if got := s.python("open('g','w')"); got.Notice != "" {
		t.Errorf("it is said again: %s", got.Notice)
	}
}

// What could not be saved is saved when the service stops.
func TestAStoreThatWasAwayIsUsedAgain(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	s.python("open('f','w').write('first')")
	if err := c.bus.JetStream().DeleteStream(natstest.Context(t), "KV_"+journal.BucketFiles); err != nil {
		t.Fatal(err)
	}
	got := s.python("open('f','w').write('second')")
	contains(t, "the notice", got.Notice, "are not saved")
	natstest.EnsureStreams(t, c.bus)
	second := c.serve(sandbox.Config{Warm: -1}, drivertest.New(t), nil)
	c.instance.stop()
	s.at = second
	if got := s.python("open('f').read()"); string(got.Result) != `"second"` {
		t.Errorf("got %+v", got)
	}
}

// While the files cannot be read, nothing runs in an empty workspace: its files would replace them.
func TestFilesThatCannotBeRestoredNowAreWaitedFor(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	s.python("open('f','wb').write(b'x' * 3000000)")
	small := c.serve(sandbox.Config{Warm: -1, Keep: 1 << 20}, drivertest.New(t), nil)
	s.at = small
	if r := s.call("python:execute", args{"code": "open('f').read()[0]"}); !r.Success {
		t.Errorf("files that are larger than this instance saves: %+v", r.Error)
	}
	s = c.session("t")
	s.at = c.instance
	s.python("open('f','w').write('x')")
	if err := c.bus.JetStream().DeleteStream(natstest.Context(t), "KV_"+journal.BucketFiles); err != nil {
		t.Fatal(err)
	}
	s.at = small
	r := s.call("python:execute", args{"code": "1"})
	if r.Success {
		t.Fatalf("got %+v", r)
	}
	contains(t, "the error", r.Error.Message, "cannot be restored now", "try again", "was not run")
}

// A change that is too large for the result to wait is noted before, and saved after it.
func TestALargeChangeIsSavedAfterTheResult(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	s.python("import os\nopen('f','wb').write(os.urandom(9 << 20))")
	second := c.serve(sandbox.Config{Warm: -1}, drivertest.New(t), nil)
	c.instance.stop() // which waits for the save
	s.at = second
	got := s.python("import os\nos.stat('f').st_size")
	if string(got.Result) != fmt.Sprint(9<<20) || strings.Contains(got.Notice, "lost") {
		t.Errorf("got %+v", got)
	}
}

func TestPackagesComeAlongWithTheFiles(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	d := drivertest.New(t)
	c.instance = c.serve(sandbox.Config{Warm: -1}, d, &shelf{d: d})
	s := c.session("s")
	s.call("python:execute", args{"code": "open('f','w')", "dependencies": []string{"six"}})
	d = drivertest.New(t)
	s.at = c.serve(sandbox.Config{Warm: -1}, d, &shelf{d: d})
	if got := s.python("import os\nos.path.exists('f')"); string(got.Result) != "true" || strings.Join(got.Packages, " ") != "six" {
		t.Errorf("got %+v", got)
	}
}

// Files of which a part is missing are lost as a whole, and the session goes on without them.
func TestDamagedFilesAreLostAndTheSessionGoesOn(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	s.python("import os\nopen('a','w').write('small')\nopen('f','wb').write(os.urandom(2 << 20))")
	store, err := workspace.New(c.bus)
	if err != nil {
		t.Fatal(err)
	}
	head, err := store.Head(natstest.Context(t), s.ref)
	if err != nil {
		t.Fatal(err)
	}
	content, err := store.Index(natstest.Context(t), head)
	if err != nil {
		t.Fatal(err)
	}
	last := content.Packs[len(content.Packs)-1].Name // some files are restored before it is missed
	if err := store.Forget(natstest.Context(t), s.ref, 0, []string{last}); err != nil {
		t.Fatal(err)
	}
	s.at = c.serve(sandbox.Config{Warm: -1}, drivertest.New(t), nil)
	got := s.python("import os\nsorted(os.listdir())")
	if string(got.Result) != `["out"]` {
		t.Errorf("it finds %s", got.Result)
	}
	contains(t, "the notice", got.Notice, "files of earlier calls are lost")
	s.python("open('b','w').write('new')")
	s.at = c.instance
	if got := s.python("open('b').read()"); string(got.Result) != `"new"` || strings.Contains(got.Notice, "lost") {
		t.Errorf("it is not saved again: %+v", got)
	}
}

// The second sandbox that damaged files require may not be there.
func TestDamagedFilesAndNoOtherSandbox(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	s.python("open('a','w').write('small')")
	store, err := workspace.New(c.bus)
	if err != nil {
		t.Fatal(err)
	}
	names, err := store.Stored(natstest.Context(t), s.ref)
	if err == nil {
		err = store.Forget(natstest.Context(t), s.ref, 0, names)
	}
	if err != nil {
		t.Fatal(err)
	}
	d, starts := drivertest.New(t), 0
	d.BeforeStart = func(context.Context, driver.Spec) error {
		if starts++; starts > 1 {
			return fmt.Errorf("%w: start an engine", driver.ErrUnavailable)
		}
		return nil
	}
	s.at = c.serve(sandbox.Config{Warm: -1}, d, nil)
	r := s.call("python:execute", args{"code": "1"})
	if r.Success {
		t.Fatalf("got %+v", r)
	}
	contains(t, "the error", r.Error.Message, "was not run", "start an engine")
}
