package docker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/enginetest"
)

// What the engine reports about a sandbox.
func TestSandboxIsHardenedForTheEngine(t *testing.T) {
	r := newRig(t)
	b := r.start(t, runner, small, "").Sandbox.(*sandbox)
	var found []struct {
		Image  string
		Config struct {
			User       string
			Env        []string
			Entrypoint []string
			Labels     map[string]string
			StdinOnce  bool

			NetworkDisabled bool
		}
		HostConfig struct {
			AutoRemove, ReadonlyRootfs, Privileged                  bool
			CapAdd, CapDrop, SecurityOpt, Binds                     []string
			NetworkMode, IpcMode, PidMode, CgroupnsMode, UsernsMode string
			Memory, MemorySwap, NanoCpus, PidsLimit                 int64
			MaskedPaths, ReadonlyPaths                              []string
			LogConfig                                               struct{ Type string }
			Init                                                    *bool
			Ulimits                                                 []struct {
				Name       string
				Soft, Hard int64
			}
			Devices []any
		}
		Mounts          []any
		NetworkSettings struct{ Networks map[string]any }
	}
	if err := json.Unmarshal([]byte(r.engine.Docker(t, "inspect", b.id)), &found); err != nil {
		t.Fatal(err)
	}
	c := found[0]
	h := c.HostConfig
	ulimits := map[string]int64{}
	for _, u := range h.Ulimits {
		if u.Soft == u.Hard {
			ulimits[u.Name] = u.Hard
		}
	}
	for problem, found := range map[string]bool{
		"is not made of the image's id": !strings.HasPrefix(c.Image, "sha256:"),
		"has no separate user":          !ownUser(c.Config.User),
		"has another environment":       !slices.Equal(c.Config.Env, append(driver.Environment(), "HOSTNAME")),
		"runs the image's entry point":  !slices.Equal(c.Config.Entrypoint, []string{"python3"}),
		"keeps its input open":          !c.Config.StdinOnce,
		"stays when it has ended":       !h.AutoRemove,
		"has a writable root":           !h.ReadonlyRootfs,
		"is privileged":                 h.Privileged,
		"keeps capabilities":            !slices.Equal(h.CapDrop, []string{"ALL"}) || len(h.CapAdd) > 0,
		"may gain privileges":           !slices.Contains(h.SecurityOpt, "no-new-privileges"),
		"has the engine's seccomp profile": !slices.ContainsFunc(h.SecurityOpt,
			func(s string) bool { return strings.HasPrefix(s, "seccomp={") }),
		"has a network": h.NetworkMode != "none" || !c.Config.NetworkDisabled ||
			len(c.NetworkSettings.Networks) > 0,
		"shares a namespace": h.IpcMode != "none" || h.PidMode != "" || h.CgroupnsMode != "private" ||
			h.UsernsMode != "",
		"sees something of the host":          len(h.Binds)+len(c.Mounts)+len(h.Devices) > 0,
		"has other memory":                    h.Memory != small.Memory,
		"has swap":                            h.MemorySwap != small.Memory,
		"has other processors":                h.NanoCpus != int64(small.CPUs*1e9),
		"has another number of processes":     h.PidsLimit != small.PIDs,
		"has another number of open files":    ulimits["nofile"] != small.OpenFiles,
		"has larger files than its workspace": ulimits["fsize"] != small.Workspace,
		"dumps core":                          ulimits["core"] != 0,
		"is logged":                           h.LogConfig.Type != "none",
		"has paths of the kernel unmasked": !slices.Contains(h.MaskedPaths, "/proc/kcore") ||
			!slices.Contains(h.ReadonlyPaths, "/proc/sys"),
		"has another first process": h.Init == nil || *h.Init,
		"is not labelled with its owner": c.Config.Labels[form.LabelOwner] != r.cfg.Owner ||
			c.Config.Labels[form.LabelInstance] != t.Name(),
		"is not labelled with its name": c.Config.Labels[form.LabelName] != b.name ||
			c.Config.Labels[form.LabelPurpose] != form.PurposeSandbox || c.Config.Labels[form.LabelBoot] == "",
	} {
		if found {
			t.Errorf("the sandbox %s", problem)
		}
	}
	if t.Failed() {
		t.Logf("%+v", c)
	}
}

