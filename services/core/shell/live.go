package shell

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

// livePublisher publishes live copies of the events of stored commits. One goroutine does
// this for the whole core, in storage order, so that no decision waits for it.
type livePublisher struct {
	bus     *journal.Journal
	log     *slog.Logger
	observe func(ref subject.Ref, c event.Commit, s *decide.State)
	jobs    chan stored
	done    sync.WaitGroup
}

// stored is a commit that this core has just stored.
type stored struct {
	trace context.Context //nolint:containedctx // the trace of the cause travels with the job
	ref   subject.Ref
	d     *decide.Decision
	state *decide.State
}

// pendingJobs bounds the goroutine's queue; sessions wait while it is full.
const pendingJobs = 1024

func newLivePublisher(
	b *journal.Journal, log *slog.Logger, observe func(ref subject.Ref, c event.Commit, s *decide.State),
) *livePublisher {
	return &livePublisher{bus: b, log: log, observe: observe, jobs: make(chan stored, pendingJobs)}
}

// stored handles a commit that this core has just stored. The view writer observes it
// first, because a client that sees the events may read the view.
func (p *livePublisher) stored(j stored) {
	p.observe(j.ref, j.d.Commit, j.state)
	p.jobs <- j
}

func (p *livePublisher) start() (stop func()) {
	p.done.Go(func() {
		for j := range p.jobs {
			p.publish(j)
		}
	})
	return func() { close(p.jobs); p.done.Wait() }
}

// publish publishes copies of a stored commit's events (rule 16). They may be lost:
// a client that must miss nothing reads the log.
func (p *livePublisher) publish(j stored) {
	seq := strconv.FormatUint(j.state.Rev, 10)
	prev := strconv.FormatUint(j.d.Commit.Header.Prev, 10)
	count := strconv.Itoa(len(j.d.Commit.Events))
	for i := range j.d.Commit.Events {
		e := &j.d.Commit.Events[i]
		h := nats.Header{
			journal.HeaderCommit: {seq}, journal.HeaderIndex: {strconv.Itoa(i)},
			journal.HeaderEvents: {count}, journal.HeaderPrev: {prev},
		}
		if err := p.bus.PublishLive(j.trace, j.ref, e.Live(), h, e.AppendJSON(nil)); err != nil {
			p.log.Debug("publishing a live event", "session", j.ref, "type", e.Type, "error", err)
			return
		}
	}
}

// notify sends a message to clients that follow the session now. It is not committed.
func (s *session) notify(text string) {
	e := event.New(s.ref, nonce(), event.Source, event.UIMessage{Content: text, Format: event.Text})
	e.Time = time.Now().UTC().Truncate(time.Millisecond)
	if err := s.c.bus.PublishLive(s.ctx, s.ref, e.Live(), nil, e.AppendJSON(nil)); err != nil {
		s.c.log.Debug("publishing a live event", "session", s.ref, "type", e.Type, "error", err)
	}
}
