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
	"skandha.dev/services/internal/embed"
	"skandha.dev/services/internal/lexical"
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

// Reader searches the memories for one decision.
type Reader struct {
	m        *Memories
	patience *embed.Patience
}

// For returns a Reader that waits for embeddings as far as the patience goes.
func (m *Memories) For(p *embed.Patience) Reader { return Reader{m, p} }

// Recall returns the agent's pinned memories, and those that match the input best. It
// implements decide.Memory.
func (r Reader) Recall(ref subject.Ref, input string) event.Recalled {
	ctx, cancel := context.WithTimeout(context.Background(), recallWait)
	defer cancel()
	if time.Since(r.m.began) < indexWait { // the core has just started
		r.m.catchUp(ctx, 0)
	}
	hits, trouble, err := r.search(ctx, index.Query{Agent: ref.Agent, Text: input, Limit: recalled})
	if err != nil {
		trouble = "the index of memories cannot be searched: " + err.Error()
	}
	pinned := r.m.pins(ref.Agent)
	hits = slices.DeleteFunc(hits, func(h memory.Hit) bool {
		return slices.ContainsFunc(pinned, func(p memory.Hit) bool { return p.ID == h.ID })
	})
	return event.Recalled{Memories: append(pinned, hits...), Trouble: text.Cut(trouble, 500)}
}

// search completes the query with the vector of its text, and searches. Trouble is why less
// may have been found.
func (r Reader) search(ctx context.Context, q index.Query) (hits []memory.Hit, trouble string, err error) {
	if err = r.complete(ctx, &q); err != nil {
		trouble = fmt.Sprintf("searched by words alone: %v", err)
	}
	if q.Text == "" {
		return nil, "", nil // an input of files alone
	}
	found := r.m.cfg.Index
	hits, err = found.Search(ctx, q)
	if errors.Is(err, index.ErrInvalid) && q.Vector != nil { // such as another dimension than the stored vectors have
		trouble = fmt.Sprintf("searched by words alone: %v", err)
		q.Vector, q.Model = nil, ""
		hits, err = found.Search(ctx, q)
	}
	if behind := r.m.behind.Load(); behind != nil && err == nil && trouble == "" {
		trouble = "the index of memories is not complete: " + *behind
	}
	return hits, trouble, err
}

// complete cuts the text of a query, and adds its vector.
func (r Reader) complete(ctx context.Context, q *index.Query) (err error) {
	if q.Text = text.Cut(strings.TrimSpace(q.Text), maxQuery); q.Text == "" {
		return nil
	}
	r.patience.Within(ctx, embedWait, func(ctx context.Context) { q.Vector, q.Model, err = r.m.embed(ctx, q.Text) })
	return err
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

// What makes a request like one that a tool has served: the cosine of their vectors, or the
// part of its words that the tool's requests have.
const (
	leastCosine = 0.5
	leastShared = 0.5
)

// Proven returns the tools that have served requests like the input, and how much they are to
// be preferred, from 0 to 1: by how like the requests are.
func (r Reader) Proven(agent subject.Agent, input string) map[string]float64 {
	ctx, cancel := context.WithTimeout(context.Background(), recallWait)
	defer cancel()
	q := index.Query{Agent: agent, Text: input, Kinds: []memory.Kind{memory.Capability}, Limit: recalled}
	if r.complete(ctx, &q) != nil {
		q.Vector, q.Model = nil, ""
	}
	if q.Text == "" {
		return nil
	}
	out := map[string]float64{}
	prefer := func(q index.Query, least float64, like func(memory.Hit) float64) {
		hits, err := r.m.cfg.Index.Search(ctx, q)
		if err != nil {
			return // without what has proven itself, tools are ranked all the same
		}
		for _, h := range hits {
			if l := like(h); l >= least {
				out[h.Source.Tool] = max(out[h.Source.Tool], min(l, 1))
			}
		}
	}
	if byMeaning := q; q.Vector != nil {
		byMeaning.Text = ""
		prefer(byMeaning, leastCosine, func(h memory.Hit) float64 { return h.Score })
	}
	words := index.Terms(q.Text)
	q.Vector, q.Model = nil, ""
	prefer(q, leastShared, func(h memory.Hit) float64 { return shared(words, h.Text) })
	return out
}

// shared returns which part of the words is in the request of a capability that has most of
// them, or in its text if a person has rewritten it.
func shared(words []string, capability string) (most float64) {
	texts := requests(capability)
	if len(texts) == 0 {
		texts = []string{capability}
	}
	for _, t := range texts {
		has := lexical.Terms(t)
		n := 0
		for _, w := range words {
			if slices.Contains(has, w) {
				n++
			}
		}
		most = max(most, float64(n)/float64(max(len(words), 1)))
	}
	return most
}
