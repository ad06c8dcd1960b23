package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// server is a child of this program.
type server struct {
	cmd  *exec.Cmd
	log  *os.File
	done chan error
}

// serve starts a server; its output goes to a file.
func serve(log string, cmd *exec.Cmd) (*server, error) {
	f, err := os.Create(log) //nolint:gosec // in our directory
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd, log: f, done: make(chan error, 1)}
	go func() { s.done <- cmd.Wait() }()
	return s, nil
}

// await waits until the server passes a check.
func (s *server) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case ended := <-s.done:
			s.done <- ended
			return fmt.Errorf("%s has ended (%w): %s", s.cmd.Path, ended, s.tail())
		case <-ctx.Done():
			s.stop(syscall.SIGTERM)
			return fmt.Errorf("%s is not ready: %w: %s", s.cmd.Path, err, s.tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *server) tail() string {
	b, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err.Error()
	}
	b = bytes.TrimSpace(b)
	return string(b[max(0, len(b)-400):])
}

// stop ends the server, at first by a signal.
func (s *server) stop(sig os.Signal) {
	_ = s.cmd.Process.Signal(sig) // it may be gone
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.done
	}
	_ = s.log.Close()
}

// ports asks the kernel for free ports.
func ports(ctx context.Context, n int) ([]int, error) {
	out := make([]int, n)
	for i := range out {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // only now, so that no port comes twice
		out[i] = l.Addr().(*net.TCPAddr).Port
	}
	return out, nil
}

// accepts reports whether something listens.
func accepts(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
}

// release is the version that a command prints, from the first word on that begins with a digit.
func release(ctx context.Context, argv ...string) string {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output() //nolint:gosec // of a server that was found
	if err != nil {
		return "unknown"
	}
	words := strings.Fields(string(out))
	first := max(0, slices.IndexFunc(words, func(w string) bool { return w[0] >= '0' && w[0] <= '9' }))
	return strings.Join(words[first:], " ")
}
