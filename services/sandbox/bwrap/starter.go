//go:build linux

package bwrap

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// starter is the one thread that starts processes. The kernel notifies a child that its
// parent has died when the *thread* that forked it dies; the runtime ends threads at will,
// but not this one.
type starter struct {
	work  chan func()
	ended chan struct{}
	once  sync.Once
}

func newStarter() *starter {
	s := &starter{work: make(chan func()), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		for f := range s.work {
			f()
		}
	}()
	return s
}

// start forks on the thread, in the sandbox's cgroup, so that nothing of the sandbox is
// ever outside of it.
func (s *starter) start(path string, argv []string, files []*os.File, uid uint32, g *group) (p *os.Process, err error) {
	done := make(chan struct{})
	s.work <- func() {
		defer close(done)
		attr := &os.ProcAttr{Dir: "/", Env: []string{}, Files: files, Sys: &syscall.SysProcAttr{
			Setsid:    true, // Ctrl-C at the service's terminal must not reach the sandboxes
			Pdeathsig: syscall.SIGKILL,
		}}
		if uid != 0 {
			attr.Sys.Credential = &syscall.Credential{Uid: uid, Gid: uid}
		}
		var leave func()
		if leave, err = g.enter(attr.Sys); err != nil {
			return
		}
		defer leave()
		p, err = os.StartProcess(path, argv, attr)
	}
	<-done
	return p, err
}

// as calls f on the thread with the real user and group id of a sandbox; 0 means the
// service's own.
func (s *starter) as(uid uint32, f func() error) (err error) {
	done := make(chan struct{})
	s.work <- func() {
		defer close(done)
		if uid == 0 {
			err = f()
			return
		}
		if err = realIDs(uid); err == nil {
			err = f()
		}
		err = errors.Join(err, realIDs(0))
	}
	<-done
	return err
}

// realIDs changes only the real ids of this thread; the effective ones stay root's.
func realIDs(id uint32) error {
	const keep = ^uintptr(0)
	for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
		if _, _, errno := unix.RawSyscall(call, uintptr(id), keep, keep); errno != 0 {
			return fmt.Errorf("setting the ids %d: %w", id, errno)
		}
	}
	return nil
}

// close ends the thread; start must not be called any more.
func (s *starter) close() {
	s.once.Do(func() { close(s.work) })
	<-s.ended
}

// uids assigns the user ids of sandboxes.
type uids struct {
	mu    sync.Mutex
	first uint32
	used  []bool
	next  int
}

// newUIDs begins at a random id of the range, so that services that share it rarely use the
// same id.
func newUIDs(first, n uint32) *uids {
	return &uids{first: first, used: make([]bool, n), next: os.Getpid() % int(n)}
}

// take returns a free id, or 0 if there is none.
func (u *uids) take() uint32 {
	u.mu.Lock()
	defer u.mu.Unlock()
	for range u.used {
		i := u.next
		u.next = (u.next + 1) % len(u.used)
		if !u.used[i] {
			u.used[i] = true
			return u.first + uint32(i)
		}
	}
	return 0
}

func (u *uids) give(uid uint32) {
	if uid == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used[uid-u.first] = false
}
