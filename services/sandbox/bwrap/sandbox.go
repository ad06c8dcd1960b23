//go:build linux

package bwrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skandha.dev/services/sandbox/driver"
)

// launch describes a process to run in a sandbox.
type launch struct {
	name    string
	args    []string // for the interpreter
	limits  driver.Limits
	mounts  []string // arguments for bubblewrap
	network bool
	errors  bool   // send standard error to the pipe too
	uid     uint32 // 0: the driver chooses one
	// fileSize bounds a file's bytes; 0: as in limits.
	fileSize int64
	release  func() // releases what the sandbox uses; may be nil
}

// sandbox implements driver.Sandbox.
type sandbox struct {
	d      *Driver
	h      *host
	launch launch
	group  *group
	uid    uint32

	stdin, stdout *os.File // our ends
	bwrap         *os.Process
	first         process

	settle    sync.Once
	settled   error
	ready     chan struct{} // closed when launch has returned
	destroyed chan struct{} // closed by Destroy
	destroy   sync.Once
	closePipe sync.Once
	done      chan struct{}
	exit      int   // of the first process, when done is closed and err is errExit
	err, left error // written before done is closed
}

// Optional features, which are dropped if they fail while the host is examined.
var (
	errCgroup = errors.New("using cgroups")
	errFiles  = errors.New("counting files")
)

// infoWithin bounds the wait for bubblewrap's fork.
const infoWithin = 20 * time.Second

// launch starts a sandbox.
func (d *Driver) launch(h *host, o launch) (*sandbox, error) {
	b := &sandbox{
		d: d, h: h, launch: o, ready: make(chan struct{}), destroyed: make(chan struct{}), done: make(chan struct{}),
	}
	defer close(b.ready)
	if err := d.add(b); err != nil {
		if o.release != nil {
			o.release()
		}
		return nil, err
	}
	info, err := b.begin()
	if err != nil {
		err = errors.Join(err, b.free())
		b.closePipes()
		b.err = err
		close(b.done)
		return nil, err
	}
	err = b.confine(info)
	_ = info.Close() // it was read
	go b.wait()
	if err != nil {
		b.kill()
		<-b.done
		b.closePipes()
		return nil, errors.Join(err, b.left)
	}
	return b, nil
}

// begin acquires the sandbox's resources and forks.
func (b *sandbox) begin() (info *os.File, err error) {
	if b.uid = b.launch.uid; b.d.root && b.uid == 0 {
		if b.uid = b.d.uids.take(); b.uid == 0 {
			return nil, fmt.Errorf("all %d user ids are in use", b.d.cfg.UIDs)
		}
	}
	if b.group, err = b.h.cgroups.create(b.d.lease.instance+"-"+b.launch.name, b.launch.limits); err != nil {
		return nil, fmt.Errorf("%w: %w", errCgroup, err)
	}
	return b.fork()
}

// fork starts bubblewrap and returns the pipe on which it reports the first process.
func (b *sandbox) fork() (info *os.File, err error) {
	in := &inherited{}
	defer in.close()
	infoW, err := b.pipes(in, &info)
	if err != nil {
		return nil, errors.Join(err, closeAll(info))
	}
	args := append([]string{marker + b.d.lease.instance + ":" + b.launch.name}, b.h.constants...)
	for path, text := range etc {
		n, err := in.content([]byte(text))
		if err != nil {
			return nil, errors.Join(err, closeAll(info))
		}
		args = append(args, "--perms", "0444", "--file", n, path)
	}
	for _, list := range b.h.fonts {
		f, err := os.Open(list)
		if err != nil {
			continue // the user's cache was emptied; matplotlib builds its own list
		}
		args = append(args, "--perms", "0444", "--file", in.add(f), driver.FontLists+"/"+filepath.Base(list))
	}
	if b.launch.network {
		args = append(append(args, "--share-net"), binds(etcOfNetwork)...)
	}
	filter, err := in.content(b.d.filter)
	if err != nil {
		return nil, errors.Join(err, closeAll(info))
	}
	args = append(args, writable(b.launch.limits)...)
	args = append(args, b.launch.mounts...)
	args = append(args, sealed()...)
	args = append(args, "--seccomp", filter, "--info-fd", infoW, "--", b.h.python.path)
	args = append(args, b.launch.args...)
	if b.bwrap, err = b.d.starter.start(b.h.bwrap, args, in.files, b.uid, b.group); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", b.h.bwrap, err), closeAll(info))
	}
	return info, nil
}