// What a sandbox reports about itself.
func TestSandboxIsHardenedFromInside(t *testing.T) {
	r := newRig(t)
	b := r.start(t, runner, small, "")
	for _, c := range []struct{ about, code, want string }{
		{"is the first process", "import os; print(os.getpid())", "1"},
		{
			"runs as nobody that the host knows",
			"import os; print(len(set(os.getresuid())), os.getuid() >= 10000, os.getresgid(), os.getgroups() in ([], [65532]))",
			"1 True (65532, 65532, 65532) True",
		},
		{
			"has no capability", "print([l.split()[1] for l in open('/proc/self/status') if l.startswith('Cap')])",
			"['0000000000000000', '0000000000000000', '0000000000000000', '0000000000000000', '0000000000000000']",
		},
		{
			"gains no privileges",
			"print([l.split()[1] for l in open('/proc/self/status') if l.startswith(('NoNewPrivs', 'Seccomp:'))])", "['1', '2']",
		},
		{"has loopback alone", "print([l.split(':')[0].strip() for l in open('/proc/net/dev') if ':' in l])", "['lo']"},
		{
			"has a loopback that works",
			"import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(('localhost', " +
				"s.getsockname()[1])); print('connected')", "connected",
		},
		{"has no route", "print(open('/proc/net/route').read().count('\\n'))", "1"},
		{
			"has no name server",
			"import socket\ntry: socket.getaddrinfo('example.com', 80)\nexcept socket.gaierror: print('none')", "none",
		},
		{"has our environment", "import os; print(sorted(os.environ) == " + pythonList(environmentNames()) + ")", "True"},
		{
			"has a workspace of that size", "import os; s = os.statvfs('/workspace'); print(s.f_blocks * s.f_frsize, s.f_files)",
			"4194304 100",
		},
		{
			"has a tmp of that size", "import os; s = os.statvfs('/tmp'); print(s.f_blocks * s.f_frsize, s.f_files)",
			"2097152 100",
		},
		{
			"has bounded shared memory", "import os; s = os.statvfs('/dev/shm'); print(s.f_blocks * s.f_frsize, s.f_files)",
			"16777216 1024",
		},
		{
			"shares memory between processes",
			"import multiprocessing as m; l = m.Lock(); l.acquire(); print(l.acquire(block=False))", "False",
		},
		{
			"owns its workspace",
			"import os; s = os.stat('/workspace'); print(s.st_uid == os.getuid(), s.st_gid, " +
				"oct(s.st_mode & 0o7777), os.getcwd())", "True 65532 0o700 /workspace",
		},
		{"writes there", "open('/workspace/f', 'w').write('x'); open('/tmp/f', 'w').write('x'); print('written')", "written"},
		{
			"runs what it wrote there",
			"import os, subprocess; open('/workspace/p', 'w').write('#!/bin/sh\\necho run'); os.chmod('/workspace/p', 0o700); " +
				"print(subprocess.run(['/workspace/p'], capture_output=True, text=True).stdout)", "run",
		},
		{"writes nowhere else", tryWrites, "[]"},
		{"has bounded open files", "import resource as r; print(r.getrlimit(r.RLIMIT_NOFILE))", "(128, 128)"},
		{"sees no process of others", "import os; print([p for p in os.listdir('/proc') if p.isdigit()])", "['1']"},
		{"is called what all are", "import socket; print(socket.gethostname())", "sandbox"},
		{
			"has no engine's socket",
			"import os; print([p for p in ('/var/run/docker.sock', '/run/docker.sock') if os.path.exists(p)])", "[]",
		},
		{"has a cgroup namespace", "print({l.split(':')[2].strip() for l in open('/proc/self/cgroup')})", "{'/'}"},
		{
			"makes no namespaces",
			"import ctypes, os; l = ctypes.CDLL(None, use_errno=True); print(l.unshare(0x10000000), " +
				"os.strerror(ctypes.get_errno()) != 'Success')", "-1 True",
		},
		{"prints errors nowhere", "import sys; sys.stderr.write('x' * 1000000); print('done')", "done"},
	} {
		t.Run(c.about, func(t *testing.T) {
			if out, ok := b.do(t, c.code); !ok || out != c.want {
				t.Errorf("the sandbox says %q, %t, want %q", out, ok, c.want)
			}
		})
	}
}

