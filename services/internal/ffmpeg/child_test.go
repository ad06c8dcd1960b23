package ffmpeg_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skandha.dev/services/internal/ffmpeg"
	"skandha.dev/services/test/ffmpegtest"
	"skandha.dev/services/test/natstest"
)

// The test's binary is also the parent that a test kills.
const asParent = "SKANDHA_TEST_AS_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(asParent) != "" {
		err := ffmpeg.Run(context.Background(), sh(`echo $$; exec sleep 1000`), func(r io.Reader) error {
			_, err := io.Copy(os.Stdout, r)
			return err
		})
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func sh(script string) ffmpeg.Child { return ffmpeg.Child{Args: []string{"/bin/sh", "-c", script}} }

func drain(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

func TestAChildIsReadToItsEnd(t *testing.T) {
	var got []byte
	err := ffmpeg.Run(natstest.Context(t), ffmpeg.Child{Args: []string{"/bin/cat"}, Input: []byte("hello")},
		func(r io.Reader) (err error) { got, err = io.ReadAll(r); return err })
	if !errors.Is(err, ffmpeg.ErrEnded) || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWhyAChildEndedIsSaid(t *testing.T) {
	for script, want := range map[string]string{
		"echo first >&2; echo 'no such stream' >&2; exit 3": "/bin/sh ended: first; no such stream",
		"exit 3": "exit status 3", "kill -9 $$": "killed",
		"echo 'at http://u:hush@h/' >&2; exit 1": "at http://u:…@h/",
	} {
		c := sh(script)
		c.Secrets = []string{"hush"}
		if err := ffmpeg.Run(natstest.Context(t), c, drain); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
	err := ffmpeg.Run(natstest.Context(t), ffmpeg.Child{Args: []string{"no-such-program"}}, drain)
	if err == nil || !strings.Contains(err.Error(), "apt install no-such-program") {
		t.Errorf("%v", err)
	}
	long := sh("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1")
	if err := ffmpeg.Run(natstest.Context(t), long, drain); err == nil || len(err.Error()) > 400 {
		t.Errorf("%d bytes: %.100v", len(err.Error()), err)
	}
}

func TestAChildThatSaysNothingIsKilled(t *testing.T) {
	c := sh("echo $$; exec sleep 1000")
	c.Stall = 100 * time.Millisecond
	var pid int
	err := ffmpeg.Run(natstest.Context(t), c, func(r io.Reader) error {
		line, err := bufio.NewReader(r).ReadString('\n')
		if err != nil {
			return err
		}
		if pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
			return err
		}
		return drain(r)
	})
	if !errors.Is(err, ffmpeg.ErrStalled) || ffmpegtest.Alive(pid) {
		t.Errorf("%v, and child %d lives: %t", err, pid, ffmpegtest.Alive(pid))
	}
}

// A child may have started others, and stopped itself: they are killed with it.
func TestAChildIsKilledWithItsGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(natstest.Context(t))
	var pids []int
	err := ffmpeg.Run(ctx, sh("sleep 1000 & echo $$ $!; kill -STOP $$"), func(r io.Reader) error {
		line, err := bufio.NewReader(r).ReadString('\n')
		for _, f := range strings.Fields(line) {
			pid, _ := strconv.Atoi(f)
			pids = append(pids, pid)
		}
		cancel()
		return errors.Join(err, drain(r))
	})
	if !errors.Is(err, context.Canceled) || len(pids) != 2 {
		t.Fatalf("%v, %v", err, pids)
	}
	natstest.Eventually(t, "both are gone", func() bool { return !ffmpegtest.Alive(pids[0]) && !ffmpegtest.Alive(pids[1]) })
}

func TestAReaderThatRefusesEndsTheChild(t *testing.T) {
	garbage := errors.New("garbage")
	err := ffmpeg.Run(natstest.Context(t), sh("exec cat /dev/zero"), func(r io.Reader) error { return garbage })
	if !errors.Is(err, garbage) {
		t.Error(err)
	}
}

func TestAChildHasNoSecretsOfItsParent(t *testing.T) {
	t.Setenv("SKANDHA_TEST_SECRET", "hush")
	var got []byte
	_ = ffmpeg.Run(natstest.Context(t), sh("env"), func(r io.Reader) (err error) { got, err = io.ReadAll(r); return err })
	if strings.Contains(string(got), "hush") || !strings.Contains(string(got), "PATH=") {
		t.Errorf("%s", got)
	}
}

func TestNoChildSurvivesAParentThatIsKilled(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), asParent+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || !ffmpegtest.Alive(pid) {
		t.Fatalf("child %d: %v", pid, err)
	}
	// Even one that is stopped.
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	natstest.Eventually(t, "the child is gone", func() bool { return !ffmpegtest.Alive(pid) })
}

func TestThePausesGrow(t *testing.T) {
	var b ffmpeg.Backoff
	var got []time.Duration
	for range 8 {
		got = append(got, b.Next(0))
	}
	if got[0] != time.Second || got[1] != 2*time.Second || got[7] != time.Minute {
		t.Errorf("%v", got)
	}
	if again := b.Next(2 * time.Minute); again != time.Second {
		t.Errorf("%s after a long run", again)
	}
}