// pipes creates the sandbox's standard files and the pipe for bubblewrap's report.
func (b *sandbox) pipes(in *inherited, info **os.File) (infoW string, err error) {
	stdin, w, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("creating a pipe: %w", err)
	}
	b.stdin = w
	in.add(stdin)
	r, stdout, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("creating a pipe: %w", err)
	}
	b.stdout = r
	in.add(stdout)
	if b.launch.errors {
		in.files = append(in.files, stdout)
	} else {
		in.files = append(in.files, b.d.null)
	}
	r, w, err = os.Pipe()
	if err != nil {
		return "", fmt.Errorf("creating a pipe: %w", err)
	}
	*info = r
	return in.add(w), nil
}

// confine waits for the sandbox's first process and bounds it. The process has not read
// from its pipe yet, so it only runs what the service sent.
func (b *sandbox) confine(info *os.File) error {
	if err := info.SetReadDeadline(time.Now().Add(infoWithin)); err != nil {
		return fmt.Errorf("waiting for bubblewrap: %w", err)
	}
	var started struct {
		Child int `json:"child-pid"`
	}
	err := json.NewDecoder(info).Decode(&started)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("bubblewrap ended before it created the sandbox")
	}
	if err != nil {
		return fmt.Errorf("waiting for bubblewrap: %w", err)
	}
	err = b.first.open(started.Child)
	if errors.Is(err, unix.ESRCH) {
		return nil // it has already ended; Err will report that
	}
	if err != nil {
		return fmt.Errorf("opening the sandbox's first process: %w", err)
	}
	err = b.d.starter.as(b.uid, func() error { return b.h.limit(started.Child, b.launch.limits, b.launch.fileSize) })
	if err != nil && b.first.signal(0) == nil {
		return err
	}
	return nil
}

// Name implements driver.Sandbox.
func (b *sandbox) Name() string { return b.launch.name }

// Write implements driver.Sandbox.
func (b *sandbox) Write(p []byte) (int, error) {
	n, err := b.stdin.Write(p)
	if err != nil {
		return n, fmt.Errorf("writing to sandbox %s: %w", b.launch.name, err)
	}
	return n, nil
}

// Read implements driver.Sandbox. The first output shows that the sandbox is set up; its
// files are bounded before that output is returned.
func (b *sandbox) Read(p []byte) (int, error) {
	n, err := b.stdout.Read(p)
	if n > 0 {
		b.settle.Do(func() { b.settled = b.countFiles() })
		if b.settled != nil {
			return 0, b.settled
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("reading from sandbox %s: %w", b.launch.name, err)
	}
	return n, err
}

func (b *sandbox) countFiles() error {
	if !b.h.countsFiles {
		return nil
	}
	for _, dir := range []string{driver.Workspace, driver.Tmp, "/dev/shm"} {
		if dir == driver.Tmp && b.launch.network {
			continue // that of an installation is on disk
		}
		err := countFiles(b.first.pid, dir, b.launch.limits.WorkspaceFiles)
		if err == nil {
			continue
		}
		if gone := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH); gone {
			// It was about to end: its output counts, and its exit code, which bubblewrap reports.
			select {
			case <-b.done:
			case <-time.After(goneWithin):
				b.kill()
			}
			return nil
		}
		b.kill()
		return fmt.Errorf("%w: %w", errFiles, err)
	}
	return nil
}

// Done implements driver.Sandbox.
func (b *sandbox) Done() <-chan struct{} { return b.done }

// Err implements driver.Sandbox.
func (b *sandbox) Err() error {
	select {
	case <-b.done:
		return b.err
	default:
		return nil
	}
}

// Destroy implements driver.Sandbox.
func (b *sandbox) Destroy(ctx context.Context) error {
	b.destroy.Do(func() {
		close(b.destroyed)
		<-b.ready
		b.kill()
	})
	select {
	case <-b.done:
		b.closePipes()
		return b.left
	case <-ctx.Done():
		return fmt.Errorf("destroying sandbox %s: %w", b.launch.name, ctx.Err())
	}
}

func closeAll(files ...*os.File) error {
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

func (b *sandbox) closePipes() {
	b.closePipe.Do(func() { _ = closeAll(b.stdin, b.stdout) })
}
