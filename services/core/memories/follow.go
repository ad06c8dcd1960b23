package memories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/embed"
	"skandha.dev/services/internal/journal"
	index "skandha.dev/services/internal/memory"
)

const (
	lookEvery  = 2 * time.Second  // for changes by other cores
	gather     = time.Second      // after a change by this one
	applyEvery = 256              // changes in one write to the index
	stepWait   = 30 * time.Second // for one write to the index, or one batch of embeddings
	embedBatch = 64               // texts
	embedPause = 30 * time.Second // after the embedder failed
)

// follower applies the bucket to the index.
type follower struct {
	*Memories
	after  uint64          // where the search for memories without a vector continues
	of     string          // the model that this is about
	bad    map[uint64]bool // revisions that the embedder refuses
	works  bool            // the embedder has answered for another text, in this step
	slow   bool            // it took longer than embedWait at the last time
	next   time.Time
	failed string // the last failure, so that it is logged once
}

// Start keeps the index up to date until ctx ends; stop waits for the end. Only then may
// memories be searched.
func (m *Memories) Start(ctx context.Context, model Embedder) (stop func()) {
	m.model, m.began = model, time.Now()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f := &follower{Memories: m, bad: map[uint64]bool{}}
		for f.step(ctx); f.sleep(ctx); f.step(ctx) {
		}
	}()
	return func() { cancel(); <-done }
}

// sleep waits for the next look at the bucket. Changes that follow each other are one write of the
// index, unless somebody waits for them.
func (f *follower) sleep(ctx context.Context) bool {
	t := time.NewTimer(lookEvery)
	defer t.Stop()
	poke := f.poke
	for {
		select {
		case <-ctx.Done():
			return false
		case <-poke:
			poke = nil
			t.Reset(gather)
		case <-f.urgent:
			return true
		case <-t.C:
			return true
		}
	}
}

// step applies what has changed, and embeds what has no vector.
func (f *follower) step(ctx context.Context) {
	err := f.apply(ctx)
	f.report(ctx, err)
	if err != nil || !f.cfg.Leads() || time.Now().Before(f.next) {
		return
	}
	if err := f.embedMissing(ctx); err != nil && !errors.Is(err, embed.ErrNone) && ctx.Err() == nil {
		f.next = time.Now().Add(embedPause)
		f.cfg.Log.Warn("cannot embed memories; they are found by words until then", "again_in", embedPause, "error", err)
	}
}

func (f *follower) report(ctx context.Context, err error) {
	if err == nil {
		f.behind.Store(nil)
		f.at.done()
		if f.failed != "" {
			f.cfg.Log.Info("the index of memories is complete again")
		}
		f.failed = ""
		return
	}
	if ctx.Err() != nil {
		return
	}
	why := err.Error()
	f.behind.Store(&why)
	if f.failed == "" {
		f.cfg.Log.Warn("the index of memories is behind; turns find fewer memories", "error", err)
	}
	f.failed = why
}

// apply reads the bucket after the revision that the index has, and writes the changes to it.
func (f *follower) apply(ctx context.Context) error {
	position, err := f.position(ctx)
	if err != nil {
		return err
	}
	if position < f.at.get() { // the index has lost something
		f.filling()
		f.after = 0
		f.cfg.Log.Info("the index of memories is filled again from the bucket", "revision", f.at.get())
	}
	from := min(f.at.get(), position)
	var batch []journal.Entry
	for e, err := range f.bucket.After(ctx, from) {
		if err != nil {
			return err
		}
		if batch = append(batch, e); len(batch) == applyEvery {
			if err := f.write(ctx, batch, position); err != nil {
				return err
			}
			position = max(position, e.Revision)
			batch = batch[:0]
		}
	}
	return f.write(ctx, batch, position)
}

