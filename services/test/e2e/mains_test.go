package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "skandha.dev/services/test/e2e/e2etest"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/openaitest"
)

// binary is a main, built and run as an operator runs it.
type binary struct {
	t    *testing.T
	path string
	args []string
	env  []string
	log  string
	http string
	cmd  *exec.Cmd
}

func build(t *testing.T, dir, pkg string, args ...string) *binary {
	t.Helper()
	b := &binary{
		t: t, path: filepath.Join(dir, filepath.Base(pkg)), args: args,
		http: fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t)),
	}
	b.log = b.path + ".log"
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", b.path, "skandha.dev/services/"+pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
	t.Cleanup(func() {
		_ = b.end(syscall.SIGKILL) // how it ended was looked at before
		if t.Failed() {
			out, _ := os.ReadFile(b.log)
			t.Logf("--- %s\n%s", pkg, out)
		}
	})
	return b
}

func (b *binary) start() {
	b.t.Helper()
	out, err := os.OpenFile(b.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	b.cmd = exec.Command(b.path, append(b.args, "--http", b.http)...)
	b.cmd.Env = append(os.Environ(), b.env...)
	b.cmd.Stdout, b.cmd.Stderr = out, out
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *binary) end(how syscall.Signal) error {
	if b.cmd == nil {
		return nil
	}
	_ = b.cmd.Process.Signal(how)
	err := b.cmd.Wait()
	b.cmd = nil
	return err
}

// ready runs the binary's own health check, as a container's engine does.
func (b *binary) ready() error {
	return exec.CommandContext(b.t.Context(), b.path, "--health-check", "--http", b.http).Run()
}

func (b *binary) get(path string) string {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "http://"+b.http+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(body)
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
	core := build(t, dir, "core/cmd/skandha-core", "--nats", s.URL, "--store", filepath.Join(dir, "view.db"), "--drain",
		"1s")
	model := openaitest.New(t)
	provider := build(t, dir, "provider/cmd/skandha-provider", "--nats", s.URL, "--provider", "openai",
		"--base-url", model.URL, "--model", openaitest.Model, "--drain", "1s")
	provider.env = []string{"OPENAI_API_KEY=" + openaitest.Key}
	runner := build(t, dir, "test/effects/cmd/skandha-toolrunner", "--nats", s.URL, "--workspace", workspace,
		"--drain", "1s")
	all := []*binary{core, provider, runner}
	for _, b := range all {
		if b.ready() == nil {
			t.Errorf("%s says that it is ready, and does not run", b.path)
		}
		b.start()
	}
	for _, b := range all {
		Eventually(t, b.path+" is ready", func() bool { return b.ready() == nil })
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
		t.Run("killed: "+filepath.Base(b.path), func(t *testing.T) {
			key := filepath.Base(b.path)
			seq := s.Say(ref, fmt.Sprintf(`slow 300 ms call test:count_idempotent {"key":%q,"sleep_ms":700}`, key))
			s.Tail.Await(t, "it runs", func(l *Log) bool { return len(l.Plans[fmt.Sprintf("t%d-p1", seq)]) > 0 })
			if b == runner { // in the middle of the call
				awaitCall(t, s, seq, "runs", given)
			}
			_ = b.end(syscall.SIGKILL)
			b.start()
			if end := s.Ended(seq); end.Failed != "" {
				t.Errorf("it ended as %+v", end)
			}
			say(key, fmt.Sprintf(`call test:count {"key":"after-%s"}`, key))
		})
	}
	figures := core.get("/metrics")
	for _, want := range []string{"skandha_commits ", "skandha_goroutines ", "skandha_panics 0"} {
		if !strings.Contains(figures, want) {
			t.Errorf("/metrics of the core does not show %q:\n%s", want, figures)
		}
	}
	counted(t, filepath.Join(workspace, "effects.log"))
	s.Verify()
	for _, b := range all {
		ctx, cancel := context.WithTimeout(t.Context(), Patience)
		ended := make(chan error, 1)
		go func() { ended <- b.end(syscall.SIGTERM) }()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%s: SIGTERM: %v", b.path, err)
			}
		case <-ctx.Done():
			t.Errorf("%s did not end by SIGTERM", b.path)
		}
		cancel()
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
	core := build(t, dir, "core/cmd/skandha-core")
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("agents: {main: {limits: {rounds: -1}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"limits.rounds": {"--config", bad}, "bogus": {"--bogus"}, "--config": {"--config", filepath.Join(dir, "none.yaml")},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		out, err := exec.CommandContext(ctx, core.path, args...).CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("skandha-core %v: %v\n%s", args, err, out)
		}
	}
}
