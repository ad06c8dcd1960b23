package shell

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/memories"
	"skandha.dev/services/core/planner/engine"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/embed"
	"skandha.dev/services/internal/journal"
)

func (c *Core) newMemories() *memories.Memories {
	if c.cfg.Index == nil {
		return nil
	}
	return memories.New(memories.Config{
		Bus: c.bus, Index: c.cfg.Index, Log: c.log, Leads: c.refill.Leads, Origin: c.originOf,
	})
}

// originOf returns the least trusted origin of what a session's model sees now.
func (c *Core) originOf(ctx context.Context, ref subject.Ref) (memory.Origin, error) {
	s, err := c.loader.Load(ctx, ref, nil)
	if err != nil {
		return "", err
	}
	return decide.Origin(s, c.dir.Lookup), nil
}

// memory returns the memories as decisions see them; nil if this core keeps none.
func (c *Core) memory() func(*embed.Patience) decide.Memory {
	if c.memories == nil {
		return nil
	}
	return func(p *embed.Patience) decide.Memory { return c.memories.For(p) }
}

func (c *Core) startMemories(ctx context.Context) (stop func()) {
	if c.memories == nil {
		return func() {}
	}
	if err := c.forgetReplaced(ctx); err != nil {
		c.log.Warn("cannot find out whether the index is of the memories before a restore; if it is, "+
			"memories are found that were restored away, until the next start", "error", err)
	}
	return c.memories.Start(c.ctx, &c.model)
}

// restoredMark is, in the view, when the bucket of memories that the index is made of was restored from a
// backup: Unix time in nanoseconds.
const restoredMark = "memories_restored"

// forgetReplaced wipes the index if the bucket was restored since it was made: its revisions are then of other
// memories.
func (c *Core) forgetReplaced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	at, err := c.bus.Bucket(journal.BucketMemories).Restored(ctx)
	if err != nil || at.IsZero() {
		return err
	}
	restored := uint64(at.UnixNano()) //nolint:gosec // after 1970
	of, err := c.store.Mark(ctx, restoredMark)
	if err != nil || of == restored {
		return err
	}
	c.log.Info("memories were restored from a backup; their index is made again", "restored", at)
	if err := c.cfg.Index.Wipe(ctx); err != nil {
		return err
	}
	return c.store.SetMark(ctx, restoredMark, restored)
}

// matcher returns what matches the tools of an agent with requests.
func (c *Core) matcher(agent subject.Agent, p *embed.Patience) engine.Matcher {
	if c.memories == nil {
		return c.ranker.For(p, nil)
	}
	memories := c.memories.For(p)
	return c.ranker.For(p, func(request string) map[string]float64 { return memories.Proven(agent, request) })
}

// embedder is the client of the provider service's embedder, once this core runs.
type embedder struct{ client atomic.Pointer[embed.Client] }

// Embed implements embed.Embedder.
func (e *embedder) Embed(ctx context.Context, texts []string) (embed.Vectors, error) {
	if c := e.client.Load(); c != nil {
		return c.Embed(ctx, texts)
	}
	return embed.Vectors{}, embed.ErrNone
}

// Model implements memories.Embedder.
func (e *embedder) Model(ctx context.Context) (string, error) {
	if c := e.client.Load(); c != nil {
		return c.Model(ctx)
	}
	return "", embed.ErrNone
}

// learn writes what a commit leaves for the agent's memory. What the bucket refuses for good
// is lost, and does not keep the view from being written.
func (c *Core) learn(ctx context.Context, ref subject.Ref, commit event.Commit) error {
	if c.memories == nil {
		return nil
	}
	err := c.memories.Learn(ctx, ref, commit)
	if errors.Is(err, bus.ErrInvalidArgument) || errors.Is(err, memories.ErrFull) {
		c.log.Warn("a turn is not remembered", "session", ref, "error", err)
		return nil
	}
	return err
}

// serveMemory lists, finds and changes memories.
func (c *Core) seeMemory(q *bus.Request) (any, error) { return c.queryMemory(q, false) }

func (c *Core) serveMemory(q *bus.Request) (any, error) { return c.queryMemory(q, true) }

func (c *Core) queryMemory(q *bus.Request, change bool) (any, error) {
	var ask coreapi.MemoryQuery
	if err := decodeQuery(q.Data, &ask); err != nil {
		return nil, err
	}
	if ask.Changes() && !change {
		return nil, administered(coreapi.VerbMemory)
	}
	if c.memories == nil {
		return nil, bus.Errorf(bus.CodeUnavailable, "this core keeps no memories: it was started without an index for them")
	}
	known := c.plugins.Agent(ask.Agent) != nil
	if ask.Op == coreapi.MemoryStore && !known {
		return nil, bus.Errorf(bus.CodeNotFound, "no agent %s", ask.Agent)
	}
	a, err := announced(c, q, ask.Caller, memoryAct(ask), func() (coreapi.MemoryAnswer, error) { return c.memories.Do(q.Context(), ask) })
	if err == nil && !known && ask.Op == coreapi.MemoryList && ask.After == "" && len(ask.Kinds)+len(a.Memories) == 0 {
		return nil, bus.Errorf(bus.CodeNotFound, "no agent %s, and no memories of one", ask.Agent)
	}
	return a, err
}
