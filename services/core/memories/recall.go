package memories

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	index "skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/text"
)

const (
	recallWait = 3 * time.Second // for everything
	embedWait  = 2 * time.Second // of it, for the embedder
	recalled   = 8               // memories at most
	maxPinned  = 16
	maxQuery   = 4 << 10 // bytes of an input that count
)

// Recall returns the agent's pinned memories, and those that match the input best. It
// implements decide.Memory.
func (m *Memories) Recall(ref subject.Ref, input string) event.Recalled {
	ctx, cancel := context.WithTimeout(context.Background(), recallWait)
	defer cancel()
	hits, trouble, err := m.search(ctx, index.Query{Agent: ref.Agent, Text: input, Limit: recalled})
	if err != nil {
		trouble = "the index of memories cannot be searched: " + err.Error()
	}
	pinned := m.pins(ref.Agent)
	hits = slices.DeleteFunc(hits, func(h memory.Hit) bool {
		return slices.ContainsFunc(pinned, func(p memory.Hit) bool { return p.ID == h.ID })
	})
	return event.Recalled{Memories: append(pinned, hits...), Trouble: text.Cut(trouble, 500)}
}

// search completes the query with the vector of its text, and searches. Trouble is why less
// may have been found.
func (m *Memories) search(ctx context.Context, q index.Query) (hits []memory.Hit, trouble string, err error) {
	if q.Text = text.Cut(strings.TrimSpace(q.Text), maxQuery); q.Text == "" {
		return nil, "", nil // an input of files alone
	}
	within, cancel := context.WithTimeout(ctx, embedWait)
	q.Vector, q.Model, err = m.embed(within, q.Text)
	cancel()
	if err != nil {
		trouble = fmt.Sprintf("searched by words alone: %v", err)
	}
	hits, err = m.cfg.Index.Search(ctx, q)
	if errors.Is(err, index.ErrInvalid) && q.Vector != nil { // such as another dimension than the stored vectors have
		trouble = fmt.Sprintf("searched by words alone: %v", err)
		q.Vector, q.Model = nil, ""
		hits, err = m.cfg.Index.Search(ctx, q)
	}
	if behind := m.behind.Load(); behind != nil && err == nil && trouble == "" {
		trouble = "the index of memories is not complete: " + *behind
	}
	return hits, trouble, err
}

// pins returns the pinned memories of an agent, oldest first.
func (m *Memories) pins(agent subject.Agent) []memory.Hit {
	m.mu.Lock()
	all := slices.Collect(maps.Values(m.pinned[agent]))
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b memory.Memory) int { return a.Created.Compare(b.Created) })
	hits := make([]memory.Hit, 0, maxPinned)
	for _, x := range all[:min(len(all), maxPinned)] {
		hits = append(hits, memory.Hit{Memory: x, Score: 1, Match: memory.Lexical})
	}
	return hits
}

// Proven returns the tools that have served requests like the input, and how much they are to
// be preferred, from 0 to 1.
func (m *Memories) Proven(agent subject.Agent, input string) map[string]float64 {
	ctx, cancel := context.WithTimeout(context.Background(), recallWait)
	defer cancel()
	hits, _, err := m.search(ctx, index.Query{
		Agent: agent, Text: input, Kinds: []memory.Kind{memory.Capability}, Limit: recalled,
	})
	if err != nil || len(hits) == 0 || !(hits[0].Score > 0) {
		return nil
	}
	out := map[string]float64{}
	for _, h := range hits {
		out[h.Source.Tool] = max(out[h.Source.Tool], h.Score/hits[0].Score)
	}
	return out
}