// position returns the revision that the index has. An index of another bucket, which has
// more than this one, is wiped.
func (f *follower) position(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, stepWait)
	defer cancel()
	high := f.high.Load()
	position, err := f.cfg.Index.Position(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the index: %w", err)
	}
	last, err := f.bucket.Revision(ctx)
	if err != nil {
		return 0, err
	}
	if max(position, f.at.get(), high) <= last {
		return position, nil
	}
	f.cfg.Log.Warn("the index of memories is newer than the bucket, which was replaced; it is made again",
		"index", position, "bucket", last)
	clear(f.bad)
	f.at.set(0)
	f.high.CompareAndSwap(high, 0)
	f.mu.Lock()
	clear(f.pinned)
	f.mu.Unlock()
	if err := f.cfg.Index.Wipe(ctx); err != nil {
		return 0, fmt.Errorf("wiping the index: %w", err)
	}
	return 0, nil
}

// write applies changes. Those up to the index's position are read for the pinned memories
// alone.
func (f *follower) write(ctx context.Context, changes []journal.Entry, position uint64) error {
	if len(changes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepWait)
	defer cancel()
	var puts []index.Entry
	for _, e := range changes {
		x, err := f.read(e)
		switch {
		case err != nil:
			f.cfg.Log.Warn("a memory cannot be read and is left out", "key", e.Key, "revision", e.Revision, "error", err)
		case e.Deleted:
			f.unpin(x.Agent, x.ID)
			if e.Revision > position {
				if err := f.cfg.Index.Remove(ctx, index.Key{Agent: x.Agent, ID: x.ID}, e.Revision); err != nil {
					return fmt.Errorf("removing from the index: %w", err)
				}
			}
		default:
			f.pin(x)
			if e.Revision > position {
				puts = append(puts, index.Entry{Memory: x, Revision: e.Revision})
			}
		}
	}
	f.embedFirst(ctx, puts)
	if err := f.put(ctx, puts); err != nil {
		return fmt.Errorf("writing the index: %w", err)
	}
	last := changes[len(changes)-1].Revision
	if last > position {
		if err := f.mark(ctx, position, last); err != nil {
			return fmt.Errorf("writing the index: %w", err)
		}
	}
	f.at.set(max(f.at.get(), last))
	return nil
}

// mark records that the index is complete up to a revision, if it still is up to position: it
// may have been deleted or replaced since that was read, and would never be filled again.
func (f *follower) mark(ctx context.Context, position, last uint64) error {
	now, err := f.cfg.Index.Position(ctx)
	if err != nil {
		return err
	}
	if now < position {
		return fmt.Errorf("it has lost what it had up to revision %d; it is filled again", position)
	}
	return f.cfg.Index.SetPosition(ctx, last)
}

// embedFirst computes the vectors of a few new entries, so that one write of the index does, and
// they are never without. Those for which the embedder takes long follow later.
func (f *follower) embedFirst(ctx context.Context, entries []index.Entry) {
	if len(entries) == 0 || len(entries) > embedBatch || f.slow || !f.cfg.Leads() || time.Now().Before(f.next) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, embedWait)
	defer cancel()
	if err := f.vectors(ctx, entries); err != nil && !errors.Is(err, embed.ErrNone) {
		f.slow = ctx.Err() != nil
		f.cfg.Log.Debug("memories are indexed without vectors, which follow", "error", err)
	}
}

// put writes entries to the index. One that it refuses does not keep the others out, and a vector
// that it refuses not the memory.
func (f *follower) put(ctx context.Context, entries []index.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	err := f.cfg.Index.Put(ctx, entries)
	if !errors.Is(err, index.ErrInvalid) {
		return err
	}
	if entries[0].Vector != nil {
		for i := range entries {
			entries[i].Model, entries[i].Vector = "", nil
		}
		return f.put(ctx, entries)
	}
	if len(entries) == 1 {
		f.cfg.Log.Warn("the index refuses a memory, which is left out", "agent", entries[0].Agent,
			"memory", entries[0].ID, "error", err)
		return nil
	}
	for _, e := range entries {
		if err := f.put(ctx, []index.Entry{e}); err != nil {
			return err
		}
	}
	return nil
}

