package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "skandha.dev/services/test/e2e/e2etest"
	"skandha.dev/services/test/openaitest"
)

// mainOf builds a main and prepares a process of it.
func mainOf(t *testing.T, dir, pkg string, args ...string) *Binary {
	t.Helper()
	return NewBinary(t, filepath.Base(pkg), Build(t, dir, pkg), args...)
}

// The real mains, the runner with tools that leave traces: a turn goes through them, each is killed in
// the middle of one and goes on, and each stops cleanly.
func TestTheMains(t *testing.T) {
	t.Parallel()
	s := New(t, Options{Cores: -1, Providers: -1, Runners: -1})
	dir := t.TempDir()
	workspace := filepath.Join(dir, "workspace")
	if err := os.Mkdir(workspace, 0o700); err != nil {
		t.Fatal(err)
	}
	core := mainOf(t, dir, "core/cmd/skandha-core", append(s.JoinFlags("core"), "--store", filepath.Join(dir, "view.db"),
		"--drain", "1s")...)
	model := openaitest.New(t)
	provider := mainOf(t, dir, "provider/cmd/skandha-provider", append(s.JoinFlags("provider"), "--provider", "openai",
		"--base-url", model.URL, "--model", openaitest.Model, "--drain", "1s")...)
	provider.Env = []string{"OPENAI_API_KEY=" + openaitest.Key}
	runner := mainOf(t, dir, "test/effects/cmd/skandha-toolrunner", append(s.JoinFlags("toolrunner"), "--workspace", workspace,
		"--drain", "1s")...)
	all := []*Binary{core, provider, runner}
	for _, b := range all {
		if b.Ready() == nil {
			t.Errorf("%s says that it is ready, and does not run", b.Path)
		}
		b.Start()
	}
	for _, b := range all {
		Eventually(t, b.Path+" is ready", func() bool { return b.Ready() == nil })
	}
	s.AwaitExecutors(2)
	ref := Ref("s")
	say := func(key, text string) {
		t.Helper()
		end := s.Ended(s.Say(ref, text))
		if end.Failed != "" || !strings.Contains(end.Answer, key) {
			t.Errorf("%q ended as %+v", text, end)
		}
	}
	say("hello", "hello")
	say("one", `call test:count {"key":"one"}`)
	for _, b := range all {
		t.Run("killed: "+filepath.Base(b.Path), func(t *testing.T) {
			key := filepath.Base(b.Path)
			seq := s.Say(ref, fmt.Sprintf(`slow 300 ms call test:count_idempotent {"key":%q,"sleep_ms":700}`, key))
			s.Tail.Await(t, "it runs", func(l *Log) bool { return len(l.Plans[fmt.Sprintf("t%d-p1", seq)]) > 0 })
			if b == runner { // in the middle of the call
				awaitCall(t, s, seq, "runs", given)
			}
			_ = b.End(syscall.SIGKILL)
			b.Start()
			if end := s.Ended(seq); end.Failed != "" {
				t.Errorf("it ended as %+v", end)
			}
			say(key, fmt.Sprintf(`call test:count {"key":"after-%s"}`, key))
		})
	}
	figures := core.Get("/metrics")
	for _, want := range []string{"skandha_commits ", "skandha_goroutines ", "skandha_panics 0"} {
		if !strings.Contains(figures, want) {
			t.Errorf("/metrics of the core does not show %q:\n%s", want, figures)
		}
	}
	counted(t, filepath.Join(workspace, "effects.log"))
	s.Verify()
	for _, b := range all {
		b.Stop()
	}
}

// counted checks the file of effects: each call of test:count once.
func counted(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	once := map[string]int{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			t.Fatalf("a line of effects is %q", line)
		}
		once[f[0]]++
	}
	for _, key := range []string{"one", "after-skandha-core", "after-skandha-provider", "after-skandha-toolrunner"} {
		if once[key] != 1 {
			t.Errorf("the call %q had its effect %d times", key, once[key])
		}
	}
	for _, key := range []string{"skandha-core", "skandha-provider", "skandha-toolrunner"} {
		if once[key] == 0 {
			t.Errorf("the call %q had no effect", key)
		}
	}
}

// A wrong command line ends at once, and says what is wrong.
func TestTheMainsRefuseNonsense(t *testing.T) {
	dir := t.TempDir()
	core := mainOf(t, dir, "core/cmd/skandha-core")
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("agents: {main: {limits: {rounds: -1}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"limits.rounds": {"--config", bad}, "bogus": {"--bogus"}, "--config": {"--config", filepath.Join(dir, "none.yaml")},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		out, err := exec.CommandContext(ctx, core.Path, args...).CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("skandha-core %v: %v\n%s", args, err, out)
		}
	}
}
