package shell

import (
	"context"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

// afterwards publishes live copies of the events of stored commits, where no decision
// waits for it. One goroutine does this for the whole core, in storage order.
type afterwards struct {
	c    *Core
	jobs chan stored
	done sync.WaitGroup
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

func newAfterwards(c *Core) *afterwards {
	return &afterwards{c: c, jobs: make(chan stored, pendingJobs)}
}

// stored handles a commit that this core has just stored. The view is noted first: a client
// that sees the events may read it.
func (a *afterwards) stored(j stored) {
	a.c.behind.observe(j)
	a.jobs <- j
}

func (a *afterwards) start() (stop func()) {
	a.done.Go(func() {
		for j := range a.jobs {
			a.live(j)
		}
	})
	return func() { close(a.jobs); a.done.Wait() }
}

// live publishes copies of a stored commit's events (rule 16). They may be lost:
// a client that must miss nothing reads the log.
func (a *afterwards) live(j stored) {
	seq := strconv.FormatUint(j.state.Rev, 10)
	prev := strconv.FormatUint(j.d.Commit.Header.Prev, 10)
	count := strconv.Itoa(len(j.d.Commit.Events))
	for i := range j.d.Commit.Events {
		e := &j.d.Commit.Events[i]
		h := nats.Header{bus.HeaderCommit: {seq}, bus.HeaderIndex: {strconv.Itoa(i)}, bus.HeaderEvents: {count}, bus.HeaderPrev: {prev}}
		if err := a.c.bus.PublishLive(j.trace, j.ref, e.Live(), h, e.AppendJSON(nil)); err != nil {
			a.c.log.Debug("publishing a live event", "session", j.ref, "type", e.Type, "error", err)
			return
		}
	}
}
