package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"skandha.dev/services/sandbox/driver"
)

// hostProbes look for the host, and try to change it.
func hostProbes() []probe {
	writes := func(name string, data string, paths ...string) probe {
		return probe{name: name, try: func(a *attempt) (outcome, error) { return a.cannotWrite(data, paths...) }}
	}
	return []probe{
		writes("write core_pattern", "|/tmp/x", "/proc/sys/kernel/core_pattern"),
		writes("write sysrq-trigger", "h", "/proc/sysrq-trigger"),
		writes("write modprobe and friends", "/tmp/x", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/poweroff_cmd",
			"/proc/sys/kernel/hotplug", "/sys/kernel/uevent_helper",
			"/proc/sys/fs/binfmt_misc/register", "/proc/irq/default_smp_affinity", "/proc/self/timerslack_ns",
			"/proc/latency_stats"),
		writes("lower its oom_score_adj", "-1000", "/proc/self/oom_score_adj", "/proc/1/oom_score_adj"),
		{name: "write /proc/sys", try: writableBelow("/proc/sys")},
		{name: "write /sys", try: writableBelow("/sys")},
		{name: "write /proc", try: writableProc},
		{name: "cgroup release_agent", try: releaseAgent},
		{name: "write to / and /usr", try: writableDirs},
		{name: "engine sockets", try: engineSockets},
		{name: "host files", try: hostFiles},
		{name: "host secrets", try: hostSecrets},
		{name: "host processes", try: hostProcesses},
		{name: "host name", try: hostName},
		{name: "environment has no secrets", try: environmentSecrets},
		{name: "kernel memory and log", try: kernelFiles},
		{name: "mounts reveal nothing of the host", try: mountsAreSilent},
	}
}

// cannotWrite passes when no file accepts the data.
func (a *attempt) cannotWrite(data string, paths ...string) (outcome, error) {
	var said map[string]string
	if err := a.eval(a.ctx, &said,
		fmt.Sprintf(`{p: attempt(put, p, %s) for p in %s}`, pyBytes(data), pyList(paths))); err != nil {
		return outcome{}, err
	}
	var notes []string
	for _, p := range paths {
		if p == "/proc/self/timerslack_ns" {
			continue // its own; that is allowed
		}
		if strings.HasPrefix(said[p], "done") {
			return hole("%s was written: %s", p, said[p])
		}
		if !slices.Contains(notes, said[p]) {
			notes = append(notes, said[p])
		}
	}
	return refused("%s", strings.Join(notes, ", "))
}

func pyBytes(s string) string { return "b" + pyString(s) }

// pyString returns a Python literal: Go's escapes of non-printable characters are Python's.
func pyString(s string) string { return fmt.Sprintf("%+q", s) }

