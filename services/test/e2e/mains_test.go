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
	"skandha.dev/services/test/otlptest"
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
	sink := otlptest.New(t)
	core.Env = sink.Env("http/protobuf")
	provider.Env = append(sink.Env("grpc"), "OPENAI_API_KEY="+openaitest.Key)
	runner := mainOf(t, dir, "test/effects/cmd/skandha-toolrunner", append(s.JoinFlags("toolrunner"), "--workspace", workspace,
		"--drain", "1s")...)
	runner.Env = sink.Env("http/protobuf")
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
	say := func(key, text string) uint64 {
		t.Helper()
		seq := s.Say(ref, text)
		end := s.Ended(seq)
		if end.Failed != "" || !strings.Contains(end.Answer, key) {
			t.Errorf("%q ended as %+v", text, end)
		}
		return seq
	}
	say("hello", "hello")
	traced(t, sink, say("one", `call test:count {"key":"one"}`))
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
			traced(t, sink, seq)
			say(key, fmt.Sprintf(`call test:count {"key":"after-%s"}`, key))
		})
	}
	figures := core.Get("/metrics")
	for _, want := range []string{"skandha_commits_total ", "skandha_goroutines ", "skandha_panics_total 0"} {
		if !strings.Contains(figures, want) {
			t.Errorf("/metrics of the core does not show %q:\n%s", want, figures)
		}
	}
	for _, want := range []string{
		"skandha-core skandha.turn.duration", "skandha-core skandha.phase.duration", "skandha-core skandha.commits",
		"skandha-provider gen_ai.client.operation.duration", "skandha-toolrunner gen_ai.client.operation.duration",
	} {
		service, metric, _ := strings.Cut(want, " ")
		Eventually(t, want, func() bool { return sink.Has(service, metric) })
	}
	Eventually(t, "logs", func() bool { return strings.Contains(sink.Logs(), "skandha-core: core is ready") })
	counted(t, filepath.Join(workspace, "effects.log"))
	s.Verify()
	for _, b := range all {
		b.Stop()
	}
}

// traced waits for the trace of a turn with a call: the spans of all processes, each below another one but the turn's.
func traced(t *testing.T, sink *otlptest.Sink, seq uint64) {
	t.Helper()
	var all []otlptest.Span
	Eventually(t, "the turn has a trace", func() bool {
		turn := sink.Spans(map[string]string{"skandha.turn": fmt.Sprintf("t%d", seq)})
		if len(turn) != 1 {
			return false
		}
		all = sink.Trace(turn[0].Trace)
		names := map[string]bool{}
		for _, s := range all {
			names[s.Service+" "+s.Name] = true
		}
		for _, want := range []string{
			"skandha-core invoke_agent main", "skandha-core plan", "skandha-core reflect", "skandha-provider chat " + openaitest.Model + "-2026-01-01",
		} {
			if !names[want] {
				return false
			}
		}
		return names["skandha-core call test:count"] && names["skandha-toolrunner execute_tool test:count"] ||
			names["skandha-core call test:count_idempotent"] && names["skandha-toolrunner execute_tool test:count_idempotent"]
	})
	known := map[string]otlptest.Span{}
	for _, s := range all {
		if _, twice := known[s.ID]; twice {
			t.Errorf("span %s of turn t%d was sent twice", s.Name, seq)
		}
		known[s.ID] = s
	}
	for _, s := range all {
		above, there := known[s.Parent]
		if s.Parent != "" && !there {
			t.Errorf("turn t%d: the span above %s of %s is nowhere", seq, s.Name, s.Service)
		}
		if (s.Parent == "") != strings.HasPrefix(s.Name, "invoke_agent") {
			t.Errorf("turn t%d: %s is below %q", seq, s.Name, above.Name)
		}
		if strings.HasPrefix(s.Name, "chat") && above.Name != "plan" || strings.HasPrefix(s.Name, "execute_tool") && !strings.HasPrefix(above.Name, "call") {
			t.Errorf("turn t%d: %s of %s is below %s", seq, s.Name, s.Service, above.Name)
		}
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
