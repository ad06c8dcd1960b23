package sandboxtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
)

func (s *suite) destroys(t *testing.T) {
	b := s.start(t, sandboxOptions{})
	if _, err := b.python(t.Context(), fork2); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := b.end(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if !errors.Is(b.raw.Err(), driver.ErrDestroyed) {
		t.Errorf("it ended because %v, want ErrDestroyed", b.raw.Err())
	}
	if err := b.end(); err != nil {
		t.Errorf("the second time: %v", err)
	}
	if _, err := b.raw.Write([]byte("x")); err == nil {
		t.Error("a destroyed sandbox can be written to")
	}
	if n, err := b.raw.Read(make([]byte, 1)); err == nil && n > 0 {
		t.Error("a destroyed sandbox can be read from")
	}
}

// saysWhyItEnded ends sandboxes by means other than Destroy.
func (s *suite) saysWhyItEnded(t *testing.T) {
	exits := s.first(t, "raise SystemExit(3)")
	s.ended(t, exits, driver.ErrDestroyed)
	killed := s.start(t, sandboxOptions{})
	if killed.raw.Err() != nil {
		t.Errorf("a sandbox that runs has ended: %v", killed.raw.Err())
	}
	for _, p := range killed.ns.processes() {
		if pid, err := strconv.Atoi(p.pid); err == nil {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill() // it may have ended with its parent
			}
		}
	}
	s.ended(t, killed.raw, driver.ErrDestroyed)
	if _, err := killed.Run(within(t), agent.Run{Kind: agent.Python, Code: "1", Timeout: patience}); !errors.Is(err,
		agent.ErrBroken) {
		t.Errorf("in a sandbox that was killed a run says %v", err)
	}
	if err := killed.end(); err != nil {
		t.Errorf("destroying a sandbox that was killed: %v", err)
	}
}

// ended waits for a sandbox's end, which must have a reason other than not.
func (s *suite) ended(t *testing.T, b driver.Sandbox, not error) {
	t.Helper()
	select {
	case <-b.Done():
	case <-time.After(patience):
		t.Fatalf("sandbox %s does not end", b.Name())
	}
	if b.Err() == nil || errors.Is(b.Err(), not) {
		t.Errorf("sandbox %s ended because: %v", b.Name(), b.Err())
	}
	t.Logf("the reason: %v", b.Err())
}

func (s *suite) runsOutOfMemory(t *testing.T) {
	s.need(t, "memory")
	b := s.first(t, "keep = []\ninput()\nwhile True: keep.append(bytearray(b'x') * (4 << 20))")
	if _, err := io.WriteString(b, "\n"); err != nil { // an engine may not report events during the start of a sandbox
		t.Fatal(err)
	}
	s.ended(t, b, driver.ErrDestroyed)
	if !errors.Is(b.Err(), driver.ErrMemory) {
		t.Errorf("it ended because %v, want ErrMemory", b.Err())
	}
}

func (s *suite) closes(t *testing.T) {
	d := s.New(t)
	a, b := s.startWith(t, d, sandboxOptions{}), s.startWith(t, d, sandboxOptions{})
	for range 2 {
		if err := d.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	}
	for _, x := range []*sandbox{a, b} {
		if err := x.isGone(); err != nil {
			t.Errorf("after Close: %v", err)
		}
	}
	if b, err := d.Start(within(t),
		driver.Spec{Name: NewName("late"), Args: agent.Args(), Limits: smallLimits()}); err == nil {
		t.Error("a closed driver starts sandboxes")
		_ = b.Destroy(within(t)) // the reaper removes it otherwise
	}
}

// reaps kills a service that has a sandbox, like the kernel's out-of-memory killer.
func (s *suite) reaps(t *testing.T) {
	if s.Child == nil {
		t.Fatal("the suite has no Child to kill")
	}
	ctx := within(t)
	name := NewName("orphan")
	cmd := s.Child(t, name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting another service: %v", err)
	}
	waited := sync.OnceFunc(func() { _ = cmd.Wait() }) // it was killed
	t.Cleanup(func() { _ = cmd.Process.Kill(); waited() })
	started := false
	for lines := bufio.NewScanner(out); !started && lines.Scan(); {
		started = lines.Text() == "orphan "+name
	}
	if !started {
		t.Fatal("the other service did not start a sandbox")
	}
	if n, err := s.driver.Reap(ctx); err != nil || n > 0 {
		t.Errorf("while all services live, %d things are reaped (%v)", n, err)
	}
	orphan := &sandbox{s: s, raw: named(name)}
	if len(orphan.leftovers(namespace{})) == 0 {
		t.Fatalf("no traces of the other service's live sandbox %s are visible, so their absence would prove nothing", name)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waited()
	left := until(patience, func() []string {
		if _, err := s.driver.Reap(ctx); err != nil {
			t.Fatalf("reaping: %v", err)
		}
		return orphan.leftovers(namespace{})
	})
	if len(left) > 0 {
		t.Errorf("%s after its service was killed these are left: %v", patience, left)
	}
}

// named is a sandbox of which only the name is known.
type named string

func (n named) Name() string                { return string(n) }
func (named) Read([]byte) (int, error)      { return 0, io.EOF }
func (named) Write([]byte) (int, error)     { return 0, io.ErrClosedPipe }
func (named) Done() <-chan struct{}         { return nil }
func (named) Err() error                    { return nil }
func (named) Destroy(context.Context) error { return nil }

func (s *suite) startsAtOnce(t *testing.T) {
	const sandboxes = 6
	var all sync.WaitGroup
	for range sandboxes {
		all.Go(func() {
			ctx := within(t)
			b, c, err := openSandbox(ctx, s.driver, driver.Spec{Name: NewName("m"), Limits: smallLimits()})
			if err != nil {
				t.Error(err)
				return
			}
			if exit, err := c.Run(ctx, agent.Run{Kind: agent.Python, Code: "6 * 7", Timeout: patience}); err != nil ||
				string(exit.Result) != "42" {
				t.Errorf("sandbox %s says %s, %v", b.Name(), exit.Result, err)
			}
			if err := b.Destroy(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// leaksNothing compares the resources of this process and the host before and after.
func (s *suite) leaksNothing(t *testing.T) {
	one := func() {
		b := s.start(t, sandboxOptions{})
		if err := errors.Join(b.answers(t.Context()), b.end()); err != nil {
			t.Fatal(err)
		}
		b.ns.close()
	}
	one()
	one() // allocate what is allocated only once
	fds, goroutines := openFiles(t), runtime.NumGoroutine()
	for range 30 {
		one()
	}
	left := until(patience, func() []string {
		f, g := openFiles(t), runtime.NumGoroutine()
		if len(f) <= len(fds)+2 && g <= goroutines+4 {
			return nil
		}
		return append([]string{fmt.Sprintf("%d descriptors of %d, %d goroutines of %d", len(f), len(fds), g, goroutines)},
			f...)
	})
	if len(left) > 0 {
		t.Errorf("after 30 sandboxes there are %v", left)
	}
}

func openFiles(t *testing.T) (out []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if at, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			out = append(out, at)
		}
	}
	return out
}
