package test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const password = "s0123456789abcdef"

// views runs the rendered script of Redis, as three pods would, at three addresses of this machine.
type views struct {
	script string
	hosts  []string
	dirs   []string
}

func startViews(t *testing.T) *views {
	t.Helper()
	for _, program := range []string{"redis-server", "redis-cli"} {
		if _, err := exec.LookPath(program); err != nil {
			const missing = "NOT TESTED: redis-server or redis-cli is not installed"
			if os.Getenv("SKANDHA_REQUIRE") == "all" {
				t.Fatal(missing)
			}
			t.Skip(missing)
		}
	}
	v := &views{script: render(t, "").configs["skandha-redis"].Data["redis.sh"]}
	net := fmt.Sprintf("127.%d.%d", 2+rand.IntN(250), rand.IntN(250)) // of this machine, and hardly in use
	for i := range 3 {
		v.hosts = append(v.hosts, fmt.Sprintf("%s.%d", net, i+1))
		v.dirs = append(v.dirs, t.TempDir())
	}
	return v
}

// run runs a server or sentinel until the test ends or it is killed.
func (v *views) run(t *testing.T, i int, what string) (kill func()) {
	t.Helper()
	cmd := exec.Command("sh", "-c", v.script, "redis.sh", what)
	cmd.Env = append(os.Environ(), "SELF="+v.hosts[i], "PEERS="+strings.Join(v.hosts, " "),
		"STATE="+v.dirs[i], "DATA="+v.dirs[i], "BIND="+v.hosts[i], "MAXMEMORY=64mb", "REDISCLI_AUTH="+password,
		"DOWN_AFTER=500", "PATIENCE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	kill = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(func() {
		kill()
		if t.Failed() {
			t.Logf("%s %d: %s", what, i, out.String())
		}
	})
	return kill
}

func (v *views) ask(t *testing.T, host string, port int, args ...string) string {
	t.Helper()
	args = append([]string{"-h", host, "-p", fmt.Sprint(port), "--raw"}, args...)
	cmd := exec.CommandContext(t.Context(), "redis-cli", args...)
	cmd.Env = append(os.Environ(), "REDISCLI_AUTH="+password)
	out, _ := cmd.Output() // a server that is not there answers nothing
	return strings.TrimSpace(string(out))
}

// master is the one that most sentinels name, or nothing.
func (v *views) master(t *testing.T) string {
	t.Helper()
	var named []string
	for _, h := range v.hosts {
		name, _, _ := strings.Cut(v.ask(t, h, 26379, "sentinel", "get-master-addr-by-name", "skandha"), "\n")
		named = append(named, name)
	}
	slices.Sort(named)
	if named[1] == named[0] || named[1] == named[2] {
		return named[1]
	}
	return ""
}

// The first pod is the first master; when it is lost, another one is; it comes back as a replica, with the data.
func TestTheViewSurvivesItsMaster(t *testing.T) {
	v := startViews(t)
	var kills []func()
	start := func(what string, port int, pods ...int) {
		for _, i := range pods {
			kills = append(kills, v.run(t, i, what))
			eventually(t, what+" is ready", func() bool { return v.ask(t, v.hosts[i], port, "ping") == "PONG" })
		}
	}
	// The first pod, then the others. Their sentinels start last: they ask for replicas every ten seconds only.
	start("server", 6379, 0)
	start("sentinel", 26379, 0)
	start("server", 6379, 1, 2)
	for _, h := range v.hosts[1:] {
		eventually(t, "the replica follows", func() bool {
			return strings.Contains(v.ask(t, h, 6379, "info", "replication"), "master_link_status:up")
		})
	}
	start("sentinel", 26379, 1, 2)
	eventually(t, "the others know all sentinels and replicas", func() bool {
		return !slices.ContainsFunc(v.hosts[1:], func(h string) bool {
			return !strings.HasPrefix(v.ask(t, h, 26379, "sentinel", "ckquorum", "skandha"), "OK 3 usable Sentinels.") ||
				strings.Count(v.ask(t, h, 26379, "sentinel", "replicas", "skandha"), "master-link-status\nok") != 2
		})
	})
	first := v.hosts[0]
	if is := v.master(t); is != first {
		t.Fatalf("the master is %q, want %s", is, first)
	}
	if is := v.ask(t, first, 6379, "set", "a", "b"); is != "OK" {
		t.Fatal(is)
	}
	if is := v.ask(t, first, 6379, "wait", "2", "10000"); is != "2" {
		t.Fatalf("%s replicas have the value", is)
	}
	kills[0]()
	kills[1]()
	if err := os.RemoveAll(filepath.Join(v.dirs[0], "sentinel.conf")); err != nil { // the pod is made again
		t.Fatal(err)
	}
	eventually(t, "another one is the master", func() bool { m := v.master(t); return m != "" && m != first })
	second := v.master(t)
	if is := v.ask(t, second, 6379, "set", "c", "d"); is != "OK" {
		t.Errorf("the new master answers %q", is)
	}
	start("server", 6379, 0)
	start("sentinel", 26379, 0)
	eventually(t, "the first one is a replica, with what it missed", func() bool {
		return strings.HasPrefix(v.ask(t, first, 6379, "role"), "slave") && v.ask(t, first, 6379, "get", "c") == "d"
	})
	if is := v.ask(t, second, 6379, "get", "a"); is != "b" {
		t.Errorf("the value is %q", is)
	}
}
