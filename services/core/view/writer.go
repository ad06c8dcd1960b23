package view

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/store"
)

// WriterConfig is what a writer needs.
type WriterConfig struct {
	Bus        *journal.Journal
	Store      store.Store
	Loader     *loader.Loader // saves snapshots
	Log        *slog.Logger
	Incomplete Incomplete
	Snapshots  *atomic.Int64 // counts the snapshots written
	// Learn writes what a commit leaves for the agent's memory. It may be called again for
	// the same commit.
	Learn func(ctx context.Context, ref subject.Ref, c event.Commit) error
	// LogLost is called with what happened when the log has lost acknowledged messages.
	LogLost func(what string)
}

// Incomplete takes notice of what the view lacks; see [Refill].
type Incomplete interface {
	Want(ref subject.Ref, spoiled bool) // the statistics of a session have a gap
	MissedSome()                        // some write failed
}

// Writer writes the views asynchronously: snapshots, tool statistics and the ack
// floor. Nothing waits for it. If it loses a write, refill folds that session again.
type Writer struct {
	cfg   WriterConfig
	floor ackFloor

	mu     sync.Mutex
	snaps  map[subject.Ref]*dirty
	stats  map[subject.Ref][]store.ToolRecord
	ends   []ended // what turns have left for the memory
	failed bool    // the last write failed
	use    []commands.ToolUse
	causes *journal.Consumption

	ended   chan struct{}      // has a token while a turn has ended
	readers chan chan struct{} // each is closed once the view holds everything observed before
}

// ended is a commit that ends a turn.
type ended struct {
	ref    subject.Ref
	commit event.Commit
}

// dirty is a session whose snapshot is out of date.
type dirty struct {
	state         *decide.State
	since, latest time.Time
}

// How far views may lag. A snapshot waits until its session is idle, so that a
// busy one is not written repeatedly.
const (
	gather = time.Second
	rested = time.Second
	stale  = 10 * time.Second
)

const (
	learnWait = 5 * time.Second // for the memories of one write
	maxEnds   = 10_000          // turns that wait to be remembered
)

// A reader of the view waits up to patience for pending writes. Snapshots of at most
// readerSnaps busy sessions are written for it.
const (
	patience    = time.Second
	readerSnaps = 64
)

// NewWriter returns a writer; Start runs it.
func NewWriter(cfg WriterConfig) *Writer {
	return &Writer{
		cfg: cfg, snaps: map[subject.Ref]*dirty{}, stats: map[subject.Ref][]store.ToolRecord{},
		ended: make(chan struct{}, 1), readers: make(chan chan struct{}),
	}
}

// CatchUp waits until the commits that this core has stored so far are in the view, so
// that a client that has seen a turn end finds it there. It gives up after a second.
// Commits of other cores follow within seconds.
func (w *Writer) CatchUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	written := make(chan struct{})
	select {
	case w.readers <- written:
	case <-ctx.Done():
		return
	}
	select {
	case <-written:
	case <-ctx.Done():
	}
}

// Observe handles a commit that this core has stored, and the state after it.
func (w *Writer) Observe(ref subject.Ref, c event.Commit, s *decide.State) {
	w.Folded(ref, c, s.Rev)
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if p := w.snaps[ref]; p != nil {
		p.state, p.latest = s, now
	} else {
		w.snaps[ref] = &dirty{s, now, now}
	}
}

// Folded handles every folded commit, also while loading. Statistics are applied
// once per commit, so a repeated commit is harmless.
func (w *Writer) Folded(ref subject.Ref, c event.Commit, seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats[ref] = record(w.stats[ref], ref, c, c.Header.Prev, seq)
	if leaves(c) {
		w.ends = append(w.ends, ended{ref, c})
		select {
		case w.ended <- struct{}{}:
		default:
		}
	}
}

// leaves reports whether a commit leaves something for the agent's memory.
func leaves(c event.Commit) bool {
	return slices.ContainsFunc(c.Events, func(e event.Event) bool {
		return e.Type.Terminal() && bytes.Contains(e.Data, learned)
	})
}

