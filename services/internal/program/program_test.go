package program_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/program"
)

func run(ctx context.Context, line string) (program.Output, error) {
	return program.Run(ctx, program.Program{
		Args: []string{"/bin/sh", "-c", line}, Env: program.Minimal(), Input: []byte("in"), MaxOutput: 8, Within: time.Minute,
	})
}

func TestWhatAProgramWritesIsReturned(t *testing.T) {
	t.Setenv("SECRET", "HUSH")
	out, err := run(t.Context(), `cat; echo "$SECRET" >&2`)
	if err != nil || string(out.Out) != "in" || string(out.Errors) != "\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err = run(t.Context(), `echo why >&2; exit 3`); program.Reason(err, string(out.Errors)) != "exit status 3: why" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err = run(t.Context(), `exit 3`); program.Reason(err, "\n") != "exit status 3" {
		t.Errorf("%v", err)
	}
}

func TestAProgramIsBounded(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := run(ended, "true"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if out, err := run(t.Context(), "yes"); !errors.Is(err, program.ErrTooMuch) || string(out.Out) != "y\ny\ny\ny\n" {
		t.Errorf("too much: %q, %v", out.Out, err)
	}
	p := program.Program{Args: []string{"/bin/sleep", "60"}, Within: 50 * time.Millisecond}
	if _, err := program.Run(t.Context(), p); !errors.Is(err, program.ErrTooSlow) {
		t.Errorf("too slow: %v", err)
	}
	var start *program.StartError
	if _, err := program.Run(t.Context(), program.Program{Args: []string{"no-such-program"}}); !errors.As(err, &start) ||
		!errors.Is(err, exec.ErrNotFound) {
		t.Errorf("not there: %v", err)
	}
}

// missing skips the test, or fails it if the environment says SKANDHA_REQUIRE=all.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		t.Fatal("NOT TESTED: " + what)
	}
	t.Skip("NOT TESTED: " + what)
}

// alive reports whether a process holds the lock.
func alive(t *testing.T, lock string) bool {
	t.Helper()
	err := exec.Command("flock", "-n", lock, "true").Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return err != nil
}

func TestNothingIsLeftRunning(t *testing.T) {
	if _, err := exec.LookPath("flock"); err != nil {
		missing(t, "flock is not installed (Debian: apt install util-linux)")
	}
	adopts := program.Adopt()
	t.Log("adopting:", adopts)
	for name, c := range map[string]struct {
		line  string // LOCK is held by what is left
		apart bool   // in another session
		want  error
	}{
		"a job":                  {`flock LOCK sleep 600 >&- 2>&- & until test -e LOCK; do :; done`, false, nil},
		"a session":              {`setsid flock LOCK sleep 600 >&- 2>&- & until test -e LOCK; do :; done`, true, nil},
		"a session's session":    {`(setsid sh -c "setsid flock LOCK sleep 600 & wait" >&- 2>&- &); until test -e LOCK; do :; done`, true, nil},
		"without an environment": {`env -i setsid flock LOCK sleep 600 >&- 2>&- & until test -e LOCK; do :; done`, true, nil},
		"one that is ended":      {`setsid flock LOCK sleep 600 >&- 2>&- & wait`, true, context.Canceled},
	} {
		if c.apart && adopts != nil {
			continue
		}
		lock := filepath.Join(t.TempDir(), "lock")
		p := program.Program{Args: []string{"/bin/sh", "-c", strings.ReplaceAll(c.line, "LOCK", lock)}, Env: program.Minimal()}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for c.want != nil && ctx.Err() == nil {
				if _, err := os.Stat(lock); err == nil {
					cancel()
				}
			}
		}()
		_, err := program.Run(ctx, p)
		cancel()
		if _, there := os.Stat(lock); !errors.Is(err, c.want) || there != nil || alive(t, lock) {
			t.Errorf("%s: %v, %v; alive %v", name, err, there, alive(t, lock))
		}
	}
	if adopts != nil {
		missing(t, "sessions apart: "+adopts.Error())
	}
}

// A program that ends leaves those of others alone.
func TestOthersGoOn(t *testing.T) {
	if err := program.Adopt(); err != nil {
		missing(t, err.Error())
	}
	fifo := filepath.Join(t.TempDir(), "go")
	first := make(chan error, 1)
	if out, err := exec.Command("mkfifo", fifo).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	go func() {
		_, err := program.Run(t.Context(), program.Program{
			Args: []string{"/bin/sh", "-c", `(setsid sh -c "read x <` + fifo + `; echo \$x" &) | grep -q on`}, Env: program.Minimal(),
		})
		first <- err
	}()
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits for the reader
	if err == nil {
		_, err = run(t.Context(), "setsid true")
	}
	if err == nil {
		_, err = f.WriteString("on\n")
	}
	if err == nil {
		err = errors.Join(f.Close(), <-first)
	}
	if err != nil {
		t.Errorf("the other program: %v", err)
	}
}
