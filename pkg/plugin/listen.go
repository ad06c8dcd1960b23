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

// ListenFunc sends perceptions to the agent. It runs while the plugin is active, and should
// return when its context ends. If it returns an error or panics, it is restarted after a
// pause. If it returns nil, it is done and is not restarted.
type ListenFunc func(ctx context.Context, e *Emitter) error

// Listen adds a listener, which sends what people and programs say. Its name is the writer
// in the subjects of its inputs.
func Listen(name subject.Writer, f ListenFunc) Handler {
	if f == nil {
		return invalid("listeners", "the handler for %q is nil", clip(string(name)))
	}
	return handlerFunc(func(p *parts) { p.listeners = append(p.listeners, listenerPart{name, f}) })
}

// Sense adds a sensor, which sends what devices measure. It works like a listener.
func Sense(name subject.Writer, f ListenFunc) Handler {
	if f == nil {
		return invalid("sensors", "the handler for %q is nil", clip(string(name)))
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

// Name returns the writer's name.
func (e *Emitter) Name() subject.Writer { return e.name }

// emitPause is how long EmitInput waits before a retry.
const emitPause = 100 * time.Millisecond

// EmitInput stores an input of the session. It returns the stream sequence once the log
// has acknowledged the input: from then on the input ends in exactly one terminal event.
// While the bus is unavailable or cannot store, or while the queue of inputs is full,
// EmitInput waits until ctx ends. An empty Source becomes the writer's name.
//
// The error is [bus.ErrAmbiguous] if ctx ended before it was known whether the input is
// stored; sending it again is safe if it has an ID, since the second one ends as
// duplicate_of. With any other error the input is not stored: [bus.ErrInvalidArgument],
// which names the field, [bus.ErrDenied], [bus.ErrTooLarge], [bus.ErrUnavailable], or
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
		if !isTemporary(err) || ctx.Err() != nil {
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

// isTemporary reports whether an input was not stored for a temporary reason.
func isTemporary(err error) bool {
	var full *bus.StorageFault
	return errors.Is(err, bus.ErrUnavailable) || errors.Is(err, bus.ErrOverloaded) ||
		errors.Is(err, bus.ErrRefused) && errors.As(err, &full)
}

// listeners run the plugin's listeners and sensors while it is active.
type listeners struct {
	b    *bus.Bus
	log  *slog.Logger
	list []listenerPart

	stop    context.CancelFunc // nil while they do not run
	running *sync.WaitGroup    // the last ones that were started; nil before
}

// open starts the listeners unless they run. It waits for listeners that are still
// stopping, so that none of them runs twice.
func (ls *listeners) open() {
	if ls.stop != nil || len(ls.list) == 0 {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	before := ls.running
	ls.stop, ls.running = stop, &sync.WaitGroup{}
	for _, l := range ls.list {
		ls.running.Go(func() {
			if before != nil {
				before.Wait()
			}
			ls.listen(ctx, l)
		})
	}
}

// close cancels the listeners; wait waits until they have ended, or ctx ends.
func (ls *listeners) close() {
	if ls.stop != nil {
		ls.stop()
		ls.stop = nil
	}
}

func (ls *listeners) wait(ctx context.Context) error {
	if ls.running == nil {
		return nil
	}
	done := make(chan struct{})
	go func() {
		ls.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a listener did not stop: %w", ctx.Err())
	}
}

func (ls *listeners) listen(ctx context.Context, l listenerPart) {
	log := ls.log.With("listener", string(l.name))
	var pause backoff
	for ctx.Err() == nil {
		began := time.Now()
		_, err := contain(&runtime{log: log}, "listener "+string(l.name), func() (struct{}, error) {
			return struct{}{}, l.run(ctx, &Emitter{ls.b, l.name})
		})
		if err == nil || ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			pause = backoff{}
		}
		again := pause.next()
		log.Warn("listener failed; restarting", "error", err, "in", again)
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}
