package emitter_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/emitter"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

var ref = subject.Ref{Agent: "main", Session: "s"}

func hello() contract.Input {
	return contract.Input{Agent: "main", Session: "s", Text: "hello", ID: "one", Source: "test"}
}

func TestAnInputIsStoredWhenItsReceiptIsThere(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	e := emitter.New(b.Bus, "ear", &emitter.Stats{}, natstest.Logger(t))
	r, err := e.EmitInput(natstest.Context(t), hello())
	if err != nil {
		t.Fatal(err)
	}
	in := listenertest.Log(t, b, ref)
	if len(in) != 1 || in[0].Sequence != r.Sequence || in[0].ID != "one" || r.ID != "one" || in[0].Writer != "ear" ||
		in[0].Source != "test" {
		t.Errorf("the receipt is %+v, the log holds %+v", r, in)
	}
}

func TestTheSameInputAtOnceIsOne(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	e := emitter.New(b.Bus, "ear", &emitter.Stats{}, natstest.Logger(t))
	var g sync.WaitGroup
	receipts := make([]contract.Receipt, 20)
	for i := range receipts {
		g.Go(func() {
			var err error
			if receipts[i], err = e.EmitInput(natstest.Context(t), hello()); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
	for _, r := range receipts {
		if r != receipts[0] {
			t.Errorf("receipts %+v and %+v", receipts[0], r)
		}
	}
	if in := listenertest.Log(t, b, ref); len(in) != 1 {
		t.Errorf("the log holds %+v", in)
	}
}

// Within the log's window, the id with another text is another message, which the
// session ends as a duplicate; nothing is swallowed.
func TestAnIDWithAnotherTextSwallowsNothing(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	e := emitter.New(b.Bus, "ear", &emitter.Stats{}, natstest.Logger(t))
	other := hello()
	other.Text = "something else"
	for _, in := range []contract.Input{hello(), other} {
		if _, err := e.EmitInput(natstest.Context(t), in); err != nil {
			t.Fatal(err)
		}
	}
	if in := listenertest.Log(t, b, ref); len(in) != 2 || in[1].ID != "one" {
		t.Errorf("the log holds %+v", in)
	}
}

func TestInputsThatAreWrongNameTheField(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	stats := &emitter.Stats{}
	e := emitter.New(b.Bus, "ear", stats, natstest.Logger(t))
	cases := map[string]func(*contract.Input){
		"agent":         func(in *contract.Input) { in.Agent = "a.b" },
		"session":       func(in *contract.Input) { in.Session = "" },
		"text is empty": func(in *contract.Input) { in.Text = "" },
		"text has":      func(in *contract.Input) { in.Text = strings.Repeat("x", event.MaxTextBytes+1) },
		"text is not":   func(in *contract.Input) { in.Text = "\xff" },
		"id has 129":    func(in *contract.Input) { in.ID = strings.Repeat("x", 129) },
		"id has the":    func(in *contract.Input) { in.ID = "a\r\nNats-Expected-Stream: X" },
		"id is not":     func(in *contract.Input) { in.ID = "\xff" },
		"mode":          func(in *contract.Input) { in.Mode = "later" },
	}
	for want, change := range cases {
		in := hello()
		change(&in)
		if _, err := e.EmitInput(natstest.Context(t), in); !errors.Is(err, contract.ErrInvalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", in, err, want)
		}
	}
	if got := stats.Invalid.Load(); got != int64(len(cases)) || len(listenertest.Log(t, b, ref)) != 0 {
		t.Errorf("%d are counted, the log holds %v", got, listenertest.Log(t, b, ref))
	}
}

// An input that cannot be stored now may be stored later: it is not refused.
func TestALogThatIsFullHasNoRoom(t *testing.T) {
	b := natstest.Dial(t, bus.Config{InProcess: natstest.Start(t)})
	if err := b.EnsureStreams(natstest.Context(t), journal.StreamsConfig{MaxBytes: 1000}); err != nil {
		t.Fatal(err)
	}
	e := emitter.New(b.Bus, "ear", &emitter.Stats{}, natstest.Logger(t))
	in := hello()
	in.Text = strings.Repeat("x", 2000)
	if _, err := e.EmitInput(natstest.Context(t), in); !errors.Is(err, contract.ErrNoRoom) ||
		errors.Is(err, contract.ErrRefused) {
		t.Errorf("EmitInput: %v; want ErrNoRoom", err)
	}
}

func TestWithoutALogItIsUnavailableWhenTheTimeIsOver(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	stats := &emitter.Stats{}
	e := emitter.New(b.Bus, "ear", stats, natstest.Logger(t))
	p.Kill()
	ctx, cancel := context.WithCancel(natstest.Context(t))
	emitted := make(chan error, 1)
	go func() { _, err := e.EmitInput(ctx, hello()); emitted <- err }()
	select {
	case err := <-emitted:
		t.Fatalf("EmitInput returned %v with time left", err)
	default:
	}
	cancel()
	if err := <-emitted; !errors.Is(err, contract.ErrUnavailable) || stats.Unavailable.Load() != 1 {
		t.Errorf("EmitInput: %v", err)
	}
	p.Restart()
	if _, err := e.EmitInput(natstest.Context(t), hello()); err != nil {
		t.Error(err)
	}
	if in := listenertest.Log(t, b, ref); len(in) != 1 {
		t.Errorf("the log holds %+v", in)
	}
}
