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
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
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
	bus    *journal.Journal
	writer subject.Writer
	stats  *Stats
	log    *slog.Logger
}

var _ contract.Emitter = (*Emitter)(nil)

// New returns the emitter of the listener with the writer's name.
func New(b *journal.Journal, w subject.Writer, stats *Stats, log *slog.Logger) *Emitter {
	return &Emitter{bus: b, writer: w, stats: stats, log: log.With("listener", string(w))}
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
	body, err := json.Marshal(event.Input{Text: in.Text, ID: in.ID, Source: in.Source, Mode: in.Mode})
	if err != nil {
		return contract.Receipt{}, fmt.Errorf("%w: %w", contract.ErrInvalid, err)
	}
	began := time.Now()
	ref := subject.Ref{Agent: in.Agent, Session: in.Session}
	seq, err := e.bus.PublishCause(ctx, ref, subject.Input, e.writer, in.ID, body)
	if err != nil {
		err = e.failed(err)
		e.log.Warn("input was not accepted", "ref", ref.String(), "id", in.ID, "after", time.Since(began), "error", err)
		return contract.Receipt{}, err
	}
	e.stats.Taken.Add(1)
	e.log.Debug("input accepted", "ref", ref.String(), "id", in.ID, "sequence", seq, "took", time.Since(began))
	return contract.Receipt{ID: in.ID, Sequence: seq}, nil
}

// failed counts an error of the bus and maps it to an error of package contract.
func (e *Emitter) failed(err error) error {
	var full *bus.StorageFault
	switch {
	case errors.Is(err, bus.ErrOverloaded):
		e.stats.Overloaded.Add(1)
		return fmt.Errorf("%w: %w", contract.ErrOverloaded, err)
	case errors.As(err, &full) && errors.Is(err, bus.ErrRefused):
		e.stats.Unavailable.Add(1)
		return fmt.Errorf("%w: %w", contract.ErrNoRoom, err)
	case errors.Is(err, bus.ErrAmbiguous):
		e.stats.Unavailable.Add(1)
		return fmt.Errorf("%w: %w", contract.ErrUnavailable, err)
	case errors.Is(err, bus.ErrTooLarge), errors.Is(err, bus.ErrInvalidArgument):
		e.stats.Invalid.Add(1)
		return fmt.Errorf("%w: %w", contract.ErrInvalid, err)
	case errors.Is(err, bus.ErrRefused), errors.Is(err, bus.ErrDenied):
		e.stats.Refused.Add(1)
		return fmt.Errorf("%w: %w", contract.ErrRefused, err)
	}
	e.stats.Unavailable.Add(1)
	return fmt.Errorf("%w: %w", contract.ErrUnavailable, err)
}
