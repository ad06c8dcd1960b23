//go:build linux

package bwrap

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"skandha.dev/services/sandbox/driver"
)

// Files of a sandbox's /etc; they contain nothing of the host's users.
var etc = map[string]string{
	"/etc/passwd":        fmt.Sprintf("sandbox:x:%d:%d::%s:/bin/sh\n", driver.UID, driver.GID, driver.Workspace),
	"/etc/group":         fmt.Sprintf("sandbox:x:%d:\n", driver.GID),
	"/etc/hosts":         "127.0.0.1 localhost sandbox\n::1 localhost\n",
	"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}

// Other files of the host's /etc that programs read, if they exist.
var (
	etcOfHost = []string{"/etc/ld.so.cache", "/etc/alternatives", "/etc/fonts", "/etc/matplotlibrc"}
	// For installations: name resolution, and trusted certificates.
	etcOfNetwork = []string{"/etc/hosts", "/etc/resolv.conf", "/etc/ssl", "/etc/pki", "/etc/ca-certificates"}
)

// Paths of programs and libraries that are outside of /usr on some hosts.
var rootDirs = []string{"/bin", "/sbin", "/lib", "/lib32", "/libx32", "/lib64"}

// constants returns the arguments that all sandboxes on this host share, up to the first
// that differs.
func constants(python interpreter) []string {
	args := []string{
		"--unshare-all", "--unshare-user", "--disable-userns",
		"--uid", strconv.Itoa(driver.UID), "--gid", strconv.Itoa(driver.GID), "--cap-drop", "ALL",
		"--new-session", "--die-with-parent", "--as-pid-1", "--hostname", "sandbox", "--chdir", driver.Workspace,
		"--clearenv",
	}
	for _, v := range driver.Environment() {
		name, value, _ := strings.Cut(v, "=")
		args = append(args, "--setenv", name, value)
	}
	args = append(args, "--ro-bind", "/usr", "/usr")
	for _, dir := range rootDirs {
		if to, err := os.Readlink(dir); err == nil {
			args = append(args, "--symlink", to, dir)
		} else if exists(dir) {
			args = append(args, "--ro-bind", dir, dir)
		}
	}
	for _, dir := range python.dirs {
		args = append(args, "--ro-bind", dir, dir)
	}
	args = append(args, binds(etcOfHost)...)
	// Hidden: the host's settings, of which some belong to the owner of a user
	// namespace and could be written; names of the user's keys.
	args = append(args, "--proc", "/proc", "--tmpfs", "/proc/sys", "--remount-ro", "/proc/sys")
	if exists("/proc/keys") {
		args = append(args, "--ro-bind", "/dev/null", "/proc/keys")
	}
	// No pseudo-terminals: all instances of devpts share the host's kernel.pty.max, and an
	// unprivileged mount of it cannot have a separate limit.
	return append(args, "--dev", "/dev", "--perms", "0555", "--size", "4096", "--tmpfs", "/dev/pts", "--remount-ro",
		"/dev/pts")
}

// writable returns the file systems that a sandbox can write to; all others are sealed.
func writable(l driver.Limits) []string {
	tmpfs := func(dir string, size int64) []string {
		return []string{"--perms", "1777", "--size", strconv.FormatInt(size, 10), "--tmpfs", dir}
	}
	args := append(tmpfs("/dev/shm", l.Tmp), tmpfs(driver.Workspace, l.Workspace)...)
	return append(args, tmpfs(driver.Tmp, l.Tmp)...)
}

// sealed returns the arguments that end the mounts.
func sealed() []string { return []string{"--remount-ro", "/dev", "--remount-ro", "/"} }

func binds(paths []string) []string {
	var args []string
	for _, path := range paths {
		if exists(path) {
			args = append(args, "--ro-bind", path, path)
		}
	}
	return args
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// inherited are the files that bubblewrap inherits, with the numbers that it sees.
type inherited struct {
	files []*os.File
	own   []*os.File // to close once bubblewrap has them
}

func (in *inherited) add(f *os.File) (number string) {
	in.files = append(in.files, f)
	in.own = append(in.own, f)
	return strconv.Itoa(len(in.files) - 1)
}

// content returns a file with that content. A pipe holds it: none of ours exceeds the 4096
// bytes that every pipe accepts at once.
func (in *inherited) content(b []byte) (number string, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("creating a pipe: %w", err)
	}
	number = in.add(r)
	if len(b) > 4096 {
		_ = w.Close()
		return "", fmt.Errorf("%d bytes are too many for a pipe", len(b))
	}
	if _, err := w.Write(b); err != nil {
		_ = w.Close()
		return "", fmt.Errorf("filling a pipe: %w", err)
	}
	if err := w.Close(); err != nil {
		return "", fmt.Errorf("filling a pipe: %w", err)
	}
	return number, nil
}

func (in *inherited) close() {
	for _, f := range in.own {
		_ = f.Close()
	}
	in.own = nil
}
