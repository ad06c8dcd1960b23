//go:build linux

package bwrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// host describes what sandboxes need, as found on this host.
type host struct {
	bwrap, version  string
	python          interpreter
	constants       []string
	fonts           []string   // files with matplotlib's font lists
	cgroups         *hierarchy // nil: none, because of noCgroups
	noCgroups       error
	noSets          error // why package sets cannot be used
	countsFiles     bool
	countsProcesses bool
}

// interpreter is the host's Python.
type interpreter struct {
	path         string
	version, abi string
	prefix       string
	dirs         []string // directories outside of /usr, to be mounted
	pip          bool
	matplotlib   string // its first file; empty: not installed
}

const lookWithin = 10 * time.Second

// look examines the host; it keeps the result once sandboxes work.
func (d *Driver) look(ctx context.Context) (*host, error) {
	d.looking.Lock()
	defer d.looking.Unlock()
	d.mu.Lock()
	h, closed := d.host, d.closed
	d.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	if h != nil {
		return h, nil
	}
	h, err := d.examine(ctx)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.host = h
	return h, nil
}

func (d *Driver) examine(ctx context.Context) (*host, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*lookWithin)
	defer cancel()
	h := &host{countsFiles: d.root, countsProcesses: d.root || kernelAtLeast(5, 14)}
	var err error
	if h.bwrap, h.version, err = d.findBwrap(ctx); err != nil {
		return nil, err
	}
	if err := d.checkKernel(); err != nil {
		return nil, err
	}
	if h.python, err = d.findPython(ctx); err != nil {
		return nil, err
	}
	h.constants = constants(h.python)
	h.noSets = d.reachable(d.sets.dir)
	if d.cfg.NoCgroups {
		h.noCgroups = errors.New("disabled by the configuration (no_cgroups)")
	} else if h.cgroups, h.noCgroups = findHierarchy(d.lease.instance); h.noCgroups != nil {
		h.cgroups = nil
	}
	if err := d.lease.note(h.cgroups.dirs()); err != nil {
		return nil, fmt.Errorf("bwrap: %w", err)
	}
	if err := d.try(ctx, h); err != nil {
		return nil, err
	}
	h.fonts = d.fontLists(ctx, h)
	return h, nil
}

// try runs a test sandbox, without the features that this host does not allow.
func (d *Driver) try(ctx context.Context, h *host) error {
	for {
		output, err := d.tryOnce(ctx, h)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("testing bubblewrap: %w", ctx.Err())
		case errors.Is(err, errClosed):
			return err
		case errors.Is(err, errCgroup) && h.cgroups != nil:
			h.cgroups, h.noCgroups = nil, err
		case errors.Is(err, errFiles) && h.countsFiles:
			h.countsFiles = false
		default:
			return unavailable("bubblewrap does not work: %w%s%s", err, output, d.hint())
		}
	}
}

