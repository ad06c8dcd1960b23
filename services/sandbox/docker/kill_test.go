package docker

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"skandha.dev/services/internal/enginetest"
	"skandha.dev/services/sandbox/driver"
)

// killed runs a service until it is ready, and kills it with SIGKILL.
func (r *rig) killed(t *testing.T, job string, before func()) {
	t.Helper()
	c := startChild(t, r.engine, job, func(c *childConfig) { c.owner, c.image = r.cfg.Owner, r.image })
	if line, err := c.lines.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the service says %q, %v", line, err)
	}
	if before != nil {
		before()
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// awaitLeft waits until that many containers are there.
func (r *rig) awaitLeft(t *testing.T, n int) {
	t.Helper()
	enginetest.Await(t, driver.ReapEvery, func(context.Context) error {
		if left := r.left(t); len(left) != n {
			return fmt.Errorf("%d containers are there, want %d: %v", len(left), n, left)
		}
		return nil
	})
}

// Boxes whose agent behaves are gone without anybody's help.
func TestKilledServiceLeavesNothing(t *testing.T) {
	r := newRig(t)
	r.killed(t, "hold", func() { r.awaitLeft(t, 4) })
	r.awaitLeft(t, 0)
}

// Boxes whose agent does not are there until somebody reaps, and not before their
// service is dead.
func TestReapEndsWhatAKilledServiceLeft(t *testing.T) {
	r := newRig(t)
	mine := r.start(t, runner, small, "")
	reap := func(want int) {
		t.Helper()
		if n, err := r.Reap(t.Context()); n != want || err != nil {
			t.Errorf("Reap removed %d, %v, want %d", n, err, want)
		}
	}
	r.killed(t, "deaf", func() {
		r.awaitLeft(t, 2+4)
		reap(0)
		r.awaitLeft(t, 2+4)
	})
	r.awaitLeft(t, 2+3) // the lease is gone by itself
	reap(3)
	r.awaitLeft(t, 2)
	reap(0)
	if out, _ := mine.do(t, "print(1)"); out != "1" {
		t.Errorf("a box of a living service says %q", out)
	}
}

func TestKilledServiceLeavesNoHalfMadeSet(t *testing.T) {
	r := newRig(t)
	r.killed(t, "install", func() {
		if n, err := r.Reap(t.Context()); n != 0 || err != nil {
			t.Errorf("while it installs, Reap removed %d, %v", n, err)
		}
	})
	r.awaitLeft(t, 0)
	if n := len(r.volumes(t)); n != 1 {
		t.Errorf("%d volumes are there, want the one that was being filled", n)
	}
	if n, err := r.Reap(t.Context()); n != 1 || err != nil {
		t.Errorf("Reap removed %d, %v, want 1", n, err)
	}
	if left := r.volumes(t); len(left) > 0 {
		t.Errorf("there are %v", left)
	}
}

// A service may die between making its lease and starting it.
func TestLeaseThatWasNeverStarted(t *testing.T) {
	r := newRig(t)
	labels := []string{
		"--label", labelOwner + "=" + r.cfg.Owner, "--label", labelBoot + "=a",
		"--label", labelPurpose + "=",
	}
	for _, purpose := range []string{purposeLease, purposeBox} {
		labels[5] = labelPurpose + "=" + purpose
		r.engine.Docker(t, append(append([]string{"create"}, labels...), r.image)...)
	}
	if n, err := r.Reap(t.Context()); n != 0 || err != nil {
		t.Errorf("Reap removed %d, %v, though it may be about to start", n, err)
	}
	enginetest.Await(t, driver.ReapEvery, func(ctx context.Context) error {
		n, err := r.Reap(ctx)
		if err == nil && n != 2 {
			err = fmt.Errorf("removed %d, want 2", n)
		}
		return err
	})
}

// What is not ours is not touched, even if it looks like it.
func TestForeignThingsAreNotTouched(t *testing.T) {
	r := newRig(t)
	foreign := newRig(t) // another owner
	theirs := foreign.start(t, runner, small, "")
	name := "skandha-box-" + strings.ToLower(rand.Text())
	r.engine.Docker(t, "run", "--detach", "--interactive", "--name", name, "--label", labelPurpose+"="+purposeBox, "--label", labelBoot+"=gone",
		"--network", "none", r.image, "python3", "-c", "input()")
	volume := r.cfg.Owner + "-data-" + strings.ToLower(rand.Text())
	r.engine.Docker(t, "volume", "create", "--label", labelPurpose+"="+purposeData, volume)
	unlabelled := r.cfg.Owner + "-set-" + strings.Repeat("d", 64)
	r.engine.Docker(t, "volume", "create", unlabelled)
	t.Cleanup(func() {
		_ = r.engine.Command(context.Background(), "docker", "rm", "--force", name).Run()
		_ = r.engine.Command(context.Background(), "docker", "volume", "rm", volume, unlabelled).Run()
	})
	before := r.engine.Docker(t, "ps", "--all", "--quiet", "--no-trunc")

	r.killed(t, "deaf", nil)
	r.awaitLeft(t, 3)
	if n, err := r.Reap(t.Context()); n != 3 || err != nil {
		t.Errorf("Reap removed %d, %v, want the 3 boxes of the dead service", n, err)
	}
	after := r.engine.Docker(t, "ps", "--all", "--quiet", "--no-trunc")
	if a, b := sorted(after), sorted(before); !slices.Equal(a, b) {
		t.Errorf("before there were %v, after %v", b, a)
	}
	for _, v := range []string{volume, unlabelled} {
		r.engine.Docker(t, "volume", "inspect", v)
	}
	id := strings.Repeat("d", 64)
	if err := r.RemoveSet(t.Context(), id); err == nil || !strings.Contains(err.Error(), "somebody else's") {
		t.Errorf("removing a set that somebody else's volume is called like: %v", err)
	}
	if out, _ := theirs.do(t, "print(1)"); out != "1" {
		t.Errorf("the box of another owner says %q", out)
	}
}

func sorted(lines string) []string { return slices.Sorted(slices.Values(strings.Fields(lines))) }

// Twenty boxes at once answer, and leave no container, file or goroutine.
func TestManyBoxesLeaveNothing(t *testing.T) {
	r := newRig(t)
	round := func(n int) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				b, err := r.Start(t.Context(), driver.Spec{Name: fmt.Sprint("b", i), Args: []string{"-c", "print(input())"}, Limits: small})
				if err != nil {
					t.Error(err)
					return
				}
				line := fmt.Sprintf("this is %d\n", i)
				got := make([]byte, len(line))
				if _, err = b.Write([]byte(line)); err == nil {
					_, err = io.ReadFull(b, got)
				}
				if err != nil || string(got) != line {
					t.Errorf("box %d says %q, %v", i, got, err)
				}
				if err := b.Destroy(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		r.cli.HTTPClient().CloseIdleConnections()
	}
	round(2) // what is made once, is
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	round(20)
	r.awaitLeft(t, 1)
	enginetest.Await(t, patience, func(context.Context) error {
		if g, f := runtime.NumGoroutine(), openFiles(t); g > goroutines || f > files {
			return fmt.Errorf("%d goroutines and %d open files, before it were %d and %d", g, f, goroutines, files)
		}
		return nil
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		enginetest.Missing(t, "open files are counted in /proc/self/fd")
	}
	return len(entries)
}
