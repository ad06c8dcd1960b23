//go:build linux

package bwrap

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skandha.dev/services/sandbox/driver"
)

var roles = map[string]func() error{"service": serveUntilKilled, "storm": startUntilKilled, "user": beUser}

// The user ids of services to be killed; nothing else uses them.
const (
	dirEnv    = "BWRAP_TEST_DIR"
	killedUID = 2_100_000_000
)

func roleConfig() Config {
	return Config{Dir: os.Getenv(dirEnv), FirstUID: killedUID, UIDs: 256}
}

// serveUntilKilled starts sandboxes that will not end by themselves.
func serveUntilKilled() error {
	d, err := New(roleConfig())
	if err != nil {
		return err
	}
	for i := range 3 {
		b, err := d.Start(context.Background(),
			driver.Spec{Name: fmt.Sprintf("killed-%d-%d", os.Getppid(), i), Args: []string{"-I", "-S", "-c", `
import os, signal, time
for s in range(1, 32):
    if s not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD): signal.signal(s, signal.SIG_IGN)
if os.fork() == 0: os.setsid()
else: print(os.readlink("/proc/self/ns/pid"), flush=True)
while True: time.sleep(1)`}})
		if err != nil {
			return err
		}
		line, err := readLine(b)
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
	<-time.After(time.Hour)
	return errors.New("it was not killed")
}

// startUntilKilled starts and ends sandboxes all the time.
func startUntilKilled() error {
	d, err := New(roleConfig())
	if err != nil {
		return err
	}
	for i := range 4 {
		go func() {
			for n := 0; ; n++ {
				b, err := d.Start(context.Background(),
					driver.Spec{Name: fmt.Sprintf("storm-%d-%d-%d", os.Getppid(), i, n), Args: []string{"-I", "-S", "-c", "input()"}})
				if err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				if n == 1 {
					fmt.Println("storm")
				}
				_ = b.Destroy(context.Background())
			}
		}()
	}
	select {}
}

// play starts the test binary in a role.
func play(t *testing.T, role, dir string, uid uint32) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = []string{roleEnv + "=" + role, dirEnv + "=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, bufio.NewReader(out)
}

func TestKilledServiceLeavesNothing(t *testing.T) {
	dir := openDir(t)
	d := newDriver(t, Config{Dir: dir})
	mine := begin(t, d, `go(); say(1)`, nil)
	service, out := play(t, "service", dir, 0)
	var namespaces []string
	for range 3 {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		namespaces = append(namespaces, strings.TrimSpace(line))
	}
	for _, ns := range namespaces {
		if n := len(inNamespace(ns)); n != 2 {
			t.Fatalf("%d processes in a sandbox, want 2", n)
		}
	}
	if n, err := d.Reap(t.Context()); n != 0 || err != nil {
		t.Errorf("of a service that lives, %d things were reaped, %v", n, err)
	}
	if err := service.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = service.Wait()
	for _, ns := range namespaces {
		eventually(t, func() string {
			if pids := inNamespace(ns); len(pids) > 0 {
				return fmt.Sprintf("processes %v are there", pids)
			}
			return ""
		})
	}
	n, err := d.Reap(t.Context())
	if err != nil || (d.host.cgroups != nil && n != 3) {
		t.Errorf("%d things were reaped, want the cgroups of 3 sandboxes; %v", n, err)
	}
	if left := traces(fmt.Sprintf("killed-%d-0", os.Getpid())); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if leases, _ := os.ReadDir(filepath.Join(dir, "leases")); len(leases) != 1 {
		t.Errorf("%d leases, want ours alone", len(leases))
	}
	proceed(t, mine) // which nobody has touched
	var one int
	hear(t, mine, &one)
}

// A service may be killed at any moment of a start.
func TestServiceKilledWhileItStartsSandboxes(t *testing.T) {
	if os.Geteuid() != 0 {
		missing(t, "sandboxes have no separate users by which they could be found, since that takes root")
	}
	dir := openDir(t)
	d := newDriver(t, Config{Dir: dir})
	for range 8 {
		service, out := play(t, "storm", dir, 0)
		for range 4 {
			if line, err := out.ReadString('\n'); err != nil || line != "storm\n" {
				t.Fatalf("%q, %v", line, err)
			}
		}
		if err := service.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = service.Wait()
		// What was caught in the middle of a fork holds the lease until it dies, and
		// what was caught in bubblewrap's fork waits for the reaper, who comes again.
		eventually(t, func() string {
			if _, err := d.Reap(t.Context()); err != nil {
				t.Fatal(err)
			}
			if leases, _ := os.ReadDir(filepath.Join(dir, "leases")); len(leases) != 1 {
				return "the lease of a dead service is there"
			}
			entries, _ := os.ReadDir("/proc")
			for _, e := range entries {
				text, err := os.ReadFile("/proc/" + e.Name() + "/status")
				if err != nil || strings.Contains(string(text), "State:\tZ") {
					continue // it has ended; that it is still listed is its new parent's matter
				}
				_, rest, _ := strings.Cut(string(text), "\nUid:")
				if uid, _ := strconv.Atoi(strings.Fields(rest + " -")[0]); uid >= killedUID && uid < killedUID+256 {
					return "process " + e.Name() + " is there"
				}
			}
			return ""
		})
	}
	if left := cgroupsLike(fmt.Sprintf("storm-%d-", os.Getpid())); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func cgroupsLike(part string) (out []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.Contains(filepath.Base(path), part) {
			out = append(out, path)
		}
		return nil
	})
	return out
}