// learned is in the terminal events of turns that leave something for the memory.
var learned = []byte(`"learned":`)

// record adds a commit that follows the one at after. Commits without tool
// results are merged into the record of the next commit that has some.
func record(records []store.ToolRecord, ref subject.Ref, c event.Commit, after, seq uint64) []store.ToolRecord {
	deltas := deltasOf(c)
	if n := len(records); n > 0 && records[n-1].Rev == after && len(records[n-1].Deltas) == 0 {
		records[n-1].Rev, records[n-1].Deltas = seq, deltas
		return records
	}
	return append(records, store.ToolRecord{Key: store.KeyOf(ref), After: after, Rev: seq, Deltas: deltas})
}

func deltasOf(c event.Commit) (deltas []store.ToolDelta) {
	v := event.Visitor{ActCompleted: func(p event.ActCompleted) {
		if p.Runner != "" {
			deltas = append(deltas, delta(p, c.Header.Now))
		}
	}}
	for i := range c.Events {
		_ = v.Visit(c.Events[i]) // the fold reports what cannot be read
	}
	return deltas
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

// Follow sets the consumer whose ack floor is saved periodically.
func (w *Writer) Follow(causes *journal.Consumption) {
	w.mu.Lock()
	w.causes = causes
	w.mu.Unlock()
}

// Start runs the writer; stop writes what is left and ends it.
func (w *Writer) Start() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(gather)
		defer tick.Stop()
		for ticks := 0; ; {
			select {
			case <-quit:
				w.flush(everything)
				w.saveFloor()
				return
			case <-w.ended: // not with the next tick, before which somebody may kill this process
				w.learnNow()
			case written := <-w.readers:
				w.flush(forReader())
				close(written)
			case <-tick.C:
				w.flush(due)
				if ticks++; ticks%5 == 0 {
					w.saveFloor()
					w.readUse()
				}
			}
		}
	}()
	return func() { close(quit); <-done }
}

// everything picks all sessions, at shutdown.
func everything(*dirty) bool { return true }

// due picks the sessions that are idle or have waited long.
func due(d *dirty) bool { return time.Since(d.latest) > rested || time.Since(d.since) > stale }

// forReader picks the sessions whose turn has ended, and some of the others.
func forReader() func(*dirty) bool {
	busy := 0
	return func(d *dirty) bool {
		if d.state.Turn == nil {
			return true
		}
		busy++
		return busy <= readerSnaps
	}
}

// flush writes the gathered statistics, and the snapshots of the sessions for which
// pick returns true.
func (w *Writer) flush(pick func(*dirty) bool) {
	w.mu.Lock()
	var stats []store.ToolRecord
	for _, records := range w.stats {
		// Loads and commits come from different goroutines.
		slices.SortFunc(records, func(x, y store.ToolRecord) int { return cmp.Compare(x.Rev, y.Rev) })
		stats = append(stats, records...)
	}
	clear(w.stats)
	ends := w.ends
	w.ends = nil
	var snaps []*decide.State
	for ref, d := range w.snaps {
		if pick(d) {
			snaps = append(snaps, d.state)
			delete(w.snaps, ref)
		}
	}
	w.mu.Unlock()
	ends, stats, snaps = w.learn(ends, stats, snaps)
	if len(stats)+len(snaps) > 0 {
		w.wrote(w.write(stats, snaps))
	}
	w.retry(ends)
}

// learnNow writes the memories of turns that have ended, without the rest of the view.
func (w *Writer) learnNow() {
	w.mu.Lock()
	ends := w.ends
	w.ends = nil
	w.mu.Unlock()
	ends, _, _ = w.learn(ends, nil, nil)
	w.retry(ends)
}