// tryWrites prints the directories outside of the workspace that can be written.
const tryWrites = `
import os
found = []
for top, dirs, files in os.walk("/"):
    dirs[:] = [d for d in dirs if os.path.join(top, d) not in ("/proc", "/workspace", "/tmp", "/dev/shm")]
    try:
        name = os.path.join(top, "probe")
        open(name, "w").close()
        found.append(name)
    except OSError:
        pass
for name in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper"):
    try:
        open(name, "w").close()
        found.append(name)
    except OSError:
        pass
print(found)
`

func environmentNames() (out []string) {
	for _, e := range driver.Environment() {
		name, _, _ := strings.Cut(e, "=")
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func pythonList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// Two sandboxes of one driver see nothing of each other.
func TestSandsandboxesAreApart(t *testing.T) {
	r := newRig(t)
	a, b := r.start(t, runner, small, ""), r.start(t, runner, small, "")
	if out, ok := a.do(t,
		"import os; open('/workspace/secret', 'w').write('x'); open('/tmp/secret', 'w').write('x'); "+
			"open('/dev/shm/secret', 'w').write('x')"); !ok {
		t.Fatal(out)
	}
	if out, ok := b.do(t,
		"import os; print(os.listdir('/workspace') + os.listdir('/tmp') + os.listdir('/dev/shm'))"); !ok || out != "[]" {
		t.Errorf("a sandbox sees %s of another", out)
	}
}

// ownUser reports whether the container has a separate user.
func ownUser(user string) bool {
	uid, gid, _ := strings.Cut(user, ":")
	n, err := strconv.Atoi(uid)
	return err == nil && n >= driver.FirstOwnUID && n != driver.UID && gid == strconv.Itoa(driver.GID)
}

// Only an image's files have an effect: its volumes would be unbounded directories of the
// host, and its health check would run beside the sandbox's code.
func TestOnlyTheFilesOfAnImageAreUsed(t *testing.T) {
	e := enginetest.Shared(t)
	made := e.Docker(t, "create", enginetest.SandboxImage(t, e), "true")
	remove := func(kind, name string) {
		if err := e.Command(context.Background(), "docker", kind, name).Run(); err != nil {
			t.Errorf("docker %s %s: %v", kind, name, err)
		}
	}
	t.Cleanup(func() { remove("rm", made) })
	name := "skandha-test/own:" + strings.ToLower(rand.Text())
	args := []string{"commit"}
	for _, change := range []string{
		"ENV SECRET=x PYTHONPATH=/data", "VOLUME /data /workspace /workspace/sub /packages",
		"HEALTHCHECK --interval=1s CMD touch /tmp/health",
	} {
		args = append(args, "--change", change)
	}
	e.Docker(t, append(args, made, name)...)
	t.Cleanup(func() { remove("rmi", name) })
	r := newRig(t, func(c *Config) { c.Image = name })
	b := r.start(t, runner, small, "")
	for _, c := range []struct{ about, code, want string }{
		{"its environment", "import os; print(sorted(os.environ) == " + pythonList(environmentNames()) + ")", "True"},
		{"its volumes", tryWrites, "[]"},
		{
			"its volume on the workspace", "import os; s = os.statvfs('/workspace'); print(s.f_blocks * s.f_frsize, s.f_files)",
			"4194304 100",
		},
	} {
		if out, ok := b.do(t, c.code); !ok || out != c.want {
			t.Errorf("%s: the sandbox says %q, %t, want %q", c.about, out, ok, c.want)
		}
	}
	found := e.Docker(t, "inspect", "--format",
		"{{json .Mounts}} {{json .Config.Healthcheck.Test}} {{json .State.Health}}", b.Sandbox.(*sandbox).id)
	if want := `[] ["NONE"] null`; found != want {
		t.Errorf("the engine says %s, want %s", found, want)
	}
}
