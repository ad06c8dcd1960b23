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

	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/enginetest"
)

// killed runs a service until it is ready, and kills it with SIGKILL.
func (r *rig) killed(t *testing.T, job string, before func()) {
	t.Helper()
	c := startChild(t, r.engine, job, func(c *childConfig) { c.owner, c.image, c.host = r.cfg.Owner, r.image, r.cfg.Host })
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

// awaitLeft waits until that many containers exist.
func (r *rig) awaitLeft(t *testing.T, n int) {
	t.Helper()
	enginetest.Await(t, patience, func(context.Context) error {
		if left := r.left(t); len(left) != n {
			return fmt.Errorf("%d containers are there, want %d: %v", len(left), n, left)
		}
		return nil
	})
}

// reaps calls Reap until it has removed that many unused things. One that the engine is
// still releasing is left to the next call.
func (r *rig) reaps(t *testing.T, want int) {
	t.Helper()
	removed := 0
	enginetest.Await(t, patience, func(ctx context.Context) error {
		n, err := r.Reap(ctx)
		if removed += n; err == nil && removed < want {
			err = fmt.Errorf("%d things were removed, want %d", removed, want)
		}
		return err
	})
	if n, err := r.Reap(t.Context()); removed != want || n != 0 || err != nil {
		t.Errorf("Reap removed %d and then %d, %v, want %d", removed, n, err, want)
	}
}

// Sandboxes with a well-behaved agent end by themselves.
func TestKilledServiceLeavesNothing(t *testing.T) {
	r := newRig(t)
	r.killed(t, "hold", func() { r.awaitLeft(t, 4) })
	r.awaitLeft(t, 0)
}

// Sandboxes with another agent stay until they are reaped, and not before their service is
// dead.
func TestReapEndsWhatAKilledServiceLeft(t *testing.T) {
	r := newRig(t)
	mine := r.start(t, runner, small, "")
	r.killed(t, "deaf", func() {
		r.awaitLeft(t, 2+4)
		r.reaps(t, 0)
		r.awaitLeft(t, 2+4)
	})
	r.awaitLeft(t, 2+3) // the lease is gone by itself
	r.reaps(t, 3)
	r.awaitLeft(t, 2)
	if out, _ := mine.do(t, "print(1)"); out != "1" {
		t.Errorf("a sandbox of a living service says %q", out)
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
	r.reaps(t, 1)
	if left := r.volumes(t); len(left) > 0 {
		t.Errorf("there are %v", left)
	}
}

// A service may die between creating its lease and starting it.
func TestLeaseThatWasNeverStarted(t *testing.T) {
	r := newRig(t)
	labels := []string{
		"--label", form.LabelOwner + "=" + r.cfg.Owner, "--label", form.LabelBoot + "=a",
		"--label", form.LabelPurpose + "=",
	}
	for _, purpose := range []string{form.PurposeSandbox, form.PurposeLease} {
		labels[5] = form.LabelPurpose + "=" + purpose
		r.engine.Docker(t, append(append([]string{"create"}, labels...), r.image)...)
	}
	if n, err := r.Reap(t.Context()); n != 0 || err != nil {
		t.Errorf("Reap removed %d, %v, though it may be about to start", n, err)
	}
	r.reaps(t, 2)
	if leaseTime >= driver.ReapEvery {
		t.Errorf("they may be there for %v, which is longer than the reaper's period", leaseTime)
	}
}

// Things of others are not touched, even if they look like ours.
func TestForeignThingsAreNotTouched(t *testing.T) {
	r := newRig(t)
	foreign := newRig(t) // another owner
	theirs := foreign.start(t, runner, small, "")
	name := "skandha-box-" + strings.ToLower(rand.Text())
	r.engine.Docker(t, "run", "--detach", "--interactive", "--name", name,
		"--label", form.LabelPurpose+"="+form.PurposeSandbox,
		"--label", form.LabelBoot+"=gone",
		"--network", "none", r.image, "python3", "-c", "input()")
	volume := r.cfg.Owner + "-data-" + strings.ToLower(rand.Text())
	r.engine.Docker(t, "volume", "create", "--label", form.LabelPurpose+"="+form.PurposeData, volume)
	unlabelled := r.cfg.Owner + "-set-" + strings.Repeat("d", 64)
	r.engine.Docker(t, "volume", "create", unlabelled)
	t.Cleanup(func() {
		_ = r.engine.Command(context.Background(), "docker", "rm", "--force", name).Run()
		_ = r.engine.Command(context.Background(), "docker", "volume", "rm", volume, unlabelled).Run()
	})
	// What else the engine has may come and go.
	before := append(foreign.left(t), r.engine.Docker(t, "inspect", "--format", "{{.Id}}", name))

	r.killed(t, "deaf", nil)
	r.awaitLeft(t, 3)
	r.reaps(t, 3) // the sandboxes of the dead service
	r.awaitLeft(t, 0)
	after := strings.Fields(r.engine.Docker(t, "ps", "--all", "--quiet", "--no-trunc"))
	for _, id := range before {
		if !slices.Contains(after, id) {
			t.Errorf("%s, which is not ours, is gone", id)
		}
	}
	if len(before) != 3 {
		t.Errorf("%v were there, want another owner's lease and sandbox, and a sandbox of nobody's", before)
	}
	for _, v := range []string{volume, unlabelled} {
		r.engine.Docker(t, "volume", "inspect", v)
	}
	id := strings.Repeat("d", 64)
	if err := r.RemoveSet(t.Context(), id); err == nil || !strings.Contains(err.Error(), "has another owner") {
		t.Errorf("removing a set that somebody else's volume is called like: %v", err)
	}
	if out, _ := theirs.do(t, "print(1)"); out != "1" {
		t.Errorf("the sandbox of another owner says %q", out)
	}
}

// Twenty sandboxes at once answer, and leave no container, file or goroutine.
func TestManySandboxesLeaveNothing(t *testing.T) {
	r := directRig(t) // the proxy would be counted, too; it has a test of this kind
	round := func(n int) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				b, err := r.Start(t.Context(),
					driver.Spec{Name: fmt.Sprint("b", i), Args: []string{"-c", "print(input())"}, Limits: small})
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
					t.Errorf("sandbox %d says %q, %v", i, got, err)
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
		r.cli.HTTPClient().CloseIdleConnections() // one may have become idle since
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
