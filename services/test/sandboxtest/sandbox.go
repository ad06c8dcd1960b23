package sandboxtest

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
)

//go:embed py/prelude.py
var prelude string

// sandbox is a sandbox of the suite, with its agent.
type sandbox struct {
	*agent.Conn

	raw    driver.Sandbox
	s      *suite
	limits driver.Limits
	ns     namespace // its PID namespace, as the host sees it
	idle   int       // number of processes when no call runs
	secret string    // what the neighbour must still know
}

// sandboxOptions are a probe's requirements for its sandbox.
type sandboxOptions struct {
	limits func(*driver.Limits)
	set    string
}

// smallLimits returns limits that are soon exhausted.
func smallLimits() driver.Limits {
	l := driver.DefaultLimits()
	l.Memory, l.PIDs, l.OpenFiles = 256<<20, 64, 256
	l.Workspace, l.WorkspaceFiles, l.Tmp = 16<<20, 500, 8<<20
	return l
}

// NewName returns a name that is unique on this host.
func NewName(kind string) string { return "sbt-" + kind + "-" + token()[:12] }

func token() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// openSandbox starts a sandbox and its agent.
func openSandbox(ctx context.Context, d driver.Driver, spec driver.Spec) (driver.Sandbox, *agent.Conn, error) {
	spec.Args = agent.Args()
	b, err := d.Start(ctx, spec)
	if err != nil {
		return nil, nil, fmt.Errorf("starting sandbox %s: %w", spec.Name, err)
	}
	c, err := agent.Open(ctx, b)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("opening the agent of sandbox %s: %w", spec.Name, err), b.Err(),
			b.Destroy(context.WithoutCancel(ctx)))
	}
	return b, c, nil
}

// start starts a sandbox that is destroyed at the end of the test at the latest.
func (s *suite) start(t testing.TB, o sandboxOptions) *sandbox { return s.startWith(t, s.driver, o) }

func (s *suite) startWith(t testing.TB, d driver.Driver, o sandboxOptions) *sandbox {
	t.Helper()
	limits := smallLimits()
	if o.limits != nil {
		o.limits(&limits)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	raw, conn, err := openSandbox(ctx, d, driver.Spec{Name: NewName("b"), Limits: limits, Set: o.set})
	if err != nil {
		t.Fatal(err)
	}
	s.sandboxes.Add(1)
	b := &sandbox{raw: raw, Conn: conn, s: s, limits: limits}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Destroy(ctx); err != nil {
			t.Errorf("destroying sandbox %s: %v", b.Name(), err)
		}
	})
	var inside string
	if err := b.eval(t.Context(), &inside, `os.readlink("/proc/self/ns/pid")`); err != nil {
		t.Fatalf("reading the sandbox's PID namespace: %v", err)
	}
	if b.ns, err = findNamespace(inside); err != nil {
		t.Fatalf("finding the sandbox's processes on the host: %v", err)
	}
	t.Cleanup(b.ns.close)
	if b.settle(); b.idle == 0 {
		t.Fatalf("no processes of sandbox %s are visible, so their absence would prove nothing", b.Name())
	}
	return b
}

// settle counts the processes of an idle sandbox: the agent, and the child that it keeps
// for the next call, which exists soon after each call.
func (b *sandbox) settle() {
	until(patience, func() []string {
		if b.idle = len(b.ns.processes()); b.idle < 2 {
			return []string{"no spare child yet"}
		}
		return nil
	})
}

// Name returns the sandbox's name.
func (b *sandbox) Name() string { return b.raw.Name() }

// Destroy destroys the sandbox.
func (b *sandbox) Destroy(ctx context.Context) error { return b.raw.Destroy(ctx) }

// python runs code after the prelude.
func (b *sandbox) python(ctx context.Context, code string) (agent.Exit, error) {
	return b.run(ctx, agent.Run{Kind: agent.Python, Code: prelude + code})
}

// run runs r within the suite's patience.
func (b *sandbox) run(ctx context.Context, r agent.Run) (agent.Exit, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if r.Timeout == 0 {
		r.Timeout = patience / 2
	}
	return b.Run(ctx, r)
}

