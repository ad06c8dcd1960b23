package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Output runs a command that must succeed, and returns its output.
func Output(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// Await polls until the condition holds.
func Await(t testing.TB, patience time.Duration, condition func(context.Context) error) {
	t.Helper()
	if err := poll(t.Context(), patience, condition); err != nil {
		t.Fatal(err)
	}
}

// poll returns when the condition holds, the engine has ended or patience has passed.
func poll(ctx context.Context, patience time.Duration, condition func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		err := condition(ctx)
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", patience, err)
		case <-again.C:
		}
	}
}
