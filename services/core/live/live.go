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
	turns   map[string]subject.Writer // whose input began a turn that is still open, by session and turn

	// Listens reports whether a writer reads the answers to its inputs; nil: none does.
	Listens func(subject.Writer) bool
}

// stored is a commit that this core has just stored.
type stored struct {
	trace context.Context //nolint:containedctx // the trace of the cause travels with the job
	ref   subject.Ref
	c     event.Commit
	rev   uint64

	turn   string // that is open now; empty: none
	writer subject.Writer
}

// pendingJobs bounds the goroutine's queue; sessions wait while it is full.
const pendingJobs = 1024

// New returns a publisher. observe is called with every commit before its copies are
// published, because a client that sees the events may read the view.
func New(
	b *journal.Journal, log *slog.Logger, observe func(ref subject.Ref, c event.Commit, s *decide.State),
) *Publisher {
	return &Publisher{
		bus: b, log: log, observe: observe, jobs: make(chan stored, pendingJobs), turns: map[string]subject.Writer{},
	}
}

// Stored takes a commit that this core has just stored, and the state that includes it.
func (p *Publisher) Stored(ctx context.Context, ref subject.Ref, c event.Commit, s *decide.State) {
	p.observe(ref, c, s)
	j := stored{trace: ctx, ref: ref, c: c, rev: s.Rev}
	if s.Turn != nil {
		j.turn, j.writer = s.Turn.ID, s.Turn.Writer
	}
	p.jobs <- j
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
		if !p.send(j.trace, j.ref, h, &j.c.Events[i]) {
			return
		}
		if p.Listens != nil {
			p.answer(j, h, &j.c.Events[i])
		}
	}
	if p.Listens != nil {
		p.note(j)
	}
}

// answer publishes the copy of an event for the listener whose input began the turn.
func (p *Publisher) answer(j stored, h nats.Header, e *event.Event) {
	w := p.turns[j.ref.String()+" "+e.Turn]
	var input event.Perceived
	switch {
	case e.Turn == "":
		return
	case e.Turn == j.turn:
		w = j.writer
	case w == "" && e.Type == event.TypePerceived && e.DataAs(&input) == nil:
		w = input.Writer
		p.turns[j.ref.String()+" "+e.Turn] = w // until the commit is published
	}
	if w == "" || !p.Listens(w) {
		return
	}
	if err := p.bus.PublishLive(j.trace, j.ref, j.ref.Answer(w, e.Type.Phase(), e.Type.Name()), h, e.AppendJSON(nil)); err != nil {
		p.log.Debug("publishing an answer", "session", j.ref, "listener", w, "error", err)
	}
}

// note remembers whose turn is open in the session, and forgets those that have ended.
func (p *Publisher) note(j stored) {
	prefix := j.ref.String() + " "
	for _, e := range j.c.Events {
		if e.Turn != j.turn {
			delete(p.turns, prefix+e.Turn)
		}
	}
	if j.turn != "" && p.Listens(j.writer) {
		p.turns[prefix+j.turn] = j.writer
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