// learn writes memories, and returns those that it could not write with what else may be
// written. The statistics and snapshots of their sessions must wait: a session whose snapshot
// is up to date counts as recorded, and one whose statistics are as remembered.
func (w *Writer) learn(ends []ended, stats []store.ToolRecord, snaps []*decide.State) (
	[]ended, []store.ToolRecord, []*decide.State,
) {
	ctx, cancel := context.WithTimeout(context.Background(), learnWait)
	defer cancel()
	left := map[subject.Ref]bool{}
	ends = slices.DeleteFunc(ends, func(e ended) bool {
		if ctx.Err() != nil || left[e.ref] {
			left[e.ref] = true
			return false
		}
		err := w.cfg.Learn(ctx, e.ref, e.commit)
		if err != nil {
			w.cfg.Log.Debug("a turn will be remembered later", "session", e.ref, "error", err)
			left[e.ref] = true
		}
		return err == nil
	})
	if len(left) == 0 {
		return nil, stats, snaps
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	stats = slices.DeleteFunc(stats, func(r store.ToolRecord) bool {
		ref := subject.Ref{Agent: subject.Agent(r.Key.Agent), Session: subject.Session(r.Key.Session)}
		if left[ref] {
			w.stats[ref] = append(w.stats[ref], r)
		}
		return left[ref]
	})
	snaps = slices.DeleteFunc(snaps, func(s *decide.State) bool {
		if now := time.Now(); left[s.Ref] && w.snaps[s.Ref] == nil {
			w.snaps[s.Ref] = &dirty{s, now, now}
		}
		return left[s.Ref]
	})
	return ends, stats, snaps
}

// retry keeps what could not be remembered for the next write. If there is too much, a refill
// folds the sessions again instead.
func (w *Writer) retry(ends []ended) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(ends)+len(w.ends) <= maxEnds {
		w.ends = append(ends, w.ends...)
		return
	}
	for _, e := range ends {
		delete(w.stats, e.ref)
		delete(w.snaps, e.ref)
		w.cfg.Incomplete.Want(e.ref, false)
	}
}

// write writes statistics before snapshots: a session whose snapshot is up to
// date counts as recorded.
func (w *Writer) write(stats []store.ToolRecord, snaps []*decide.State) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	gaps, err := w.cfg.Store.RecordTools(ctx, stats)
	if err != nil {
		return fmt.Errorf("recording tool statistics: %w", err)
	}
	for _, k := range gaps {
		w.cfg.Incomplete.Want(subject.Ref{Agent: subject.Agent(k.Agent), Session: subject.Session(k.Session)}, false)
	}
	for _, s := range snaps {
		err := w.cfg.Loader.Save(ctx, s)
		switch {
		case errors.Is(err, store.ErrInvalid):
			w.cfg.Log.Warn("the store rejected a snapshot", "session", s.Ref, "error", err)
		case err != nil:
			return fmt.Errorf("writing the snapshot of %s: %w", s.Ref, err)
		default:
			w.cfg.Snapshots.Add(1)
		}
	}
	return nil
}

// wrote records the outcome of a write. Refill makes up for failed writes once the
// view can be written again.
func (w *Writer) wrote(err error) {
	switch {
	case err != nil && !w.failed:
		w.cfg.Log.Warn("cannot write the view; it will be completed from the log later", "error", err)
	case err == nil && w.failed:
		w.cfg.Log.Info("the view can be written again")
	}
	if w.failed = err != nil; w.failed {
		w.cfg.Incomplete.MissedSome()
	}
}

func (w *Writer) readUse() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	all, err := w.cfg.Store.ToolStats(ctx)
	if err != nil {
		return
	}
	use := make([]commands.ToolUse, 0, len(all))
	for _, t := range all {
		use = append(use,
			commands.ToolUse{
				Tool: t.Tool, Used: t.Used, Unknown: t.Unknown, SuccessRate: t.SuccessRate(), MeanLatency: t.MeanLatency(),
			})
	}
	w.mu.Lock()
	w.use = use
	w.mu.Unlock()
}

// ToolUse returns the statistics for /metrics, read every five seconds.
func (w *Writer) ToolUse() []commands.ToolUse {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.use
}
