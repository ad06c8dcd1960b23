package listenertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/emitter"
	"skandha.dev/services/test/natstest"
)

// Subject is a listener under test. Its session is [Ref].
type Subject struct {
	Listener contract.Listener
	// Say sends a text, under an id where the listener accepts ids (else it is ignored),
	// and returns when the listener has confirmed it to the sender. If the listener
	// confirms nothing, it returns once the text is sent.
	Say func(ctx context.Context, text, id string) error
	// Tells: the listener confirms inputs, so Say waits until the input is acknowledged.
	Tells bool
	// TakesIDs: the sender chooses the input's id.
	TakesIDs bool
	// Text is the text of all inputs if the sender cannot choose it.
	Text string
	// Keeps: inputs not acknowledged when it is stopped are emitted again by themselves.
	Keeps bool
}

// Ref is the session of listeners under test.
var Ref = subject.Ref{Agent: "main", Session: "conformance"}

type rig struct {
	Subject
	bus  *journal.Journal
	gate *Gate
}

// Run tests the listeners that newSubject returns, a new one for each test.
func Run(t *testing.T, newSubject func(t *testing.T, b *journal.Journal) Subject) {
	setup := func(t *testing.T) *rig {
		t.Helper()
		b := natstest.Connect(t, natstest.Start(t))
		s := newSubject(t, b)
		e := emitter.New(b.Bus, s.Listener.Name(), &emitter.Stats{}, natstest.Logger(t))
		return &rig{s, b, NewGate(e)}
	}
	tests := []struct {
		name string
		run  func(*testing.T, *rig)
	}{
		{"its name is a writer", testName},
		{"starting does not wait for the bus", testStart},
		{"one message is one input", testInput},
		{"nothing is confirmed before the log has acknowledged", testAcknowledged},
		{"the same id is the same input", testSameID},
		{"stopping waits for what was taken", testStopWaits},
		{"stopping in haste says what was not taken", testStopInHaste},
		{"after stopping nothing is taken", testStopped},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) { c.run(t, setup(t)) })
	}
}

func (r *rig) start(t *testing.T) {
	t.Helper()
	if err := r.Listener.OnStart(natstest.Context(t), r.gate); err != nil {
		t.Fatalf("OnStart: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // in haste
		_ = r.Listener.OnStop(ctx)
	})
}

func (r *rig) text(want string) string {
	if r.Text != "" {
		return r.Text
	}
	return want
}

// saying sends a text in the background; the channel receives the result.
func (r *rig) saying(t *testing.T, text, id string) <-chan error {
	t.Helper()
	said := make(chan error, 1)
	ctx := natstest.Context(t)
	go func() { said <- r.Say(ctx, text, id) }()
	return said
}

func testName(t *testing.T, r *rig) {
	if !subject.Valid(string(r.Listener.Name())) {
		t.Errorf("Name is %q, which is not valid in a subject", r.Listener.Name())
	}
}

func testStart(t *testing.T, r *rig) {
	r.gate.Hold() // as if the bus were away
	started := make(chan error, 1)
	ctx := natstest.Context(t)
	go func() { started <- r.Listener.OnStart(ctx, r.gate) }()
	select {
	case err := <-started:
		if err != nil {
			t.Fatalf("OnStart: %v", err)
		}
	case <-ctx.Done():
		t.Fatal("OnStart waits for the bus")
	}
	if err := r.Listener.OnStart(ctx, r.gate); err == nil {
		t.Error("it was started twice")
	}
	r.gate.Release()
	if err := r.Listener.OnStop(ctx); err != nil {
		t.Errorf("OnStop: %v", err)
	}
}

func testInput(t *testing.T, r *rig) {
	r.start(t)
	if err := r.Say(natstest.Context(t), "hello ünïcode", "one"); err != nil {
		t.Fatalf("saying: %v", err)
	}
	var in []Stored
	natstest.Eventually(t, "the input is in the log", func() bool { in = Log(t, r.bus, Ref); return len(in) > 0 })
	got := in[0]
	if got.Text != r.text("hello ünïcode") || got.Writer != r.Listener.Name() || got.Source == "" || got.ID == "" {
		t.Errorf("the log holds %+v, want the text, the listener's name as writer, a source and an id", got)
	}
	if r.TakesIDs && got.ID != "one" {
		t.Errorf("the id is %q, want the sender's", got.ID)
	}
}

