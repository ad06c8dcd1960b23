package sandboxtest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"skandha.dev/services/sandbox/driver"
)

// privilegeProbes try to become another user.
func privilegeProbes() []probe {
	must := func(name, code string, errnos ...string) probe {
		return probe{name: name, try: func(a *attempt) (outcome, error) { return a.mustRefuse(code, errnos...) }}
	}
	nobody := append([]string{"EINVAL"}, no...) // in a user namespace without root there is no such user
	return []probe{
		must("setuid to root", `attempt(os.setuid, 0)`, nobody...),
		must("setgid to root", `attempt(os.setgid, 0)`, nobody...),
		must("setgroups", `attempt(os.setgroups, [0])`, no...),
		must("chown to root", `open("owned", "w").close(); attempt(os.chown, "owned", 0, 0)`, nobody...),
		must("file capabilities", `
open("capable", "w").close()
attempt(os.setxattr, "capable", "security.capability", struct.pack("<IIIII", 0x02000001, 0xffffffff, 0, 0, 0))`,
			append([]string{"ENOTSUP", "EOPNOTSUPP"}, no...)...),
		must("mknod of a character device", `attempt(os.mknod, "/workspace/mem", stat.S_IFCHR | 0o666, os.makedev(1, 1))`,
			no...),
		must("mknod of a block device", `attempt(os.mknod, "/workspace/disk", stat.S_IFBLK | 0o666, os.makedev(8, 0))`,
			no...),
		{name: "no privilege at all", try: noPrivilege},
		{name: "setuid binary in the workspace", try: setuidBinary},
		{name: "setuid binaries of the system", try: systemSetuid},
		{name: "exec from memory", try: memfdExec},
		{name: "TIOCSTI", try: tiocsti},
		{name: "device nodes", try: devices},
	}
}

// noPrivilege checks what the kernel reports about a process of the sandbox.
func noPrivilege(a *attempt) (outcome, error) {
	var status map[string]string
	if err := a.eval(a.ctx, &status,
		`dict((k, v.strip()) for k, _, v in (l.partition(":") for l in open("/proc/self/status")))`); err != nil {
		return outcome{}, err
	}
	for field, want := range map[string]string{
		"NoNewPrivs": "1", "Seccomp": "2",
		"CapInh": strings.Repeat("0", 16), "CapPrm": strings.Repeat("0", 16), "CapEff": strings.Repeat("0", 16),
		"CapBnd": strings.Repeat("0", 16), "CapAmb": strings.Repeat("0", 16),
		"Gid": strings.TrimSpace(strings.Repeat(fmt.Sprint(driver.GID, "\t"), 4)),
	} {
		if status[field] != want {
			return hole("/proc/self/status has %s: %q, want %q", field, status[field], want)
		}
	}
	ids := strings.Fields(status["Uid"])
	uid, err := strconv.Atoi(cmp.Or(strings.Join(slices.Compact(ids), " "), "none"))
	if err != nil || len(ids) != 4 || !ownUser(uid) {
		return hole("/proc/self/status has Uid: %q, want four times the sandbox's own", status["Uid"])
	}
	return refused("no capability, NoNewPrivs, seccomp filter, uid %d", uid)
}

func setuidBinary(a *attempt) (outcome, error) {
	exit, err := a.shell(`cp /bin/sh ./su && chmod 6755 ./su && ./su -p -c 'id -u; id -g'; echo; ls -l su`)
	if err != nil {
		return outcome{}, err
	}
	lines := strings.Fields(exit.Stdout.Text)
	if len(lines) < 2 {
		return refused("it does not run: %s", tail(exit.Stderr.Text))
	}
	if uid, err := strconv.Atoi(lines[0]); err != nil || !ownUser(uid) || lines[1] != fmt.Sprint(driver.GID) {
		return hole("a setuid binary runs as %s:%s", lines[0], lines[1])
	}
	return harmless("it runs as %s:%s", lines[0], lines[1])
}

