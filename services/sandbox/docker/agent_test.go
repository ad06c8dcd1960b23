package docker

import (
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
)

// This tests the agent itself, not a program of these tests.
func TestAgentRunsInASandbox(t *testing.T) {
	r := newRig(t)
	b, err := r.Start(t.Context(), driver.Spec{Name: strings.ToLower(rand.Text()), Args: agent.Args()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Destroy(t.Context()) })
	c, err := agent.Open(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	exit, err := c.Run(t.Context(), agent.Run{Kind: agent.Python, Code: "print('hello')\n6*7", Timeout: patience})
	if err != nil || exit.Code != 0 || exit.Stdout.Text != "hello\n" || string(exit.Result) != "42" {
		t.Errorf("it ended with %+v, %v", exit, err)
	}
	// It ends with the service's connection, even while it runs something.
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, err := c.Run(t.Context(), agent.Run{Kind: agent.Python, Code: "import time; time.sleep(1e6)", Timeout: time.Hour})
		if !errors.Is(err, agent.ErrBroken) && !errors.Is(err, io.EOF) {
			t.Errorf("the run ended with %v", err)
		}
	}()
	if err := b.(*sandbox).conn.Close(); err != nil {
		t.Error(err)
	}
	if err := awaitEnd(t, b); err == nil {
		t.Error("it has ended without a reason")
	}
	<-over
	r.awaitLeft(t, 1)
}
