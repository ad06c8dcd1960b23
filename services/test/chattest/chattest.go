// Package chattest has what the tests of chat gateways share: the end that inputs and answers go
// to, and messages to deliver.
package chattest

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/test/natstest"
)

// Desk is an emitter and an answerer that keeps what it gets, once for each id.
type Desk struct {
	mu      sync.Mutex
	inputs  []contract.Input
	answers []event.Confirmation
	fails   error
	failed  int
}

// Fail makes everything fail with an error from now on; nil: nothing.
func (d *Desk) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = err
}

// EmitInput implements [contract.Emitter].
func (d *Desk) EmitInput(_ context.Context, in contract.Input) (contract.Receipt, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fails != nil {
		d.failed++
		return contract.Receipt{}, d.fails
	}
	if err := in.Check(); err != nil {
		return contract.Receipt{}, err
	}
	for i, old := range d.inputs {
		if old.ID == in.ID && old.Session == in.Session {
			return contract.Receipt{ID: in.ID, Sequence: uint64(i + 1)}, nil
		}
	}
	d.inputs = append(d.inputs, in)
	return contract.Receipt{ID: in.ID, Sequence: uint64(len(d.inputs))}, nil
}

// Confirm implements [contract.Answerer].
func (d *Desk) Confirm(_ context.Context, _ subject.Ref, a event.Confirmation) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fails == nil {
		d.answers = append(d.answers, a)
	}
	return uint64(len(d.answers)), d.fails
}

// Inputs returns the inputs, each id once.
func (d *Desk) Inputs() []contract.Input {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]contract.Input(nil), d.inputs...)
}

// Failed returns how many inputs have failed.
func (d *Desk) Failed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// Answers returns the answers to requests for approval.
func (d *Desk) Answers() []event.Confirmation {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]event.Confirmation(nil), d.answers...)
}

// Await returns the inputs once there are n.
func (d *Desk) Await(t testing.TB, n int) []contract.Input {
	t.Helper()
	natstest.Eventually(t, "inputs", func() bool { return len(d.Inputs()) >= n })
	return d.Inputs()
}

// Bus returns a bus with its streams.
func Bus(t testing.TB) *journal.Journal {
	t.Helper()
	b := natstest.Connect(t, natstest.Start(t))
	natstest.EnsureStreams(t, b)
	return b
}

// Deps are those of a gateway for which every request for approval waits.
func Deps(t testing.TB, b *journal.Journal) chat.Deps {
	return chat.Deps{
		Bus: b, Logger: natstest.Logger(t),
		Progress: func(context.Context, subject.Ref, string) (client.Progress, error) {
			return client.Progress{Waits: true}, nil
		},
	}
}

// Run starts a gateway, and stops it when the test ends.
func Run(t testing.TB, g contract.Gateway, e contract.Emitter) {
	t.Helper()
	if err := g.OnStart(natstest.Context(t), e); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // in haste
		_ = g.OnStop(ctx)
	})
}

// To is a message to a place. It may begin.
func To(to, text string) contract.Outgoing {
	return contract.Outgoing{
		Agent: "main", Session: "s", Key: subject.Encode(strings.ToLower(to + text)), Begin: func(context.Context) error { return nil },
		Delivery: tool.Delivery{Kind: tool.KindNotice, To: to, Text: text},
	}
}

// Answer is the answer to an input.
func Answer(in contract.Input, text string) contract.Outgoing {
	m := To(in.ReplyTo, text)
	m.Agent, m.Session, m.Kind, m.InReplyTo = in.Agent, in.Session, tool.KindAnswer, in.ID
	return m
}

// Approval is a request for approval of the call.
func Approval(to, call string) contract.Outgoing {
	m := To(to, call)
	m.Kind = tool.KindApproval
	m.Approval = &tool.Approval{
		ConfirmationID: call, Hash: strings.Repeat("a", 64), Tool: "file_system:delete",
		Args: json.RawMessage(`{"path":"a.txt"}`), ExpiresAt: time.Now().Add(time.Hour), Warning: "it cannot be undone",
	}
	return m
}