func testAcknowledged(t *testing.T, r *rig) {
	r.gate.Hold()
	r.start(t)
	said := r.saying(t, "hello", "one")
	natstest.Eventually(t, "the input is on its way", func() bool { return len(r.gate.Seen()) > 0 })
	select {
	case err := <-said:
		if r.Tells {
			t.Fatalf("the sender got an answer (%v) before the log acknowledged", err)
		}
	default:
	}
	if in := Log(t, r.bus, Ref); len(in) != 0 {
		t.Fatalf("the log holds %+v", in)
	}
	r.gate.Release()
	if r.Tells {
		if err := <-said; err != nil {
			t.Fatalf("saying: %v", err)
		}
		if in := Log(t, r.bus, Ref); len(in) != 1 {
			t.Fatalf("the input was confirmed to the sender, but the log holds %+v", in)
		}
	}
	natstest.Eventually(t, "the input is in the log", func() bool { return len(Log(t, r.bus, Ref)) > 0 })
}

func testSameID(t *testing.T, r *rig) {
	r.start(t)
	for range 3 {
		if err := r.Say(natstest.Context(t), "again", "same"); err != nil {
			t.Fatalf("saying: %v", err)
		}
	}
	if !r.TakesIDs {
		// Its own ids name one input each.
		natstest.Eventually(t, "inputs", func() bool { return len(r.gate.Took()) >= 2 })
		took := r.gate.Took()
		if took[0].ID == took[1].ID || took[0].Sequence == took[1].Sequence {
			t.Errorf("two inputs are %+v and %+v, want an id and a place each", took[0], took[1])
		}
		return
	}
	natstest.Eventually(t, "all three were emitted", func() bool { return len(r.gate.Took()) == 3 })
	took := r.gate.Took()
	if in := Log(t, r.bus, Ref); len(in) != 1 || took[0] != took[1] || took[1] != took[2] {
		t.Errorf("receipts %+v, log %+v; want one input with one place", took, in)
	}
}

func testStopWaits(t *testing.T, r *rig) {
	r.gate.Hold()
	r.start(t)
	said := r.saying(t, "last words", "last")
	natstest.Eventually(t, "the input is on its way", func() bool { return len(r.gate.Seen()) > 0 })
	stopped := make(chan error, 1)
	ctx := natstest.Context(t)
	go func() { stopped <- r.Listener.OnStop(ctx) }()
	select {
	case err := <-stopped:
		t.Fatalf("OnStop returned (%v) with an input under way", err)
	case <-time.After(20 * time.Millisecond): // not a proof, but a chance to be wrong
	}
	r.gate.Release()
	if err := <-stopped; err != nil {
		t.Fatalf("OnStop: %v", err)
	}
	in := Log(t, r.bus, Ref)
	if len(in) != 1 || in[0].Text != r.text("last words") {
		t.Errorf("the log holds %+v, want what was taken", in)
	}
	if err := <-said; err != nil {
		t.Errorf("the sender got %v", err)
	}
	if err := r.Listener.OnStop(ctx); err != nil {
		t.Errorf("OnStop again: %v", err)
	}
}

func testStopInHaste(t *testing.T, r *rig) {
	r.gate.Hold()
	r.start(t)
	said := r.saying(t, "never heard", "never")
	natstest.Eventually(t, "the input is on its way", func() bool { return len(r.gate.Seen()) > 0 })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := r.Listener.OnStop(ctx)
	if !errors.Is(err, contract.ErrNotTaken) || !strings.Contains(err.Error(), string(r.Listener.Name())) {
		t.Errorf("OnStop: %v; want ErrNotTaken with the listener's name", err)
	}
	if err := <-said; r.Tells && !r.Keeps && err == nil {
		t.Error("the input was confirmed to the sender")
	}
	if in := Log(t, r.bus, Ref); len(in) != 0 {
		t.Errorf("the log holds %+v", in)
	}
}

func testStopped(t *testing.T, r *rig) {
	r.start(t)
	if err := r.Listener.OnStop(natstest.Context(t)); err != nil {
		t.Fatalf("OnStop: %v", err)
	}
	before := len(r.gate.Seen())
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	err := r.Say(ctx, "too late", "late")
	if r.Tells && err == nil {
		t.Error("the input was confirmed to the sender")
	}
	if seen := r.gate.Seen(); len(seen) != before ||
		slices.ContainsFunc(seen, func(in contract.Input) bool { return in.ID == "late" }) {
		t.Errorf("%d inputs were emitted after it was stopped", len(seen)-before)
	}
}
