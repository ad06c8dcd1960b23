package enginetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// daemon is a private dockerd.
type daemon struct {
	dir   string
	log   string
	cmd   *exec.Cmd
	ended chan struct{}

	ending sync.Once
	err    error // why it ended
}

// start runs dockerd. The kernel stops it, and removes its network, when this process
// dies.
func start(ctx context.Context, args []string) (*Engine, error) {
	if err := sweep(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "skandha-engine-") // short: the paths of sockets are
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir, log: filepath.Join(dir, "log"), ended: make(chan struct{})}
	if err := d.start(args); err != nil {
		return nil, errors.Join(fmt.Errorf("starting dockerd: %w", err), os.RemoveAll(dir))
	}
	host := "unix://" + filepath.Join(dir, "sock")
	e := &Engine{
		Env:  append(os.Environ(), "DOCKER_HOST="+host, "DOCKER_CONFIG="+filepath.Join(dir, "config")),
		Host: host, PID: d.cmd.Process.Pid, own: d,
	}
	err = poll(ctx, 3*time.Minute, func(ctx context.Context) error {
		select {
		case <-d.ended:
			return errEnded
		default:
			return e.Command(ctx, "docker", "info").Run()
		}
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for dockerd: %w\n%s", err, d.tail()), d.stop())
	}
	return e, nil
}

func (d *daemon) start(args []string) error {
	log, err := os.Create(d.log)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	lock, err := claim(d.dir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	args = append([]string{
		"-c", `ip link set lo up && exec dockerd "$@"`, "sh",
		"--host", "unix://" + filepath.Join(d.dir, "sock"), "--data-root", filepath.Join(d.dir, "data"),
		"--exec-root", filepath.Join(d.dir, "exec"), "--pidfile", filepath.Join(d.dir, "pid"), "--shutdown-timeout", "5",
	}, args...)
	d.cmd = exec.Command("sh", args...) //nolint:noctx // it lives until the test stops it
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.ExtraFiles = []*os.File{lock}
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the signal comes when the thread ends, not the process
		err := d.cmd.Start()
		started <- err
		if err == nil {
			_ = d.cmd.Wait() // its log shows why
			close(d.ended)
		}
	}()
	return <-started
}

// end stops dockerd and what it has mounted.
func (d *daemon) end() error {
	d.ending.Do(func() {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-d.ended:
		case <-time.After(30 * time.Second):
			_ = d.cmd.Process.Kill()
			<-d.ended
			d.err = errors.New("dockerd did not end within 30 s of SIGTERM")
		}
		d.err = errors.Join(d.err, d.unmount())
	})
	return d.err
}

// stop ends dockerd and removes its files.
func (d *daemon) stop() error { return errors.Join(d.end(), os.RemoveAll(d.dir)) }

// claim locks an engine's directory for as long as the engine, which inherits the
// file, or anything that it has started is running.
func claim(dir string) (*os.File, error) {
	f, err := os.Create(filepath.Join(dir, "lock.new"))
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil { // once the file is visible, it is locked
		err = os.Rename(f.Name(), filepath.Join(dir, "lock"))
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking the engine's directory: %w", err)
	}
	return f, nil
}

// sweep removes the directories of engines that ended with their test's process,
// which could not remove them.
func sweep() error {
	locks, err := filepath.Glob(filepath.Join(os.TempDir(), "skandha-engine-*", "lock"))
	for _, name := range locks {
		f, e := os.Open(name)
		if e != nil {
			continue // it has just been removed
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			d := &daemon{dir: filepath.Dir(name)}
			err = errors.Join(err, d.unmount(), os.RemoveAll(d.dir))
		}
		_ = f.Close()
	}
	return err
}

// unmount detaches the mounts that a killed engine has left. What its containers' shims unmount
// meanwhile is no longer a mount point, for which the error is EINVAL, or no longer exists.
func (d *daemon) unmount() error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("reading the mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], d.dir+"/") {
			e := syscall.Unmount(f[1], syscall.MNT_DETACH)
			if e != nil && !errors.Is(e, syscall.EINVAL) && !errors.Is(e, syscall.ENOENT) {
				err = errors.Join(err, fmt.Errorf("unmounting %s: %w", f[1], e))
			}
		}
	}
	return err
}

// tail returns the end of the daemon's log.
func (d *daemon) tail() string {
	b, err := os.ReadFile(d.log)
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	return string(b[max(0, len(b)-4096):])
}
