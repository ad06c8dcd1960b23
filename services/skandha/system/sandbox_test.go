package system_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/sandbox/selection"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
)

// canIsolate skips a test where the driver does not work.
func canIsolate(t *testing.T, flags selection.Flags) {
	t.Helper()
	d, _, err := flags.Make("test", natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }() // it has started nothing
	_, err = d.Report(natstest.Context(t))
	switch {
	case errors.Is(err, driver.ErrUnavailable) && os.Getenv("SKANDHA_REQUIRE") != "all":
		t.Skipf("SKIPPED: %v", err)
	case err != nil:
		t.Fatal(err)
	}
}

// openDir returns a directory that is visible to the users that root's sandboxes run as.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "skandha-sandbox-")
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// person talks to a session.
type person struct {
	t     *testing.T
	c     *client.Client
	ref   subject.Ref
	items <-chan follow.Item
}

func (p *person) await(seq uint64, err error) event.Recorded {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
	ctx := natstest.Context(p.t)
	for {
		select {
		case i, ok := <-p.items:
			if !ok {
				p.t.Fatal("the session cannot be followed any more")
			}
			var r event.Recorded
			if i.Event.Type == event.TypeTurnFailed {
				p.t.Fatalf("the turn failed: %s", i.Event.Data)
			}
			if i.Event.DataAs(&r) == nil && r.Sequence == seq {
				return r
			}
		case <-ctx.Done():
			p.t.Fatal("no end of the turn")
		}
	}
}

func (p *person) say(text string) event.Recorded {
	p.t.Helper()
	return p.await(p.c.Say(natstest.Context(p.t), p.ref, event.Input{Text: text}))
}

// The promise of the issue, by offline rules: what Python has written is there in the
// next turn, and gone after a reset.
func TestWhatPythonHasWrittenIsThereInTheNextTurn(t *testing.T) {
	flags := selection.Flags{Driver: selection.Bwrap, Dir: openDir(t)}
	canIsolate(t, flags)
	s, err := system.Start(natstest.Context(t), system.Config{
		Data: t.TempDir(), Sync: "relaxed", Provider: "offline", Sandbox: &system.Sandbox{Flags: flags},
		Log: natstest.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	b := natstest.Join(t, s, "person")
	c, err := client.New(b, "ada", natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &person{t: t, c: c, ref: subject.Ref{Agent: "main", Session: "s"}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if p.items, err = c.Follow(ctx, p.ref); err != nil {
		t.Fatal(err)
	}
	if r := p.say("compute the first 20 primes with Python and save them to primes.txt"); !strings.Contains(r.Answer,
		"2 3 5 7 11 13 17 19 23 29 31 37 41 43 47 53 59 61 67 71") {
		t.Errorf("got %s", r.Answer)
	}
	if r := p.say("what is in primes.txt?"); !strings.Contains(r.Answer, "2 3 5 7 11") ||
		!strings.Contains(r.Answer, "67 71") {
		t.Errorf("got %s", r.Answer)
	}
	p.await(c.Command(natstest.Context(t), p.ref, "reset"))
	if r := p.say("what is in primes.txt?"); strings.Contains(r.Answer, "67 71") ||
		strings.Contains(r.Answer, "new sandbox") {
		t.Errorf("after a reset: %s", r.Answer)
	}
	var st coreapi.Status
	if err := c.Ask(natstest.Context(t), coreapi.VerbStatus, nil, &st); err != nil {
		t.Fatal(err)
	}
	var services []string
	for _, e := range st.Executors {
		services = append(services, e.Service)
	}
	if !strings.Contains(strings.Join(services, " "), "sandbox") {
		t.Errorf("the executors are %q", services)
	}
}
