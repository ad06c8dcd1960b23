package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// ListenFunc brings perceptions to the agent. It runs while the plugin is active,
// and should return when its context ends. When it returns an error, or panics,
// it is started again after a pause; when it returns nil, it has done its work.
type ListenFunc func(ctx context.Context, e *Emitter) error

// Listen adds a listener: what people and programs say. Its name is the writer in
// the subjects of what it sends.
func Listen(name subject.Writer, f ListenFunc) Handler {
	if f == nil {
		return bad("listeners", "the handler of %q is nil", clip(string(name)))
	}
	return handlerFunc(func(p *parts) { p.listeners = append(p.listeners, listenerPart{name, f}) })
}

// Sense adds a sensor: what devices measure. It works as a listener does.
func Sense(name subject.Writer, f ListenFunc) Handler {
	if f == nil {
		return bad("sensors", "the handler of %q is nil", clip(string(name)))
	}
	return handlerFunc(func(p *parts) { p.sensors = append(p.sensors, listenerPart{name, f}) })
}

type listenerPart struct {
	name subject.Writer
	run  ListenFunc
}

// Emitter sends perceptions under one writer's name.
type Emitter struct {
	b    *bus.Bus
	name subject.Writer
}

// Name is the writer's.
func (e *Emitter) Name() subject.Writer { return e.name }

// emitPause is how long EmitInput waits before it tries again.
const emitPause = 100 * time.Millisecond

// EmitInput stores an input of the session and returns its stream sequence once
// the log has acknowledged it: from then on it ends in exactly one terminal event.
// While the bus is away or cannot store, or more inputs wait than cores allow, it
// waits until ctx ends. An empty Source becomes the writer's name.
//
// Errors: [bus.ErrAmbiguous] when ctx ended before it was known whether it is
// stored; sending it again is safe if it has an ID, since a second one ends as
// duplicate_of. With any other error it is not stored: [bus.ErrInvalidArgument]
// names the field, [bus.ErrDenied], [bus.ErrTooLarge], [bus.ErrUnavailable], and
// [bus.ErrOverloaded] or a [bus.StorageFault] if that lasted until ctx ended.
func (e *Emitter) EmitInput(ctx context.Context, session subject.Ref, in event.Input) (seq uint64, err error) {
	if in.Source == "" {
		in.Source = string(e.name)
	}
	if err := in.Check(); err != nil {
		return 0, bus.Errorf(bus.CodeInvalidArgument, "input: %v", err)
	}
	body, err := json.Marshal(in)
	if err != nil {
		return 0, fmt.Errorf("encoding the input: %w", err)
	}
	id := in.ID
	if id == "" {
		id = nuid.Next() // one for all attempts
	}
	for {
		seq, err = e.b.PublishCause(ctx, session, subject.Input, e.name, id, body)
		if !passes(err) || ctx.Err() != nil {
			return seq, err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting to store an input: %w", err)
		case <-e.b.Closed():
			return 0, err
		case <-time.After(emitPause):
		}
	}
}

// passes reports whether an input was not stored for a temporary reason.
func passes(err error) bool {
	var full *bus.StorageFault
	return errors.Is(err, bus.ErrUnavailable) || errors.Is(err, bus.ErrOverloaded) || errors.Is(err, bus.ErrRefused) && errors.As(err, &full)
}

// ears run the listeners while the plugin is active.
type ears struct {
	b    *bus.Bus
	log  *slog.Logger
	list []listenerPart

	stop  context.CancelFunc // nil while they do not run
	going *sync.WaitGroup    // those started last, nil before
}

// open starts the listeners unless they run. One that was told to end and has not
// yet is waited for: a listener never runs twice.
func (e *ears) open() {
	if e.stop != nil || len(e.list) == 0 {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	before := e.going
	e.stop, e.going = stop, &sync.WaitGroup{}
	for _, l := range e.list {
		e.going.Go(func() {
			if before != nil {
				before.Wait()
			}
			e.listen(ctx, l)
		})
	}
}

// close tells the listeners to end; wait waits until they have, or ctx ends.
func (e *ears) close() {
	if e.stop != nil {
		e.stop()
		e.stop = nil
	}
}

func (e *ears) wait(ctx context.Context) error {
	if e.going == nil {
		return nil
	}
	gone := make(chan struct{})
	go func() {
		e.going.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a listener does not end: %w", ctx.Err())
	}
}

func (e *ears) listen(ctx context.Context, l listenerPart) {
	log := e.log.With("listener", string(l.name))
	var pause backoff
	for ctx.Err() == nil {
		began := time.Now()
		_, err := contain(&room{log: log}, "listener "+string(l.name), func() (struct{}, error) {
			return struct{}{}, l.run(ctx, &Emitter{e.b, l.name})
		})
		if err == nil || ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			pause = backoff{}
		}
		again := pause.next()
		log.Warn("the listener failed and is started again", "error", err, "in", again)
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}
