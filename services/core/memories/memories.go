package memories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/embed"
	"skandha.dev/services/internal/journal"
	index "skandha.dev/services/internal/memory"
)

// ErrFull means that the bucket has no room for another memory.
var ErrFull = errors.New("the bucket of memories is full: delete some, or raise streams.max_memory_bytes")

// Config is what Memories needs.
type Config struct {
	Bus   *journal.Journal
	Index index.Store
	Log   *slog.Logger
	// Leads reports whether this core computes the embeddings that the index lacks, for all
	// cores that share it.
	Leads func() bool
	// Origin returns the least trusted origin of what a session's model sees now. A memory
	// that a tool call stores is worth no more.
	Origin func(ctx context.Context, ref subject.Ref) (memory.Origin, error)
}

// Embedder computes embeddings of texts, by the model that is configured now.
type Embedder interface {
	embed.Embedder
	// Model returns the model, or [embed.ErrNone].
	Model(ctx context.Context) (string, error)
}

// Memories is one core's access to what agents remember.
type Memories struct {
	cfg    Config
	bucket *journal.Bucket
	model  Embedder               // set by Start
	began  time.Time              // when Start was called
	high   atomic.Uint64          // the latest revision that this core has written
	poke   chan struct{}          // has a token after a change
	urgent chan struct{}          // has a token while somebody waits for the index
	behind atomic.Pointer[string] // why the index is not complete; nil: it is
	at     progress

	mu     sync.Mutex
	pinned map[subject.Agent]map[string]memory.Memory
}

// New returns the memories; Start keeps the index up to date.
func New(cfg Config) *Memories {
	m := &Memories{
		cfg: cfg, bucket: cfg.Bus.Bucket(journal.BucketMemories), poke: make(chan struct{}, 1),
		urgent: make(chan struct{}, 1),
		pinned: map[subject.Agent]map[string]memory.Memory{}, at: progress{moved: make(chan struct{})},
	}
	m.filling()
	return m
}

// filling notes that the index, or this core's list of pinned memories, is not complete yet.
func (m *Memories) filling() {
	why := "it is still being filled"
	m.behind.Store(&why)
}

// key returns the bucket's key of a memory: ids may contain any character.
func key(agent subject.Agent, id string) string { return string(agent) + "." + subject.Encode(id) }

// put stores a memory whose last change has a revision, and indexes it. That of a new one is 0:
// if the key was used before, even by a memory that is deleted, the error is bus.ErrFenceLost.
func (m *Memories) put(ctx context.Context, x memory.Memory, revision uint64) error {
	rev, err := m.keep(ctx, x, revision)
	if err != nil {
		return err
	}
	if err := m.cfg.Index.Put(ctx, []index.Entry{{Memory: x, Revision: rev}}); err != nil {
		m.cfg.Log.Debug("indexing a memory; it follows from the bucket", "agent", x.Agent, "memory", x.ID, "error", err)
	}
	return nil
}

// keep stores a memory whose last change has a revision. The follower indexes it.
func (m *Memories) keep(ctx context.Context, x memory.Memory, revision uint64) (rev uint64, err error) {
	if err := x.Check(); err != nil {
		return 0, &bus.Error{Code: bus.CodeInvalidArgument, Message: err.Error()}
	}
	value, err := json.Marshal(x)
	if err != nil {
		return 0, err
	}
	rev, err = m.bucket.Put(ctx, key(x.Agent, x.ID), value, journal.Fence{Revision: revision})
	if errors.Is(err, bus.ErrRefused) && strings.Contains(err.Error(), "maximum bytes exceeded") {
		return 0, fmt.Errorf("storing memory %q: %w", x.ID, ErrFull) // the server's words; the bus takes it for the log
	}
	if err != nil {
		return 0, fmt.Errorf("storing memory %q: %w", x.ID, err)
	}
	m.wrote(rev)
	m.pin(x)
	signal(m.poke)
	return rev, nil
}

// get returns a memory and its revision.
func (m *Memories) get(ctx context.Context, agent subject.Agent, id string) (x memory.Memory, revision uint64, err error) {
	e, err := m.bucket.Get(ctx, key(agent, id))
	if errors.Is(err, bus.ErrNotFound) {
		return x, 0, bus.Errorf(bus.CodeNotFound, "agent %s has no memory %q", agent, id)
	}
	if err == nil {
		err = json.Unmarshal(e.Value, &x)
	}
	return x, e.Revision, err
}

// forget deletes a memory. Its key stays used.
func (m *Memories) forget(ctx context.Context, agent subject.Agent, id string) error {
	_, rev, err := m.get(ctx, agent, id)
	if err != nil {
		return err
	}
	gone, err := m.bucket.Delete(ctx, key(agent, id), journal.Fence{Revision: rev})
	if err != nil {
		return fmt.Errorf("deleting memory %q: %w", id, err)
	}
	m.wrote(gone)
	m.unpin(agent, id)
	if err := m.cfg.Index.Remove(ctx, index.Key{Agent: agent, ID: id}, gone); err != nil {
		m.cfg.Log.Debug("removing a memory from the index; it follows", "agent", agent, "memory", id, "error", err)
	}
	signal(m.poke)
	return nil
}

// progress is how far the follower is.
type progress struct {
	mu    sync.Mutex
	at    uint64        // the last revision that it has read and indexed
	whole bool          // it has once read all there was
	moved chan struct{} // closed at each change
}

// done notes that all there is was read.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.whole {
		p.whole = true
		p.changed()
	}
}

func (p *progress) changed() {
	close(p.moved)
	p.moved = make(chan struct{})
}

func (p *progress) set(at uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at != at {
		p.at = at
		p.changed()
	}
}

func (p *progress) get() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

// await waits until all there was at the start is indexed, and everything up to a revision, or
// until ctx ends.
func (p *progress) await(ctx context.Context, revision uint64, urgent chan<- struct{}) {
	for {
		p.mu.Lock()
		there, moved := p.whole && p.at >= revision, p.moved
		p.mu.Unlock()
		if there {
			return
		}
		signal(urgent)
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

// catchUp waits, not long, until the index has everything up to a revision.
func (m *Memories) catchUp(ctx context.Context, revision uint64) {
	ctx, cancel := context.WithTimeout(ctx, indexWait)
	defer cancel()
	m.at.await(ctx, revision, m.urgent)
}

// wrote notes a revision.
func (m *Memories) wrote(revision uint64) {
	for {
		high := m.high.Load()
		if revision <= high || m.high.CompareAndSwap(high, revision) {
			return
		}
	}
}

// signal puts a token into a channel that has room for one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (m *Memories) pin(x memory.Memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !x.Pinned {
		delete(m.pinned[x.Agent], x.ID)
		return
	}
	if m.pinned[x.Agent] == nil {
		m.pinned[x.Agent] = map[string]memory.Memory{}
	}
	m.pinned[x.Agent][x.ID] = x
}

func (m *Memories) unpin(agent subject.Agent, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pinned[agent], id)
}

// embed returns the vector of a text, and the model; "" without an embedder.
func (m *Memories) embed(ctx context.Context, text string) (vector []float32, model string, err error) {
	v, err := m.model.Embed(ctx, []string{text})
	switch {
	case errors.Is(err, embed.ErrNone):
		return nil, "", nil
	case err != nil:
		return nil, "", err
	}
	return v.Values[0], v.Model, nil
}

// now is the time of a new memory: to the millisecond, as in the log.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
