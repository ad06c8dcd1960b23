// Package live publishes what clients see of a session without reading the log: live
// copies of the events of commits, and messages that are not committed.
//
// Produces: live copies and messages, on core NATS.
//
// Order: that in which one core has stored the commits. One goroutine publishes for the
// whole core, so that no decision waits for it.
//
// Guarantee: none. A copy may be lost; a client that must miss nothing reads the log.
package live

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/journal"
)

// Publisher publishes for one core.
type Publisher struct {
	bus     *journal.Journal
	log     *slog.Logger
	observe func(ref subject.Ref, c event.Commit, s *decide.State)
	jobs    chan stored
	done    sync.WaitGroup

	// Listens reports whether a writer reads the answers to its inputs; nil: none does.
	Listens func(subject.Writer) bool
}

// stored is a commit that this core has just stored.
type stored struct {
	trace   context.Context //nolint:containedctx // the trace of the cause travels with the job
	ref     subject.Ref
	c       event.Commit
	writers []subject.Writer // see [decide.Decision.Writers]
	rev     uint64
}

// pendingJobs bounds the goroutine's queue; sessions wait while it is full.
const pendingJobs = 1024

// New returns a publisher. observe is called with every commit before its copies are
// published, because a client that sees the events may read the view.
func New(
	b *journal.Journal, log *slog.Logger, observe func(ref subject.Ref, c event.Commit, s *decide.State),
) *Publisher {
	return &Publisher{
		bus: b, log: log, observe: observe, jobs: make(chan stored, pendingJobs),
	}
}

// Stored takes a decision that this core has just stored, and the state that includes it.
func (p *Publisher) Stored(ctx context.Context, ref subject.Ref, d *decide.Decision, s *decide.State) {
	p.observe(ref, d.Commit, s)
	p.jobs <- stored{trace: ctx, ref: ref, c: d.Commit, writers: d.Writers, rev: s.Rev}
}

// Start begins to publish. stop publishes the remaining copies; nothing may be stored then.
func (p *Publisher) Start() (stop func()) {
	p.done.Go(func() {
		for j := range p.jobs {
			p.publish(j)
		}
	})
	return func() { close(p.jobs); p.done.Wait() }
}

// publish publishes copies of a stored commit's events (rule 16).
func (p *Publisher) publish(j stored) {
	seq, prev := strconv.FormatUint(j.rev, 10), strconv.FormatUint(j.c.Header.Prev, 10)
	count := strconv.Itoa(len(j.c.Events))
	for i := range j.c.Events {
		h := nats.Header{
			journal.HeaderCommit: {seq}, journal.HeaderIndex: {strconv.Itoa(i)},
			journal.HeaderEvents: {count}, journal.HeaderPrev: {prev},
		}
		e := &j.c.Events[i]
		if e.Type == event.TypeCheckpoint {
			e = withoutState(e)
		}
		if !p.send(j.trace, j.ref, h, e) {
			return
		}
		p.answer(j, h, e, j.writers[i])
	}
}

// withoutState returns the copy of a checkpoint: the state is large, and only readers of the log can use it.
func withoutState(e *event.Event) *event.Event {
	var c event.Checkpoint
	if e.DataAs(&c) != nil {
		c.Reason = "" // it is never invalid; a copy may be lost anyway
	}
	c.State = json.RawMessage("{}")
	short := *e
	short.Data = event.New(e.Ref(), e.ID, e.Source, c).Data
	return &short
}

// answer publishes the copy of an event for the listener whose input it is about.
func (p *Publisher) answer(j stored, h nats.Header, e *event.Event, w subject.Writer) {
	if w == "" || p.Listens == nil || !p.Listens(w) {
		return
	}
	if err := p.bus.PublishLive(j.trace, j.ref, j.ref.Answer(w, e.Type.Phase(), e.Type.Name()), h, e.AppendJSON(nil)); err != nil {
		p.log.Debug("publishing an answer", "session", j.ref, "listener", w, "error", err)
	}
}

func (p *Publisher) send(ctx context.Context, ref subject.Ref, h nats.Header, e *event.Event) bool {
	err := p.bus.PublishLive(ctx, ref, e.Live(), h, e.AppendJSON(nil))
	if err != nil {
		p.log.Debug("publishing a live event", "session", ref, "type", e.Type, "error", err)
	}
	return err == nil
}

// Notify sends a message to clients that follow the session now. It is not committed.
func (p *Publisher) Notify(ctx context.Context, ref subject.Ref, id, text string) {
	e := event.New(ref, id, event.Source, event.UIMessage{Content: text, Format: event.Text})
	e.Time = time.Now().UTC().Truncate(time.Millisecond)
	p.send(ctx, ref, nil, &e)
}