// report is what beUser sends.
type report struct {
	Report driver.Report
	UIDs   string // real ids of the sandbox's first process, on the host
	Forks  []any
	Closed string
}

// beUser starts a sandbox as an unprivileged user.
func beUser() (err error) {
	d, err := New(roleConfig())
	if err != nil {
		return err
	}
	var say report
	if say.Report, err = d.Report(context.Background()); err != nil {
		return err
	}
	b, err := d.Start(context.Background(),
		driver.Spec{Name: "user", Limits: small(), Args: []string{"-I", "-S", "-c", prelude + `
def more():
    global n
    while n < 1000:
        if os.fork() == 0: time.sleep(100)
        n += 1
n = 1
go(); say([fails(more), n])`}})
	if err != nil {
		return err
	}
	if _, err := readLine(b); err != nil {
		return fmt.Errorf("%w, %w", err, ended(b))
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(b.(*sandbox).first.pid) + "/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if uids, ok := strings.CutPrefix(line, "Uid:"); ok {
			say.UIDs = strings.Join(strings.Fields(uids), " ")
		}
	}
	if _, err := io.WriteString(b, "\n"); err != nil {
		return err
	}
	line, err := readLine(b)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &say.Forks); err != nil {
		return err
	}
	if err := d.Close(); err != nil {
		return err
	}
	say.Closed = fmt.Sprint(b.Err())
	return json.NewEncoder(os.Stdout).Encode(say)
}

// A service that is not root can start sandboxes too; they run under its own user.
func TestAsAnotherUser(t *testing.T) {
	newDriver(t, Config{}) // sandboxes can be made here
	if os.Geteuid() != 0 {
		missing(t, "only root can become another user; the other tests are run as one already")
	}
	const nobody = 65534
	dir := openDir(t)
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd, out := play(t, "user", dir, nobody)
	var got report
	if err := json.NewDecoder(out).Decode(&got); err != nil {
		t.Fatalf("%v, %v", err, cmd.Wait())
	}
	t.Logf("%+v", got)
	if got.UIDs != "65534 65534 65534 65534" {
		t.Errorf("the sandbox runs under %s", got.UIDs)
	}
	for _, limit := range []string{"workspace", "pids"} {
		if !slices.Contains(got.Report.Enforced, limit) {
			t.Errorf("%s is not enforced: %v", limit, got.Report)
		}
	}
	if slices.Contains(got.Report.Enforced, "files") {
		t.Error("files are said to be counted")
	}
	if got.Forks[0] == "" || got.Forks[1].(float64) > float64(small().PIDs) {
		t.Errorf("forks: %v", got.Forks)
	}
	if got.Closed != driver.ErrDestroyed.Error() {
		t.Errorf("after Close the sandbox says %q", got.Closed)
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
