package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/sandbox"
	"skandha.dev/services/sandbox/deps"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/drivertest"
	"skandha.dev/services/test/natstest"
)

func TestFilesLastForTheSessionAndNoLonger(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	one, two := c.session("one"), c.session("two")
	one.python("open('mine.txt','w').write('1')")
	if got := one.python("open('mine.txt').read()"); string(got.Result) != `"1"` || got.Notice != "" {
		t.Errorf("got %+v", got)
	}
	if got := two.python("import os\nsorted(os.listdir())"); string(got.Result) != `["out"]` {
		t.Errorf("another session sees %s", got.Result)
	}
	if got := one.python("x = 1"); got.ExitCode != 0 {
		t.Errorf("got %+v", got)
	}
	if got := one.python("'x' in globals()"); string(got.Result) != "false" {
		t.Errorf("variables last: %s", got.Result)
	}
	if n := c.driver.Started(); n != 2 {
		t.Errorf("two sessions had %d sandboxes", n)
	}
}

func TestAResetSessionBeginsAnewWithoutANote(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	s.python("open('a','w')")
	s.reset()
	if got := s.python("import os\nsorted(os.listdir())"); string(got.Result) != `["out"]` || got.Notice != "" {
		t.Errorf("got %+v", got)
	}
	c.sandboxes(1)
}

func TestTheLiveEventOfAResetEndsTheSandboxAtOnce(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	s.python("1") // in turn t2
	sb := c.driver.Sandboxes()[0]
	s.live(event.SessionReset{By: "ada"}, "2")
	other := c.session("other")
	other.python("1")
	s.live(event.SessionLocked{Reason: "8 of the last 10 tool calls failed", Until: time.Now().Add(time.Minute)}, "")
	other.live(event.SessionReset{By: "ada"}, "5")
	c.sandboxes(1) // only the second is gone: the first was reset before its turn, and locked for a time
	if left := c.driver.Sandboxes(); len(left) != 1 || left[0] != sb {
		t.Errorf("the sandbox of the session that was not reset is gone: %v", left)
	}
	s.live(event.SessionReset{By: "ada"}, "3")
	c.sandboxes(0)
	s.reset()
	if got := s.python("1"); got.Notice != "" {
		t.Errorf("got %+v", got)
	}
	s.live(event.SessionLocked{Reason: "its log contradicts itself"}, "")
	c.sandboxes(0)
}

// Calls that are assigned together name the same predecessor.
func TestCallsOfOneRoundShareTheSandbox(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	s.turn++
	var answers []<-chan executor.Answer
	for i := range 5 {
		answers = append(answers, s.send(s.request("python:execute", fmt.Sprintf(`{"code":"open('f%d','w')"}`, i))))
	}
	for _, a := range answers {
		if a := s.final(a); a.State != executor.Finished || !a.Result.Success {
			t.Fatalf("got %+v", a)
		}
	}
	s.before = c.offer.Instance
	if got := s.python("import os\nlen(os.listdir())"); string(got.Result) != "6" {
		t.Errorf("%s files are there", got.Result)
	}
	if n := c.driver.Started(); n != 1 {
		t.Errorf("%d sandboxes were started", n)
	}
}

func TestAnIdleSandboxEndsAndTheNextCallSaysSo(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1, Idle: time.Second})
	s := c.session("s")
	s.python("open('a','w')")
	c.sandboxes(0)
	r := s.call("sandbox_fs:list", args{})
	got := s.decode(r)
	contains(t, "the notice", got.Notice, "new sandbox", "it was idle for 1s", "are restored", "files in /tmp, is gone")
}

func TestWithoutSavedFilesTheNextCallSaysThatTheyAreLost(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1, Idle: time.Second, Keep: -1})
	s := c.session("s")
	s.python("open('a','w')")
	c.sandboxes(0)
	got := s.decode(s.call("sandbox_fs:list", args{}))
	contains(t, "the notice", got.Notice, "new sandbox", "files of earlier calls are lost", "it was idle for 1s")
}

func TestASandboxThatBreaksIsAFailureThatSaysWhy(t *testing.T) {
	for name, x := range map[string]struct {
		why  error
		want string
	}{
		"memory": {driver.ErrMemory, "ran out of memory"},
		"other":  {errors.New("the engine was stopped"), "the engine was stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, sandbox.Config{Warm: -1})
			s := c.session("s")
			_, answers := s.begin("import time\ntime.sleep(60)")
			c.driver.Sandboxes()[0].End(x.why)
			a := s.final(answers)
			if a.State != executor.Finished || a.Result.Success || a.Result.Error.Code != tool.CodeFailed {
				t.Fatalf("got %+v", a)
			}
			contains(t, "the error", a.Result.Error.Message, x.want, "during this call", "the next call gets a new sandbox")
			s.before = c.offer.Instance
			contains(t, "the next notice", s.python("1").Notice, "files of earlier calls are lost", x.why.Error())
		})
	}
}