func pyList(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = pyString(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// found passes when the code's list is empty.
func (a *attempt) found(code, what string) (outcome, error) {
	var got []string
	if err := a.eval(a.ctx, &got, code); err != nil {
		return outcome{}, err
	}
	if len(got) > 0 {
		return hole("%s: %q", what, got[:min(len(got), 20)])
	}
	return refused("none found")
}

// writableBelow opens every file of a kernel file system for writing.
func writableBelow(dir string) func(*attempt) (outcome, error) {
	return func(a *attempt) (outcome, error) {
		return a.found(fmt.Sprintf(`
out, n, end = [], 0, time.monotonic() + 8
for top, dirs, names in os.walk(%q):
    for name in names:
        p = os.path.join(top, name)
        n += 1
        if n > 60000 or time.monotonic() > end:
            dirs[:] = []
            break
        if not stat.S_ISREG(os.lstat(p).st_mode):
            continue
        try:
            os.close(os.open(p, os.O_WRONLY | os.O_NONBLOCK))
            out.append(p)
        except OSError:
            pass
out`, dir), "files of the kernel can be written")
	}
}

// writableProc examines all of /proc except the processes. The files of /proc/pressure are
// writable by the kernel's design: writing sets a trigger for that descriptor only.
func writableProc(a *attempt) (outcome, error) {
	return a.found(`
out = []
for name in os.listdir("/proc"):
    p = "/proc/" + name
    if name.isdigit() or name in ("self", "thread-self", "sys", "net", "mounts", "pressure"):
        continue
    for top, dirs, names in ([(p, [], [""])] if os.path.isfile(p) else os.walk(p)):
        for n in names:
            f = os.path.join(top, n) if n else top
            # A file that is masked by /dev/null takes all and does nothing.
            if attempt(os.open, f, os.O_WRONLY | os.O_NONBLOCK).startswith("done") and not stat.S_ISCHR(os.stat(f).st_mode):
                out.append(f)
out`, "files of /proc can be written")
}

func releaseAgent(a *attempt) (outcome, error) {
	return a.found(`
out = []
for top, dirs, names in os.walk("/sys/fs/cgroup"):
    for n in ("release_agent", "notify_on_release", "cgroup.procs", "tasks", "memory.max", "pids.max", "devices.allow"):
        if n in names and attempt(os.open, os.path.join(top, n), os.O_WRONLY).startswith("done"):
            out.append(os.path.join(top, n))
    if attempt(os.mkdir, os.path.join(top, "probe")).startswith("done"):
        out.append(top)
for kind in (b"cgroup", b"cgroup2"):
    os.makedirs("/tmp/cg", exist_ok=True)
    if attempt(syscall, 165, b"none", b"/tmp/cg", kind, 0, b"memory").startswith("done"):
        out.append("mounted " + kind.decode())
out`, "cgroups can be changed")
}

// writableDirs checks that files can be created only in the intended directories.
func writableDirs(a *attempt) (outcome, error) {
	return a.found(fmt.Sprintf(`
out = []
for top, dirs, names in os.walk("/"):
    dirs[:] = [d for d in dirs if os.path.join(top, d) not in ("/proc", "/sys", %q, %q, "/dev/shm", "/dev/mqueue")]
    p = os.path.join(top, ".probe")
    if attempt(os.open, p, os.O_CREAT | os.O_WRONLY).startswith("done"):
        out.append(top)
        os.unlink(p)
    for n in names:
        f = os.path.join(top, n)
        if os.path.isfile(f) and not os.path.islink(f) and os.access(f, os.W_OK) and attempt(os.open, f, os.O_WRONLY | os.O_APPEND).startswith("done"):
            out.append(f)
out`, driver.Workspace, driver.Tmp), "the system can be written to")
}

func engineSockets(a *attempt) (outcome, error) {
	paths := []string{
		"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
		"/run/crio/crio.sock",
		"/run/user/0/docker.sock", "/run/user/1000/bus", "/run/dbus/system_bus_socket", "/run/systemd/private",
		"/run/systemd/notify", a.host.socket,
	}
	return a.found(fmt.Sprintf(`
out = []
def reach(name):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(2)
    s.connect(name)
    s.sendall(b"probe")
for name in %s + ["\0" + %q]:
    if attempt(reach, name).startswith("done"):
        out.append(name)
for top, dirs, names in os.walk("/"):
    dirs[:] = [d for d in dirs if os.path.join(top, d) not in ("/proc", "/sys", "/workspace", "/tmp")]
    out += [os.path.join(top, n) for n in names if stat.S_ISSOCK(os.lstat(os.path.join(top, n)).st_mode)]
out`, pyList(paths), a.host.abstract), "sockets of the host can be reached")
}

// hostFiles looks for the canary everywhere, by name.
func hostFiles(a *attempt) (outcome, error) {
	return a.found(fmt.Sprintf(`
out = [p for p in %s if os.path.lexists(p)]
for top, dirs, names in os.walk("/"):
    dirs[:] = [d for d in dirs if os.path.join(top, d) not in ("/proc", "/sys")]
    out += [os.path.join(top, n) for n in names + dirs if %q in n]
out += [p for p in ("/proc/self/root/..", "/proc/1/cwd", "/proc/self/cwd/../..", "/..") for n in (os.listdir(p) if attempt(os.listdir, p).startswith("done") else []) if %[2]q in n]
out`, pyList(a.host.files), a.host.token), "files of the host are visible")
}

// hostSecrets checks files whose content no sandbox may have.
func hostSecrets(a *attempt) (outcome, error) {
	compared := 0
	for _, path := range []string{
		"/etc/machine-id", "/etc/shadow", "/etc/gshadow", "/etc/ssh/ssh_host_ed25519_key", "/root/.bash_history",
		"/etc/hostname",
	} {
		host, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(host)) == "" {
			continue // the host has none
		}
		compared++
		var got string
		if err := a.eval(a.ctx, &got,
			fmt.Sprintf(`get(%q, 1 << 20).decode("latin1") if os.access(%[1]q, os.R_OK) else ""`, path)); err != nil {
			return outcome{}, err
		}
		if got == string(host) {
			return hole("the sandbox reads the host's %s", path)
		}
	}
	if compared == 0 {
		return outcome{}, errors.New("this host has none of them, or the suite may not read them")
	}
	return refused("none of %d is visible", compared)
}

func hostProcesses(a *attempt) (outcome, error) {
	return a.found(fmt.Sprintf(`
out = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    for f in ("cmdline", "comm", "environ"):
        said = attempt(get, "/proc/%%s/%%s" %% (pid, f), 65536)
        if %q in said:
            out.append("%%s: %%s" %% (pid, said))
if len([p for p in os.listdir("/proc") if p.isdigit()]) > 20:
    out.append("more than 20 processes")
out`, a.host.token), "processes of the host are visible")
}

func hostName(a *attempt) (outcome, error) {
	name, err := os.Hostname()
	if err != nil {
		return outcome{}, fmt.Errorf("reading the host's name: %w", err)
	}
	said, err := a.says(`" ".join([socket.gethostname(), os.uname().nodename, attempt(get, "/proc/sys/kernel/hostname")])`)
	if err != nil {
		return outcome{}, err
	}
	if strings.Contains(said, name) {
		return hole("the sandbox knows the host's name: %s", said)
	}
	return refused("its name is %s", strings.Fields(said)[0])
}

// environmentSecrets looks for the service's own environment.
func environmentSecrets(a *attempt) (outcome, error) {
	return a.found(fmt.Sprintf(`
out = ["%%s=%%s" %% kv for kv in os.environ.items() if %q in kv[1]]
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if %[1]q.encode() in open("/proc/%%s/environ" %% pid, "rb").read():
            out.append(pid)
    except OSError:
        pass
out`, a.host.token), "the service's environment can be read")
}

// kernelFiles checks files that show the memory of the host's kernel.
func kernelFiles(a *attempt) (outcome, error) {
	return a.found(`
out = []
for p in ("/proc/kcore", "/proc/kmsg", "/proc/kpagecount", "/proc/kpageflags", "/proc/sched_debug", "/sys/kernel/debug/sched/debug", "/dev/mem", "/dev/kmsg", "/sys/firmware/dmi/tables/DMI", "/sys/kernel/security/lsm_x", "/proc/slabinfo"):
    said = attempt(get, p)
    if said.startswith("done") and said != "done: b''":
        out.append(p + ": " + said)
try:
    if any(int(l.split()[0], 16) for l in open("/proc/kallsyms")):
        out.append("/proc/kallsyms has addresses")
except OSError:
    pass
out`, "the kernel's memory can be read")
}

// mountsAreSilent checks that no mount of a sandbox names a directory of the host that
// holds the canary.
func mountsAreSilent(a *attempt) (outcome, error) {
	var mounts []string
	if err := a.eval(a.ctx, &mounts, `open("/proc/self/mountinfo").read().splitlines()`); err != nil {
		return outcome{}, err
	}
	home, _ := os.UserHomeDir()
	for _, m := range mounts {
		fields := strings.Fields(m)
		root, at, options := fields[3], fields[4], fields[5]
		if home != "" && home != "/" && strings.HasPrefix(root+"/", home+"/") {
			return hole("%s of the host's home directory is mounted on %s", root, at)
		}
		inside := strings.HasPrefix(at, driver.Workspace) || strings.HasPrefix(at, driver.Tmp) ||
			strings.HasPrefix(at, "/dev/shm")
		if inside && (!strings.Contains(options, "nosuid") || !strings.Contains(options, "nodev")) {
			return hole("%s can be written to and is mounted %s, want nosuid and nodev", at, options)
		}
	}
	return refused("%d mounts, the writable ones nosuid and nodev", len(mounts))
}