// read decodes a change. Anybody who may write to the bucket could have written it.
func (f *follower) read(e journal.Entry) (x memory.Memory, err error) {
	agent, token, ok := strings.Cut(e.Key, ".")
	id, err := subject.Decode(token)
	if !ok || err != nil {
		return x, bus.Errorf(bus.CodeInvalidArgument, "the key is not <agent>.<id>")
	}
	if e.Deleted {
		return memory.Memory{Agent: subject.Agent(agent), ID: id}, nil
	}
	if err := json.Unmarshal(e.Value, &x); err != nil {
		return x, err
	}
	if string(x.Agent) != agent || x.ID != id {
		return x, bus.Errorf(bus.CodeInvalidArgument, "it says agent %q and id %q", x.Agent, x.ID)
	}
	return x, x.Check()
}

// embedMissing computes the vectors that the index lacks, of the model that is configured now.
func (f *follower) embedMissing(ctx context.Context) error {
	model, err := f.model.Model(ctx)
	if err != nil {
		return err
	}
	if f.of != model {
		f.of, f.after = model, 0
		clear(f.bad)
	}
	entries, err := f.cfg.Index.Unembedded(ctx, model, f.after, embedBatch)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		f.after = 0
		return nil
	}
	if f.after == 0 && len(entries) == embedBatch {
		f.cfg.Log.Info("memories have no vector of the embedder; computing them", "model", model)
	}
	n, last := len(entries), entries[len(entries)-1].Revision
	f.works = false
	if err := f.embedAll(ctx, slices.DeleteFunc(entries, func(e index.Entry) bool { return f.bad[e.Revision] })); err != nil {
		return err
	}
	if f.after = last; n == embedBatch {
		signal(f.urgent) // there is more; changes of the bucket come between
	}
	return nil
}

// embedAll computes the vectors of entries. One text that the embedder refuses does not keep
// the others from being embedded.
func (f *follower) embedAll(ctx context.Context, entries []index.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	err := f.embedThese(ctx, entries)
	if err == nil || !f.refuses(ctx, err) {
		return err
	}
	if len(entries) == 1 {
		f.cfg.Log.Warn("the embedder refuses a memory, which is found by words", "agent", entries[0].Agent,
			"memory", entries[0].ID, "error", err)
		f.bad[entries[0].Revision] = true
		return nil
	}
	half := len(entries) / 2
	if err := f.embedAll(ctx, entries[:half]); err != nil {
		return err
	}
	return f.embedAll(ctx, entries[half:])
}

// refuses reports whether an error is about the texts, and not about the embedder. An answer that
// cannot be used is, if the embedder has one for another text.
func (f *follower) refuses(ctx context.Context, err error) bool {
	if errors.Is(err, bus.ErrInvalidArgument) || errors.Is(err, bus.ErrTooLarge) {
		return true
	}
	if !errors.Is(err, bus.ErrInternal) {
		return false
	}
	if !f.works {
		ctx, cancel := context.WithTimeout(ctx, embedWait)
		defer cancel()
		_, err := f.model.Embed(ctx, []string{"a text of " + time.Now().String()}) // that is in no cache
		f.works = err == nil
	}
	return f.works
}

func (f *follower) embedThese(ctx context.Context, entries []index.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, stepWait)
	defer cancel()
	began := time.Now()
	if err := f.vectors(ctx, entries); err != nil {
		return err
	}
	f.slow = time.Since(began) > embedWait
	return f.cfg.Index.Put(ctx, entries)
}

// vectors computes the vectors of entries.
func (f *follower) vectors(ctx context.Context, entries []index.Entry) error {
	texts := make([]string, len(entries))
	for i, e := range entries {
		texts[i] = e.Text
	}
	v, err := f.model.Embed(ctx, texts)
	if err != nil {
		return err
	}
	for i := range entries {
		entries[i].Vector, entries[i].Model = v.Values[i], v.Model
	}
	return nil
}
