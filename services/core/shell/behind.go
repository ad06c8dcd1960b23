package shell

import (
	"context"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/store"
)

// behind writes the views after the fact: snapshots, tool statistics and the
// ack floor. Nothing waits for it; what it loses is folded again.
type behind struct {
	c     *Core
	floor floor

	mu     sync.Mutex
	snaps  map[subject.Ref]*dirty
	stats  []store.ToolRecord // in the order of folding
	use    []decide.ToolUse
	causes *bus.Consumption
}

// dirty is a session whose snapshot is behind.
type dirty struct {
	state         *decide.State
	since, latest time.Time
}

// How long views may be behind. A snapshot waits until its session rests, so
// that a busy one is not written again and again.
const (
	gather = time.Second
	rested = time.Second
	stale  = 10 * time.Second
)

func newBehind(c *Core) *behind {
	return &behind{c: c, snaps: map[subject.Ref]*dirty{}}
}

// observe sees every commit that this core has stored.
func (b *behind) observe(j stored) {
	b.folded(j.ref, j.d.Commit, j.state.Rev)
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if p := b.snaps[j.ref]; p != nil {
		p.state, p.latest = j.state, now
	} else {
		b.snaps[j.ref] = &dirty{j.state, now, now}
	}
}

// folded sees every commit that is folded, also at loading: statistics are
// applied once per commit, so seeing one again does no harm.
func (b *behind) folded(ref subject.Ref, c event.Commit, seq uint64) {
	var deltas []store.ToolDelta
	for i := range c.Events {
		if e := &c.Events[i]; e.Type == event.TypeActCompleted {
			var p event.ActCompleted
			if e.DataAs(&p) == nil && p.Runner != "" {
				deltas = append(deltas, delta(p, c.Header.Now))
			}
		}
	}
	if len(deltas) == 0 {
		return
	}
	key := store.Key{Agent: string(ref.Agent), Session: string(ref.Session)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats = append(b.stats, store.ToolRecord{Key: key, Rev: seq, Deltas: deltas})
}

func delta(p event.ActCompleted, at time.Time) store.ToolDelta {
	d := store.ToolDelta{Tool: p.Tool, Used: 1, LatencyMS: p.DurationMS, At: at}
	if p.Result.Success {
		d.Succeeded = 1
	} else if p.Result.Error != nil && p.Result.Error.Code == tool.CodeOutcomeUnknown {
		d.Unknown = 1
	}
	return d
}

// follow reads the ack floor of the consumer from time to time.
func (b *behind) follow(causes *bus.Consumption) {
	b.mu.Lock()
	b.causes = causes
	b.mu.Unlock()
}

// start runs the writer; the returned function writes what is left and ends it.
func (b *behind) start() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(gather)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-quit:
				b.flush(true)
				b.saveFloor()
				return
			case <-tick.C:
				b.flush(false)
				if n%5 == 0 {
					b.saveFloor()
					b.readUse()
				}
			}
		}
	}()
	return func() { close(quit); <-done }
}

// flush writes what has been gathered; everything, or the snapshots of sessions
// that rest or have waited long.
func (b *behind) flush(everything bool) {
	b.mu.Lock()
	stats := b.stats
	b.stats = nil
	var snaps []*decide.State
	for ref, d := range b.snaps {
		if everything || time.Since(d.latest) > rested || time.Since(d.since) > stale {
			snaps = append(snaps, d.state)
			delete(b.snaps, ref)
		}
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.c.store.RecordAll(ctx, stats); err != nil {
		b.c.log.Warn("recording tool statistics; they are counted when the sessions are folded again", "error", err)
	}
	for _, s := range snaps {
		if err := b.c.loader.Save(ctx, s); err != nil {
			b.c.log.Warn("writing a snapshot", "session", s.Ref, "error", err)
			continue
		}
		b.c.stats.Snapshots.Add(1)
	}
}

func (b *behind) readUse() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	all, err := b.c.store.ToolStats(ctx)
	if err != nil {
		return
	}
	use := make([]decide.ToolUse, 0, len(all))
	for _, t := range all {
		use = append(use, decide.ToolUse{Tool: t.Tool, Used: t.Used, Unknown: t.Unknown, SuccessRate: t.SuccessRate(), MeanLatency: t.MeanLatency()})
	}
	b.mu.Lock()
	b.use = use
	b.mu.Unlock()
}

// toolUse is what /metrics shows; at most five seconds old.
func (b *behind) toolUse() []decide.ToolUse {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.use
}