func TestASandboxThatBreaksBetweenCallsIsReplaced(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	s.python("1")
	sb := c.driver.Sandboxes()[0]
	sb.End(driver.ErrMemory)
	<-sb.Done()
	contains(t, "the notice", s.python("1").Notice, "memory", "are restored")
	if got := s.python("1"); got.Notice != "" {
		t.Errorf("it is said twice: %s", got.Notice)
	}
}

func TestAnotherInstanceThatIsGoneLeavesANote(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	s.python("open('a','w')")
	second := c.serve(sandbox.Config{Warm: -1}, drivertest.New(t), nil)
	c.instance.stop()
	s.at = second
	got := s.python("import os\nsorted(os.listdir())")
	if string(got.Result) != `["a","out"]` {
		t.Errorf("got %s", got.Result)
	}
	contains(t, "the notice", got.Notice, "are restored", "another instance")
	if got := s.python("1"); got.Notice != "" {
		t.Errorf("it is said twice: %s", got.Notice)
	}
}

func TestASessionThatComesBackFindsItsLatestFiles(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	second := c.serve(sandbox.Config{Warm: -1}, drivertest.New(t), nil)
	s := c.session("s")
	s.python("open('old','w')")
	s.at = second
	s.python("import os\nos.remove('old')\nopen('newer','w')")
	s.at = c.instance
	got := s.python("import os\nsorted(os.listdir())")
	if string(got.Result) != `["newer","out"]` || !strings.Contains(got.Notice, "another instance") {
		t.Errorf("got %+v", got)
	}
}

func TestACallOfItsOwnHasAnEmptySandbox(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	s.python("open('a','w')")
	r := s.call("python:execute", args{"code": "import os\nsorted(os.listdir())", "lifecycle": "call"})
	if got := s.decode(r); string(got.Result) != `["out"]` || got.Notice != "" {
		t.Errorf("got %+v", got)
	}
	c.sandboxes(1)
	if got := s.python("import os\nsorted(os.listdir())"); string(got.Result) != `["a","out"]` {
		t.Errorf("the session's own files: %s", got.Result)
	}
}

func TestAnIdleSessionMakesRoomForAnother(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1, Max: 2})
	first, second, third := c.session("1"), c.session("2"), c.session("3")
	for _, s := range []*session{first, second, third} {
		s.python("open('a','w')")
	}
	contains(t, "the notice", first.python("1").Notice, "another session")
	if got := third.python("1"); got.Notice != "" {
		t.Errorf("the one that was used last made room: %s", got.Notice)
	}
}

// A place becomes free when a call ends, not only when a sandbox does.
func TestWhoWaitsForAPlaceGetsThatOfACallThatEnds(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1, Max: 1})
	busy, other := c.session("busy"), c.session("other")
	_, running := busy.begin("import time\ntime.sleep(1)")
	if got := other.python("6*7"); string(got.Result) != "42" {
		t.Errorf("got %+v", got)
	}
	if a := busy.final(running); !a.Result.Success {
		t.Errorf("the one that worked was disturbed: %+v", a.Result.Error)
	}
}

func TestOnePrincipalDeniesNobodyElseAndEvictsNobodysFiles(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1, Max: 4})
	of := func(by subject.Writer, name string) *session {
		s := c.session(name)
		s.by = by
		return s
	}
	bob := of("bob", "bob")
	bob.python("open('a','w')")
	for i := range 2 {
		of("ada", fmt.Sprintf("ada%d", i)).begin("import time\ntime.sleep(60)")
	}
	late := of("ada", "late")
	late.turn++
	answers := late.send(late.request("python:execute", `{"code":"1"}`))
	natstest.Eventually(t, "it waits", func() bool { return c.service.Status(t.Context()).Pool.Waiting == 1 })
	if got := of("eve", "eve").python("6*7"); string(got.Result) != "42" {
		t.Errorf("got %+v", got)
	}
	if got := bob.python("import os\nsorted(os.listdir())"); string(got.Result) != `["a","out"]` || got.Notice != "" {
		t.Errorf("got %+v", got)
	}
	select {
	case a := <-answers:
		if a.State.Final() {
			t.Errorf("got %+v", a)
		}
	default:
	}
	// All are in use. The owner without any gets the one that was idle for the longest time, eve's;
	// who then has as many as others loses one itself.
	one, two := of("max", "one"), of("max", "two")
	one.python("1")
	two.python("1")
	if got := bob.python("1"); got.Notice != "" {
		t.Errorf("bob's: %s", got.Notice)
	}
	contains(t, "the notice in its session", one.python("1").Notice, "another session")
}

