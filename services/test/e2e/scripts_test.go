package e2e_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	. "skandha.dev/services/test/e2e/e2etest"
	"skandha.dev/services/test/natstest"
)

// deployment is deploy/dev/run-services.sh that runs.
type deployment struct {
	cmd       *exec.Cmd
	bin, data string // skandha, and the data directory
	ended     chan struct{}

	mu  sync.Mutex
	out strings.Builder
}

func (s *deployment) printed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// process is the id that a process of that name had last.
func (s *deployment) process(t *testing.T, name string) int {
	t.Helper()
	all := regexp.MustCompile(`(?m)^  `+name+`: process (\d+),`).FindAllStringSubmatch(s.printed(), -1)
	if len(all) == 0 {
		t.Fatalf("%s was not started:\n%s", name, s.printed())
	}
	pid, err := strconv.Atoi(all[len(all)-1][1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// buildMains builds every command and returns the directory.
func buildMains(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	mains, err := filepath.Glob("../../*/cmd/skandha-*")
	if err != nil || len(mains) == 0 {
		t.Fatalf("no mains: %v", err)
	}
	args := []string{"build", "-o", dir + "/", "skandha.dev/services/skandha"}
	for _, m := range mains {
		args = append(args, "./"+m)
	}
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the mains: %v\n%s", err, out)
	}
	return dir
}

// runServices starts make run-services' script with the commands, and ends it with the test.
func runServices(t *testing.T, bin string, env ...string) *deployment {
	t.Helper()
	dir := t.TempDir()
	s := &deployment{
		cmd: exec.Command("../../../deploy/dev/run-services.sh"), ended: make(chan struct{}),
		bin: filepath.Join(bin, "skandha"), data: filepath.Join(dir, "data"),
	}
	s.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "BIN=" + bin, "DATA=" + s.data, "RUNNERS=2",
		"SKANDHA_PROVIDER=offline", "SKANDHA_SANDBOX_DRIVER=none", "SKANDHA_DRAIN=1s",
		fmt.Sprintf("PORT=%d", natstest.FreePort(t)), fmt.Sprintf("REDIS_PORT=%d", natstest.FreePort(t)),
		fmt.Sprintf("SKANDHA_UI_LISTEN=127.0.0.1:%d", natstest.FreePort(t)),
	}, env...)
	pipe, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			s.mu.Lock()
			s.out.WriteString(lines.Text() + "\n")
			s.mu.Unlock()
		}
		_ = s.cmd.Wait() // how it ended is looked at
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		<-s.ended
		if t.Failed() {
			t.Logf("it printed\n%s", s.printed())
		}
	})
	return s
}

// What is killed is started again, core and the bus like a tool runner, and the rest goes
// on. A core that gives up at its start ends the rest.
func TestRunServicesStartsAgainWhatIsKilled(t *testing.T) {
	t.Parallel()
	bin := buildMains(t)
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(wrong, []byte("agnets: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	given := runServices(t, bin, "SKANDHA_CONFIG="+wrong)
	s := runServices(t, bin)
	<-given.ended
	if code := given.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(given.printed(), "did you mean agents?") {
		t.Errorf("with a wrong configuration it ends with exit code %d, want 1, and prints\n%s", code, given.printed())
	}
	Eventually(t, "all are started", func() bool { return strings.Contains(s.printed(), "Ctrl-C stops it.") })
	runner, other := s.process(t, "toolrunner-1"), s.process(t, "toolrunner-2")
	if err := syscall.Kill(runner, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the runner is started again", func() bool { return s.process(t, "toolrunner-1") != runner })
	if !strings.Contains(s.printed(), "toolrunner-1 was killed by signal 9") {
		t.Errorf("it does not say what died:\n%s", s.printed())
	}
	for _, name := range []string{"core", "nats"} {
		before := s.process(t, name)
		if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		Eventually(t, name+" is started again", func() bool { return s.process(t, name) != before })
	}
	Eventually(t, "the commands find a core that answers", func() bool {
		return exec.CommandContext(t.Context(), s.bin, "status", "--data", s.data).Run() == nil
	})
	identities, err := exec.CommandContext(t.Context(), s.bin, "plugins", "identities", "--data", s.data).CombinedOutput()
	if err != nil || !strings.Contains(string(identities), "Nobody is invited") {
		t.Errorf("the bus enforces no rights: %v\n%s", err, identities)
	}
	all := []int{other}
	for _, name := range []string{"toolrunner-1", "nats", "core", "provider", "sandbox", "uibridge"} {
		all = append(all, s.process(t, name))
	}
	for _, pid := range all {
		if !alive(pid) {
			t.Errorf("process %d has ended, too", pid)
		}
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	for _, pid := range all {
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
}

// On a machine that is to stay as it is, make setup says what is missing, and no more.
func TestSetupInstallsNothingIfItMayNot(t *testing.T) {
	t.Parallel()
	bin, installed := t.TempDir(), filepath.Join(t.TempDir(), "installed")
	for _, needed := range []string{"bash", "chmod", "dirname", "go", "head", "id", "rm", "sort"} {
		path, err := exec.LookPath(needed)
		if err == nil {
			err = os.Symlink(path, filepath.Join(bin, needed))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	apt := fmt.Sprintf("#!%s/bash\n: >%s\n", bin, installed)
	if err := os.WriteFile(filepath.Join(bin, "apt-get"), []byte(apt), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "../../../deploy/dev/setup.sh", "test")
	cmd.Env = []string{"PATH=" + bin, "HOME=" + t.TempDir(), "SKANDHA_INSTALL=no"}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "missing: redis-server") ||
		!strings.Contains(string(out), "Install: redis-server") {
		t.Errorf("it ends with %v and says\n%s", err, out)
	}
	if _, err := os.Stat(installed); err == nil {
		t.Errorf("it has called apt-get:\n%s", out)
	}
}
