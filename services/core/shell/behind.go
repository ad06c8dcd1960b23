package shell

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/store"
)

// floorMark is the name of the watermark below which every cause has been
// acknowledged, which is permanent (rule 4).
const floorMark = "causes_ack_floor"

// behind writes the views after the fact: snapshots, tool statistics and the
// ack floor. Nothing waits for it; what it loses is folded again.
type behind struct {
	c     *Core
	floor atomic.Uint64

	mu     sync.Mutex
	snaps  map[subject.Ref]*decide.State // latest wins
	stats  []statEntry
	use    []decide.ToolUse
	wake   chan struct{}
	causes *bus.Consumption
}

type statEntry struct {
	key    store.Key
	rev    uint64
	deltas []store.ToolDelta
}

// snapshotEvery is how many commits a long turn may go without a snapshot.
const snapshotEvery = 64

// gather is how long views wait for more to write at once.
const gather = 250 * time.Millisecond

func newBehind(c *Core) *behind {
	return &behind{c: c, snaps: map[subject.Ref]*decide.State{}, wake: make(chan struct{}, 1)}
}

// observe sees every commit that this core has stored.
func (b *behind) observe(j stored) {
	b.folded(j.ref, j.d.Commit, j.state.Rev)
	if j.state.Turn == nil || j.state.Commits%snapshotEvery == 0 {
		b.mu.Lock()
		b.snaps[j.ref] = j.state
		b.mu.Unlock()
		b.kick()
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
	b.mu.Lock()
	b.stats = append(b.stats, statEntry{store.Key{Agent: string(ref.Agent), Session: string(ref.Session)}, seq, deltas})
	b.mu.Unlock()
	b.kick()
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

func (b *behind) kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
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
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				b.flush()
				return
			case <-tick.C:
				b.saveFloor()
				b.readUse()
			case <-b.wake:
				select {
				case <-quit: // flushed above, next time round
				case <-time.After(gather):
				}
				b.flush()
			}
		}
	}()
	return func() { close(quit); <-done }
}

func (b *behind) flush() {
	b.mu.Lock()
	snaps, stats := b.snaps, b.stats
	b.snaps, b.stats = map[subject.Ref]*decide.State{}, nil
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, e := range stats {
		if err := b.c.store.RecordTools(ctx, e.key, e.rev, e.deltas); err != nil {
			b.c.log.Warn("recording tool statistics", "error", err)
		}
	}
	for _, s := range snaps {
		if err := b.c.loader.Save(ctx, s); err != nil {
			b.c.log.Warn("writing a snapshot", "session", s.Ref, "error", err)
			continue
		}
		b.c.stats.Snapshots.Add(1)
	}
}

func (b *behind) saveFloor() {
	b.mu.Lock()
	causes := b.causes
	b.mu.Unlock()
	if causes == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	floor, err := causes.AckFloor(ctx)
	if err != nil || floor <= b.floor.Load() {
		return
	}
	b.floor.Store(floor)
	if err := b.c.store.SetMark(ctx, floorMark, floor); err != nil {
		b.c.log.Debug("saving the ack floor", "error", err)
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
		use = append(use, decide.ToolUse{Tool: t.Tool, Used: t.Used, SuccessRate: t.SuccessRate(), MeanLatency: t.MeanLatency()})
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
