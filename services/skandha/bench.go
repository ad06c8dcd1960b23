package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// benchCmd measures this machine with skandha-bench, a separate command: what measures
// the system is not part of what runs it.
type benchCmd struct {
	Args []string `arg:"" optional:"" name:"option" help:"As skandha-bench takes them: --quick, --only B4,B6, --json; or peers: beside other engines (make peers)."`
}

// Run implements the command.
func (b *benchCmd) Run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(self), "skandha-bench")
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("skandha-bench"); err != nil {
			return fmt.Errorf("skandha-bench is neither beside %s nor in PATH: build it with `make build` or `make bench`", self)
		}
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	args := append([]string{"--skandha", self}, b.Args...)
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // our own program
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() > 0 {
		return exit(ended.ExitCode()) // it has said why
	}
	return err
}