// eval decodes the code's last expression into v.
func (b *sandbox) eval(ctx context.Context, v any, code string) error {
	exit, err := b.python(ctx, code)
	if err != nil {
		return err
	}
	return decode(exit, v)
}

func decode(exit agent.Exit, v any) error {
	if exit.Code != 0 || exit.Result == nil {
		return fmt.Errorf("the code ended with %d %s, timed out: %v, result %s%s, stderr: %s", exit.Code, exit.Signal,
			exit.TimedOut, exit.Result, exit.Repr, tail(exit.Stderr.Text))
	}
	if err := json.Unmarshal(exit.Result, v); err != nil {
		return fmt.Errorf("decoding the result %s: %w", exit.Result, err)
	}
	return nil
}

func tail(s string) string { return s[max(0, len(s)-600):] }

// answers reports why the sandbox does not answer.
func (b *sandbox) answers(ctx context.Context) error {
	var n int
	if err := b.eval(ctx, &n, "6 * 7"); err != nil {
		return err
	}
	if n != 42 {
		return fmt.Errorf("it computes 6 * 7 as %d", n)
	}
	return nil
}

// answersOrIsBroken checks what must be true of a sandbox after a probe. It reports whether
// the sandbox can be used again.
func (b *sandbox) answersOrIsBroken(ctx context.Context) (usable bool, err error) {
	err = b.answers(ctx)
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, agent.ErrBroken) {
		return false, fmt.Errorf("the sandbox neither answers nor is it broken: %w", err)
	}
	if text := strings.TrimSpace(strings.TrimPrefix(err.Error(), agent.ErrBroken.Error())); text == "" {
		return false, errors.New("the sandbox is broken without a reason")
	}
	return false, nil
}

// remember gives the neighbour a secret.
func (b *sandbox) remember(t *testing.T) {
	t.Helper()
	b.secret = token()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := b.Write(ctx, "secret.txt", []byte(b.secret), agent.Replace); err != nil {
		t.Fatalf("giving the neighbour a file: %v", err)
	}
}

// knows checks that the neighbour runs code and still has its file.
func (b *sandbox) knows(ctx context.Context) error {
	var got struct {
		Text  string
		Files []string
	}
	if err := b.eval(ctx, &got,
		`{"Text": open("secret.txt").read(), "Files": [n for n in os.listdir(".") if n != "out"]}`); err != nil {
		return fmt.Errorf("the neighbour does not answer: %w", err)
	}
	if got.Text != b.secret || len(got.Files) != 1 {
		return fmt.Errorf("the neighbour's files are %q, secret.txt has %q, want only %q", got.Files, got.Text, b.secret)
	}
	return nil
}

// end destroys the sandbox and reports what is left of it.
func (b *sandbox) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.Destroy(ctx); err != nil {
		return fmt.Errorf("destroying it: %w", err)
	}
	return b.isGone()
}

// isGone reports what is left of a destroyed sandbox.
func (b *sandbox) isGone() error {
	select {
	case <-b.raw.Done():
	default:
		return errors.New("it was destroyed, and Done is not closed")
	}
	if b.raw.Err() == nil {
		return errors.New("it was destroyed, and Err is nil")
	}
	left := until(gone, func() []string { return b.leftovers(b.ns) })
	if len(left) > 0 {
		return fmt.Errorf("%s after Destroy these are left: %s", gone, strings.Join(left, "; "))
	}
	return nil
}

// leftovers returns what the host has of the sandbox.
func (b *sandbox) leftovers(ns namespace) []string {
	out := traces(b.Name())
	for _, p := range ns.processes() {
		out = append(out, "process "+p.String())
	}
	if b.s.Leftovers != nil {
		out = append(out, b.s.Leftovers(b.s.t, b.Name())...)
	}
	return out
}

// until polls until nothing is found any more, for at most that long.
func until(limit time.Duration, find func() []string) []string {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); ; <-tick.C {
		found := find()
		if len(found) == 0 || time.Now().After(end) {
			return found
		}
	}
}