// A late call that was made before the session was reset changes nothing.
func TestALateCallOfAnEarlierLeaseDoesNotRun(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	s.turn++
	late := s.request("python:execute", `{"code":"1"}`)
	s.reset()
	s.python("open('a','w')")
	late.StartBy = time.Now().Add(executor.StartWithin) // it is not too late for the executor
	if a := s.final(s.send(late)); a.State != executor.Refused || !strings.Contains(a.Message, "reset") {
		t.Errorf("got %+v", a)
	}
	if got := s.python("import os\nsorted(os.listdir())"); string(got.Result) != `["a","out"]` {
		t.Errorf("got %+v", got)
	}
}

// shelf installs package sets for all requirements.
type shelf struct {
	d    *drivertest.Driver
	mu   sync.Mutex
	want []string
	err  error
}

func (s *shelf) Ensure(ctx context.Context, want deps.Requirements, progress func(string)) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return "", s.err
	}
	id := strings.Join(want.Strings(), " ")
	s.want = append(s.want, id)
	progress("collecting " + id)
	return id, s.d.Install(ctx, driver.Install{ID: id})
}

func TestPackagesAreAddedAndFilesMoveAlong(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	d := drivertest.New(t)
	packages := &shelf{d: d}
	c.instance = c.serve(sandbox.Config{Warm: 1}, d, packages)
	s := c.session("s")
	s.python("import os\nos.makedirs('d')\nopen('d/a','w').write('kept')")
	r := s.call("python:execute",
		args{"code": "open('d/a').read()", "dependencies": []string{"Six", "attrs>=20"}, "requirements": []string{"six"}})
	got := s.decode(r)
	if string(got.Result) != `"kept"` || got.Notice != "" || strings.Join(got.Packages, " ") != "attrs>=20 six" {
		t.Errorf("got %+v", got)
	}
	if got := s.python("1"); strings.Join(got.Packages, " ") != "attrs>=20 six" {
		t.Errorf("they do not last: %+v", got)
	}
	got = s.decode(s.call("python:execute", args{"code": "1", "dependencies": []string{"numpy"}}))
	if strings.Join(got.Packages, " ") != "attrs>=20 numpy six" {
		t.Errorf("got %+v", got)
	}
	if n := len(packages.want); n != 2 {
		t.Errorf("installed: %q", packages.want)
	}
	natstest.Eventually(t, "the old sandboxes are gone", func() bool {
		p := c.service.Status(t.Context()).Pool
		return p.Used == 1 && p.Ending == 0
	})
}

func TestPackagesThatCannotBeInstalledAreAFailureBeforeAnythingRan(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	r := s.call("python:execute", args{"code": "open('a','w')", "dependencies": []string{"six"}})
	if r.Success {
		t.Fatalf("got %+v", r)
	}
	contains(t, "the error", r.Error.Message, "packages cannot be installed here", "the tool was not run")
	d := drivertest.New(t)
	c.instance = c.serve(sandbox.Config{Warm: -1}, d,
		&shelf{d: d, err: &deps.Error{Code: deps.NotFound, Detail: "no matching distribution"}})
	s = c.session("s")
	s.python("open('before','w')")
	r = s.call("python:execute", args{"code": "open('a','w')", "dependencies": []string{"six"}})
	if r.Success {
		t.Fatalf("got %+v", r)
	}
	contains(t, "the error", r.Error.Message, "no such package", "was not run")
	if got := s.python("import os\nsorted(os.listdir())"); string(got.Result) != `["before","out"]` {
		t.Errorf("got %s", got.Result)
	}
}

func TestADrainFinishesCallsAndLeavesNothing(t *testing.T) {
	c := start(t, sandbox.Config{Warm: 1, DrainTimeout: natstest.Patience})
	s := c.session("s")
	req, answers := s.begin("import time\ntime.sleep(0.5)\n'done'")
	stopped := make(chan struct{})
	go func() { c.instance.stop(); close(stopped) }()
	a := s.final(answers)
	if a.State != executor.Finished || !a.Result.Success {
		t.Errorf("got %+v", a)
	}
	req.Op, req.Tool = executor.OpRelease, nil
	s.send(req)
	<-stopped // it wants no sandbox to be left
}

func TestTheStatusSaysWhatIsThere(t *testing.T) {
	c := start(t, sandbox.Config{Warm: 1})
	c.session("s").python("1")
	natstest.Eventually(t, "the driver is asked to reap", func() bool { return c.driver.Reaps() > 0 })
	st := c.service.Status(t.Context())
	if st.Driver == nil || st.Driver.Driver != "drivertest" || st.Sessions != 1 || st.Pool.Used != 1 ||
		st.Instance != c.offer.Instance {
		t.Errorf("got %+v", st)
	}
	if n := c.service.Counters(); n["sandbox_calls"] != 1 || n["sandbox_used"] != 1 || n["sandbox_sessions"] != 1 {
		t.Errorf("got %v", n)
	}
	if err := c.service.Ready(); err != nil {
		t.Error(err)
	}
}