// findBwrap finds the program, and checks that it is new enough.
func (d *Driver) findBwrap(ctx context.Context) (path, version string, err error) {
	path, err = exec.LookPath(or(d.cfg.Bwrap, "bwrap"))
	if err != nil {
		return "", "", unavailable("bubblewrap is not installed (%w); Debian and Ubuntu: apt install bubblewrap", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", "", unavailable("finding bubblewrap: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", "", unavailable("%s --version: %w", path, err)
	}
	version = strings.TrimSpace(strings.TrimPrefix(string(out), "bubblewrap"))
	if !atLeast(version, 0, 8) {
		return "", "", unavailable("bubblewrap %s is too old, want 0.8 or newer; Debian: from 12 (bookworm) on", version)
	}
	return path, version, d.reachable(path)
}

// checkKernel checks for settings that certainly prevent user namespaces.
func (d *Driver) checkKernel() error {
	if fd, err := unix.PidfdOpen(os.Getpid(), 0); err != nil {
		return unavailable("the kernel is too old, want Linux 5.3 or newer: pidfd_open: %w", err)
	} else if err := unix.Close(fd); err != nil {
		return unavailable("pidfd_open: %w", err)
	}
	switch {
	case d.setting("kernel/unprivileged_userns_clone") == "0":
		return unavailable("the kernel does not let users create user namespaces; as root: " +
			"sysctl -w kernel.unprivileged_userns_clone=1")
	case d.setting("user/max_user_namespaces") == "0":
		return unavailable("the kernel allows no user namespaces; as root: sysctl -w user.max_user_namespaces=10000")
	}
	if last := uint64(d.cfg.FirstUID) + uint64(d.cfg.UIDs) - 1; d.root && !mapped(uint64(d.cfg.FirstUID), last) {
		return unavailable("user ids %d to %d do not exist in the service's user namespace; "+
			"set first_uid and uids to some that do, or run it as another user than root", d.cfg.FirstUID, last)
	}
	return nil
}

// hint returns a frequent cause for a failure of bubblewrap on this host.
func (d *Driver) hint() string {
	if d.setting("kernel/apparmor_restrict_unprivileged_userns") == "1" {
		return "; AppArmor restricts user namespaces here: install bubblewrap's AppArmor profile (bwrap-userns-restrict), " +
			"or, as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
	}
	return "; in a container, user namespaces must be allowed by its seccomp profile"
}

// setting reads a kernel setting; a missing one is empty.
func (d *Driver) setting(name string) string {
	text, err := os.ReadFile(filepath.Join(d.cfg.Kernel, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// mapped reports whether a range of user ids is part of a range of this user namespace.
func mapped(first, last uint64) bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return true // then a start will show it
	}
	for line := range strings.Lines(string(text)) {
		var inside, outside, n uint64
		if _, err := fmt.Sscan(line, &inside, &outside, &n); err == nil && first >= inside && last < inside+n {
			return true
		}
	}
	return false
}

// reachable reports why the sandboxes' users cannot read a path.
func (d *Driver) reachable(path string) error {
	if !d.root {
		return nil // they are the service's own user
	}
	to, err := filepath.EvalSymlinks(path)
	if err != nil {
		return unavailable("%w", err)
	}
	for dir, want := to, os.FileMode(0o5); ; dir, want = filepath.Dir(dir), 0o1 {
		info, err := os.Stat(dir)
		if err != nil {
			return unavailable("%w", err)
		}
		if !info.IsDir() && want == 0o5 {
			want = 0o4
		}
		if info.Mode().Perm()&want != want {
			return unavailable("as root, sandboxes run under separate users, who cannot read %s since the mode of %s is %s: "+
				"chmod o+rX it, or choose another directory", path, dir, info.Mode())
		}
		if dir == "/" {
			return nil
		}
	}
}

// ask makes an interpreter describe itself.
const ask = `import importlib.util, json, os, platform, sys, sysconfig
v = sys.version_info
matplotlib = importlib.util.find_spec("matplotlib")
print(json.dumps({"Path": sys.executable, "Matplotlib": matplotlib and matplotlib.origin or "", "Major": v[0], "Minor": v[1], "Version": platform.python_version(), "Prefix": sys.prefix,
 "ABI": sysconfig.get_config_var("SOABI") or platform.machine(), "Pip": importlib.util.find_spec("pip") is not None,
 "Dirs": [sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.realpath(sys.executable))]}))`

// findPython finds the interpreter of the sandboxes.
func (d *Driver) findPython(ctx context.Context) (interpreter, error) {
	if d.cfg.Python != "" {
		p, err := d.askPython(ctx, d.cfg.Python)
		if err != nil {
			return p, unavailable("python %s: %w", d.cfg.Python, err)
		}
		return p, nil
	}
	candidates := []string{"/usr/bin/python3"}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if file := filepath.Join(dir, "python3"); filepath.IsAbs(file) && exists(file) && !slices.Contains(candidates, file) {
			candidates = append(candidates, file)
		}
	}
	var errs []error
	for _, file := range candidates {
		p, err := d.askPython(ctx, file)
		if err == nil {
			return p, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", file, err))
	}
	return interpreter{}, unavailable("no Python 3.9 or newer was found (%w); Debian and Ubuntu: apt install python3",
		errors.Join(errs...))
}

func (d *Driver) askPython(ctx context.Context, file string) (interpreter, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, file, "-I", "-c", ask)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return interpreter{}, fmt.Errorf("%w %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var info struct {
		Path, Version, Prefix, ABI, Matplotlib string
		Major, Minor                           int
		Pip                                    bool
		Dirs                                   []string
	}
	if err := json.Unmarshal(out, &info); err != nil {
		return interpreter{}, fmt.Errorf("not a Python interpreter: %w", err)
	}
	if info.Major != 3 || info.Minor < 9 {
		return interpreter{}, fmt.Errorf("version %s is too old, want 3.9 or newer", info.Version)
	}
	p := interpreter{
		path: info.Path, version: info.Version, abi: info.ABI, prefix: info.Prefix, pip: info.Pip,
		matplotlib: info.Matplotlib,
	}
	for _, dir := range info.Dirs {
		if store, ok := storeOf(dir); ok {
			dir = store // its libraries are elsewhere in the store
		}
		if !within(dir, "/usr") && !slices.ContainsFunc(p.dirs, func(other string) bool { return within(dir, other) }) {
			p.dirs = append(p.dirs, dir)
		}
	}
	for _, path := range append([]string{p.path}, p.dirs...) {
		if err := d.reachable(path); err != nil {
			return interpreter{}, err
		}
	}
	return p, nil
}

// storeOf knows the stores of Nix and Guix.
func storeOf(dir string) (string, bool) {
	for _, store := range []string{"/nix/store", "/gnu/store"} {
		if within(dir, store) {
			return store, true
		}
	}
	return "", false
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// kernelAtLeast compares the running kernel's version.
func kernelAtLeast(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	return atLeast(unix.ByteSliceToString(u.Release[:]), major, minor)
}

// atLeast compares the first two numbers of a version.
func atLeast(version string, major, minor int) bool {
	parts := strings.FieldsFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if len(parts) < 2 {
		return false
	}
	a, errA := strconv.Atoi(parts[0])
	b, errB := strconv.Atoi(parts[1])
	return errA == nil && errB == nil && (a > major || a == major && b >= minor)
}
