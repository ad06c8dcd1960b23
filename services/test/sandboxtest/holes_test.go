//go:build linux

package sandboxtest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"skandha.dev/services/sandbox/driver"
)

// leaky starts sandboxes that are weak on purpose: namespaces for processes and users, and
// nothing else. It shares the host's network, IPC, name, environment and /tmp, and has no
// seccomp profile and no limits.
type leaky struct{ driver.Driver }

func (leaky) Start(_ context.Context, spec driver.Spec) (driver.Sandbox, error) {
	args := []string{
		"--unshare-user", "--unshare-pid", "--uid", "65532", "--gid", "65532", "--as-pid-1", "--die-with-parent",
		"--tmpfs", "/", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
		"--symlink", "usr/lib64", "/lib64",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/workspace", "--bind", "/tmp", "/tmp", "--dir", "/packages",
		"--ro-bind", "/etc", "/etc", "--chdir", "/workspace",
		"/usr/bin/python3",
	}
	b := &leakySandbox{
		name: spec.Name, cmd: exec.Command("bwrap", append(args, spec.Args...)...), done: make(chan struct{}),
	}
	var err, err2 error
	b.WriteCloser, err = b.cmd.StdinPipe()
	b.Reader, err2 = b.cmd.StdoutPipe()
	if err := errors.Join(err, err2, b.cmd.Start()); err != nil {
		return nil, err
	}
	return b, nil
}

type leakySandbox struct {
	io.WriteCloser
	io.Reader

	name string
	cmd  *exec.Cmd
	done chan struct{}
}

func (b *leakySandbox) Name() string          { return b.name }
func (b *leakySandbox) Done() <-chan struct{} { return b.done }
func (*leakySandbox) Err() error              { return nil }
func (b *leakySandbox) Destroy(context.Context) error {
	_ = b.cmd.Process.Kill() // it may have ended
	_ = b.cmd.Wait()
	return nil
}

// TestProbesFindHoles runs probes against a sandbox that has the holes that they look for:
// a probe that passes there would pass everywhere. It omits those that would harm this
// machine if they succeeded.
func TestProbesFindHoles(t *testing.T) {
	for _, program := range []string{"bwrap", "/usr/bin/python3"} {
		if _, err := exec.LookPath(program); err != nil {
			missing := "NOT TESTED: " + program + " is missing (Debian: bubblewrap, python3)"
			if os.Getenv("SKANDHA_REQUIRE") == "all" {
				t.Fatal(missing)
			}
			t.Skip(missing)
		}
	}
	s := &suite{t: t, host: newHost(t, nil), driver: leaky{}}
	holes := []string{
		"keyctl", "add_key", "name_to_handle_at", "modify_ldt", "personality without randomisation", "System V shared memory",
		"i386 system calls",
		"clone into a user namespace", "unshare a user namespace", "AF_NETLINK", "no privilege at all", "exec from memory",
		"ptrace of itself by its parent", "ptrace of a sibling", "process_vm_writev to a sibling",
		"request_key", "POSIX message queues", "move_pages",
		"host files", "host name", "environment has no secrets", "engine sockets", "interfaces",
		"bus, Redis and canaries on loopback",
		"bus, Redis and canaries on the host's addresses", "datagrams to the host", "file descriptors", "sockets", "pipes",
	}
	for _, g := range groups() {
		for _, p := range g.probes {
			if !slices.Contains(holes, p.name) {
				continue
			}
			holes = slices.DeleteFunc(holes, func(n string) bool { return n == p.name })
			if p.name == "i386 system calls" && !hasI386(t) {
				t.Log("the kernel of this machine has no i386 system calls, so no sandbox can have this hole")
				continue
			}
			t.Run(p.name, func(t *testing.T) {
				ctx := within(t)
				o, err := p.try(&attempt{sandbox: s.start(t, sandboxOptions{}), ctx: ctx, t: t, host: s.host})
				err = errors.Join(err, s.host.unharmed())
				s.host.visits.Store(nil)
				if err == nil {
					t.Errorf("in a sandbox that has this hole the probe reports %q, %s", o.verdict, o.note)
				}
				t.Log(err)
			})
		}
	}
	if len(holes) > 0 {
		t.Errorf("no probe has the name %q", holes)
	}
}

// hasI386 reports whether the kernel has i386 system calls: without them, getpid by one ends
// the process with SIGSEGV, outside of any sandbox.
func hasI386(t *testing.T) bool {
	t.Helper()
	code := "import ctypes, os, signal, struct" + kernelHelpers + "i386(20, 0, 0, 0)"
	err := exec.CommandContext(within(t), "/usr/bin/python3", "-c", code).Run()
	if err == nil {
		return true
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGSEGV {
		t.Fatalf("getpid as an i386 system call: %v", err)
	}
	return false
}
