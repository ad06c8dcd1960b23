package mcp

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"skandha.dev/services/internal/seccomp"
	"skandha.dev/services/internal/within"
)

// Where a command in the sandbox has its home, and the limits of each of its processes.
const (
	sandboxHome = "/home/mcp"
	tmpSize     = "268435456"
	// core files, open files, processes, data (KiB), size of files (512 bytes)
	limits = "ulimit -c 0; ulimit -n 4096; ulimit -p 512 2>/dev/null || ulimit -u 512; ulimit -d 4194304; ulimit -f 8388608; "
)

// Paths of the host that a command in the sandbox sees, read-only, if they exist.
var (
	systemRoots  = []string{"/bin", "/sbin", "/lib", "/lib32", "/libx32", "/lib64"}
	systemFiles  = []string{"/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/ca-trust"}
	networkFiles = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf"}
)

// confined returns the command line of a sandbox: bubblewrap with a read-only view of the system, a home
// that is kept if there is a directory for it, and nothing else of the host.
func confined(s Server, home string) (argv, env []string, err error) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return nil, nil, errors.New("bubblewrap is not installed, so the command cannot run in a sandbox: " +
			"install it (Debian: apt install bubblewrap), or let the command run as a program of this user with isolation: host")
	}
	argv = []string{
		bwrap, "--seccomp", "3", "--unshare-all", "--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL",
		"--new-session", "--die-with-parent", "--hostname", "mcp", "--ro-bind", "/usr", "/usr",
	}
	if s.Network {
		argv = append(argv, "--share-net")
	}
	for _, dir := range systemRoots {
		if to, err := os.Readlink(dir); err == nil {
			argv = append(argv, "--symlink", to, dir)
		} else {
			argv = append(argv, "--ro-bind-try", dir, dir)
		}
	}
	files := systemFiles
	if s.Network {
		files = append(files[:len(files):len(files)], networkFiles...)
	}
	for _, file := range append(files, s.Read...) {
		if to, err := filepath.EvalSymlinks(file); err == nil {
			argv = append(argv, "--ro-bind", to, file)
		}
	}
	argv = append(argv, "--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", tmpSize, "--tmpfs", "/tmp")
	if home == "" {
		argv = append(argv, "--size", tmpSize, "--tmpfs", sandboxHome)
	} else {
		argv = append(argv, "--bind", home, sandboxHome)
	}
	argv = append(argv, "--remount-ro", "/", "--chdir", sandboxHome, "--", "/bin/sh", "-c", limits+`exec "$0" "$@"`)
	env = []string{
		"HOME=" + sandboxHome, "PATH=" + sandboxHome + "/.local/bin:" + defaultPath, "LANG=C.UTF-8", "TMPDIR=/tmp", "USER=mcp",
	}
	if err := visible(s); err != nil {
		return nil, nil, err
	}
	return append(argv, s.Command...), env, nil
}

// filter returns the system calls that a command in the sandbox may make, for bubblewrap, which reads
// them from its file 3.
func filter() (*os.File, error) {
	b, err := seccomp.BPF()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go func() { // it may be more than a pipe holds
		_, _ = w.Write(b) // an error is bubblewrap's, which then has ended
		_ = w.Close()
	}()
	return r, nil
}

// visible returns why the command's program cannot be in the sandbox.
func visible(s Server) error {
	path, err := exec.LookPath(s.Command[0])
	if err != nil {
		return nil //nolint:nilerr // it may be in the command's home; if not, the shell says so
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil //nolint:nilerr // likewise
	}
	for _, dir := range append([]string{"/usr", "/bin", "/sbin", sandboxHome}, s.Read...) {
		if strings.HasPrefix(path, dir+"/") {
			return nil
		}
	}
	if system, err := lookPath(s.Command[0], nil); err == nil && system != path {
		return nil // the sandbox's PATH finds another one
	}
	return fmt.Errorf("the program %s is outside of what the sandbox shows: add its directory to read, "+
		"or let the command run as a program of this user with isolation: host", path)
}

// CheckRead returns why a command may not see a directory: protected files are in it, or it is in a protected
// directory and not in the workspace.
func CheckRead(dir string, protected []string, workspace string) error {
	free := false
	if workspace != "" {
		var err error
		if free, err = within.Contains(workspace, dir); err != nil {
			return err
		}
	}
	for _, p := range protected {
		holds, err := within.Contains(dir, p)
		if err == nil && !holds && !free {
			holds, err = within.Contains(p, dir)
		}
		if err != nil {
			return err
		}
		if holds {
			return fmt.Errorf("%s is, has or is in %s, where the system keeps its keys and data; name another directory", dir, p)
		}
	}
	return nil
}
