package shell

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
)

// releases informs executors which results they no longer need to keep. Nothing waits
// for that, so releases are gathered into one message per executor.
type releases struct {
	ctx  context.Context //nolint:containedctx // releases outlive every call
	bus  *journal.Journal
	log  *slog.Logger
	mu   sync.Mutex
	of   map[string]*executor.Request // by the executor's subject
	wake chan struct{}
}

const (
	releaseAfter = 50 * time.Millisecond
	releaseAtMax = 256 // attempts in one message
)

func newReleases(ctx context.Context, b *journal.Journal, log *slog.Logger) *releases {
	return &releases{ctx: ctx, bus: b, log: log, of: map[string]*executor.Request{}, wake: make(chan struct{}, 1)}
}

// add schedules the release of an attempt.
func (r *releases) add(w *work, ref subject.Ref) {
	to := subject.Executor(w.kind, w.instance)
	r.mu.Lock()
	q := r.of[to]
	if q == nil {
		r.of[to] = &executor.Request{
			Op: executor.OpRelease, Agent: ref.Agent, Session: ref.Session, Call: w.id, Attempt: w.attempt,
		}
	} else {
		q.Also = append(q.Also, executor.Attempt{Call: w.id, Attempt: w.attempt})
	}
	full := q != nil && len(q.Also) >= releaseAtMax
	r.mu.Unlock()
	if full {
		r.flush()
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *releases) start() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				r.flush()
				return
			case <-r.wake:
				select {
				case <-quit:
				case <-time.After(releaseAfter):
				}
				r.flush()
			}
		}
	}()
	return func() { close(quit); <-done }
}

// flush sends the gathered releases. If one is lost, the executor drops the result
// when its retention ends.
func (r *releases) flush() {
	r.mu.Lock()
	of := r.of
	r.of = map[string]*executor.Request{}
	r.mu.Unlock()
	for to, q := range of {
		body, err := json.Marshal(q)
		if err != nil {
			panic(err) // only ids
		}
		if err := r.bus.Publish(r.ctx, to, nil, body); err != nil {
			r.log.Debug("releasing results", "executor", to, "error", err)
		}
	}
}
