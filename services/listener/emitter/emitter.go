// Package emitter stores inputs on the bus, for listeners.
//
// Produced: agent.<agent>.<session>.sense.input.<writer>, each as one message of
// the log with the body {text, id, source, mode}. Consumed: nothing.
//
// An input is stored under its id (Nats-Msg-Id), and the id is in its body, too. If
// an acknowledgement is lost, the input is sent again under the same id until it is
// acknowledged or the context ends, so that it is stored exactly once.
// Every input has an id: one that has none gets a random one, which the
// receipt names.
package emitter

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/submit"
	"skandha.dev/services/listener/contract"
)

// Stats counts the outcomes of inputs.
type Stats struct {
	Taken       atomic.Int64 // acknowledged
	Invalid     atomic.Int64 // the input itself is wrong
	Refused     atomic.Int64 // by the bus
	Unavailable atomic.Int64 // not acknowledged in time
	Overloaded  atomic.Int64 // because too many are waiting
}

// Counters returns the counts by metric name.
func (s *Stats) Counters() map[string]int64 {
	return map[string]int64{
		"listener_inputs": s.Taken.Load(), "listener_inputs_invalid": s.Invalid.Load(),
		"listener_inputs_refused": s.Refused.Load(), "listener_inputs_unavailable": s.Unavailable.Load(),
		"listener_inputs_overloaded": s.Overloaded.Load(),
	}
}

// Emitter stores the inputs of one listener.
type Emitter struct {
	sender submit.Sender
	stats  *Stats
	log    *slog.Logger
}

var (
	_ contract.Emitter  = (*Emitter)(nil)
	_ contract.Answerer = (*Emitter)(nil)
)

// New returns the emitter of the listener with the writer's name.
func New(b *bus.Bus, w subject.Writer, stats *Stats, log *slog.Logger) *Emitter {
	return &Emitter{sender: submit.Sender{Bus: b, Writer: w}, stats: stats, log: log.With("listener", string(w))}
}

// EmitInput implements [contract.Emitter].
func (e *Emitter) EmitInput(ctx context.Context, in contract.Input) (contract.Receipt, error) {
	if in.ID == "" {
		in.ID = nuid.Next()
	}
	if err := in.Check(); err != nil {
		e.stats.Invalid.Add(1)
		return contract.Receipt{}, err
	}
	began := time.Now()
	ref := subject.Ref{Agent: in.Agent, Session: in.Session}
	seq, err := e.sender.Say(ctx, ref, in.Event())
	if err != nil {
		err = e.failed(err)
		e.log.Warn("input was not accepted", "ref", ref.String(), "id", in.ID, "after", time.Since(began), "error", err)
		return contract.Receipt{}, err
	}
	e.stats.Taken.Add(1)
	e.log.Debug("input accepted", "ref", ref.String(), "id", in.ID, "sequence", seq, "took", time.Since(began))
	return contract.Receipt{ID: in.ID, Sequence: seq}, nil
}

// Confirm implements [contract.Answerer].
func (e *Emitter) Confirm(ctx context.Context, ref subject.Ref, a event.Confirmation) (uint64, error) {
	if err := a.Check(); err != nil {
		return 0, fmt.Errorf("%w: %w", contract.ErrInvalid, err)
	}
	seq, err := e.sender.Answer(ctx, ref, a)
	if err != nil {
		err = e.failed(err)
		e.log.Warn("an answer to a confirmation request was not accepted", "ref", ref.String(), "confirmation",
			a.ConfirmationID, "error", err)
		return 0, err
	}
	return seq, nil
}

// failed counts an error of the bus and maps it to an error of package contract.
func (e *Emitter) failed(err error) error {
	kind, count := contract.ErrUnavailable, &e.stats.Unavailable
	switch why, _ := submit.Why(err); why {
	case submit.Overloaded:
		kind, count = contract.ErrOverloaded, &e.stats.Overloaded
	case submit.Full:
		kind = contract.ErrNoRoom
	case submit.TooLarge, submit.Invalid:
		kind, count = contract.ErrInvalid, &e.stats.Invalid
	case submit.Refused, submit.Denied:
		kind, count = contract.ErrRefused, &e.stats.Refused
	}
	count.Add(1)
	return fmt.Errorf("%w: %w", kind, err)
}