// systemSetuid runs the setuid programs of the sandbox's system.
func systemSetuid(a *attempt) (outcome, error) {
	var got struct {
		Found int
		Euids []int
	}
	err := a.eval(a.ctx, &got, `
import subprocess
found = [p for d in ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/lib") for top, _, names in os.walk(d) for p in (os.path.join(top, n) for n in names)
         if os.path.isfile(p) and os.lstat(p).st_mode & 0o6000]
euids = set()
for p in found:
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(w, 1); os.dup2(w, 2)
            os.execv(p, [p, "--help"])
        finally:
            os._exit(1)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        try:
            euids.add(int([l for l in open("/proc/%d/status" % pid) if l.startswith("Uid")][0].split()[2]))
        except (OSError, IndexError):
            break
        if os.waitpid(pid, os.WNOHANG)[0]:
            break
    else:
        os.kill(pid, 9); os.waitpid(pid, 0)
    os.close(r); os.close(w)
{"Found": len(found), "Euids": sorted(euids)}`)
	if err != nil {
		return outcome{}, err
	}
	for _, uid := range got.Euids {
		if !ownUser(uid) {
			return hole("a setuid binary of the system ran as %d", uid)
		}
	}
	return harmless("%d found, none ran as another user", got.Found)
}

// memfdExec may work: the program is as confined as all others.
func memfdExec(a *attempt) (outcome, error) {
	said, err := a.says(`
fd = os.memfd_create("probe", 0)
os.write(fd, open("/bin/cat", "rb").read())
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    try:
        os.dup2(w, 1)
        os.execve(fd, ["cat", "/proc/self/status"], {})
    except OSError:
        os._exit(9)
os.close(w)
status = open(r).read()
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"not run" if code else " ".join(l.replace("\t", "") for l in status.splitlines() if l.startswith(("Uid", "CapEff", "NoNewPrivs", "Seccomp:")))`)
	switch {
	case err != nil:
		return outcome{}, err
	case said == "not run":
		return refused("%s", said)
	case strings.Contains(said, "CapEff:0000000000000000") && strings.Contains(said, "NoNewPrivs:1") &&
		strings.Contains(said, "Seccomp:2"):
		return harmless("it runs, as confined as the rest")
	}
	return hole("a program run from memory is %s", said)
}

// tiocsti would type into the terminal in which the service was started.
func tiocsti(a *attempt) (outcome, error) {
	said, err := a.says(`
import fcntl, termios
out = []
for where in (0, 1, 2, "/dev/tty", "/dev/console"):
    try:
        fd = where if isinstance(where, int) else os.open(where, os.O_RDWR | os.O_NOCTTY)
        fcntl.ioctl(fd, termios.TIOCSTI, b"x")
        out.append("typed into %r" % (where,))
    except OSError:
        pass
try:
    m, s = os.openpty()
    fcntl.ioctl(s, termios.TIOCSTI, b"x")
except OSError as e:
    pass
", ".join(out)`)
	if err != nil {
		return outcome{}, err
	}
	if said != "" {
		return hole("%s", said)
	}
	return refused("there is no terminal to type into")
}

// devices checks that only the devices exist that every program expects.
func devices(a *attempt) (outcome, error) {
	var found []string
	err := a.eval(a.ctx, &found, `
fine = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
found = []
for top, dirs, names in os.walk("/"):
    dirs[:] = [d for d in dirs if os.path.join(top, d) not in ("/proc", "/sys")]
    for n in names + dirs:
        p = os.path.join(top, n)
        try:
            mode = os.lstat(p).st_mode
        except OSError:
            continue
        if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and not (top == "/dev" and n in fine) and not top.startswith("/dev/pts"):
            found.append(p)
for n in ("mem", "kmem", "port", "kmsg", "sda", "vda", "nvme0n1", "loop0", "loop-control", "kvm", "fuse", "net/tun", "vhost-vsock", "vsock", "mapper/control", "rtc0", "hpet", "dri/card0", "input/event0", "snapshot", "cpu/0/msr"):
    if attempt(os.open, "/dev/" + n, os.O_RDONLY | os.O_NONBLOCK).startswith("done"):
        found.append("opened /dev/" + n)
found`)
	if err != nil {
		return outcome{}, err
	}
	if len(found) > 0 {
		return hole("there are unneeded devices: %q", found)
	}
	return refused("only null, zero, full, random, urandom, tty and terminals")
}
