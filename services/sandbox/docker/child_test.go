package docker

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/enginetest"
)

// The test binary is also a service to be killed; these variables configure it.
const (
	childVariable = "SKANDHA_TEST_CHILD"
	childOwner    = "SKANDHA_TEST_OWNER"
	childImage    = "SKANDHA_TEST_IMAGE"
)

type childConfig struct {
	owner, image, host string // host: empty for that of the engine
	user               uint32
}

type childProcess struct {
	*exec.Cmd
	lines *bufio.Reader
}

func startChild(t *testing.T, e *enginetest.Engine, job string, change func(*childConfig)) *childProcess {
	t.Helper()
	var c childConfig
	change(&c)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if c.user != 0 {
		exe = copyFor(t, exe)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(slices.Clone(e.Env), childVariable+"="+job, childOwner+"="+c.owner, childImage+"="+c.image)
	if c.host != "" {
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+c.host)
	}
	cmd.Stderr = t.Output()
	if c.user != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.user, Gid: c.user}}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &childProcess{cmd, bufio.NewReader(out)}
}

// copyFor copies the program to where every user may run it.
func copyFor(t *testing.T, exe string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "skandha-child-") // t.TempDir is for the test's user alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	name := filepath.Join(dir, "child")
	text, err := os.ReadFile(exe)
	if err == nil {
		err = os.WriteFile(name, text, 0o755) //nolint:gosec // everybody runs it
	}
	if err == nil {
		err = os.Chmod(dir, 0o755) //nolint:gosec // likewise
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// child is what the test binary does as a service.
func child(job string) {
	d, err := New(Config{Owner: os.Getenv(childOwner), Image: os.Getenv(childImage), Runtime: Runc})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	switch job {
	case "ask":
		_, err := d.Report(ctx)
		fmt.Println(strings.ReplaceAll(fmt.Sprint(err), "\n", " "))
	case "hold", "deaf":
		source := runner
		if job == "deaf" {
			source = deaf
		}
		for i := range 3 {
			if _, err := d.Start(ctx,
				driver.Spec{Name: fmt.Sprint("b", i), Args: []string{"-c", source}, Limits: small}); err != nil {
				fmt.Println(err)
				return
			}
		}
		fmt.Println("ready")
		select {}
	case "install":
		err := d.Install(ctx, driver.Install{
			ID: strings.Repeat("c", 64), MaxBytes: 1 << 20,
			Args:   []string{"-c", "import time; print('ready', flush=True); time.sleep(1e6)"},
			Output: func(line string) { fmt.Println(line) },
		})
		fmt.Println(err)
	}
}
