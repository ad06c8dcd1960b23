package ranking

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"
	"unicode"

	lru "github.com/hashicorp/golang-lru/v2"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner/match"
	"skandha.dev/services/internal/embed"
	"skandha.dev/services/internal/store"
)

const (
	refresh  = 5 * time.Second  // between readings of the statistics and looks for new tools
	patience = 30 * time.Second // for one request to the embedder
	batch    = 64               // tools in one request to the embedder
	expected = 256              // texts whose embeddings are kept
	wishWait = time.Second      // for the embedding of a text
)

// Config of a Ranker.
type Config struct {
	Tools    func() []tool.Spec                              // the catalog; required
	Stats    func(context.Context) ([]store.ToolStat, error) // of all tools; required
	Embedder embed.Embedder                                  // nil: tools are matched by words
	Log      *slog.Logger                                    // required
}

// Ranker ranks tools. It may be used by many goroutines at once.
type Ranker struct {
	cfg     Config
	keeper  match.Keeper
	mu      sync.RWMutex
	stats   map[string]store.ToolStat
	vectors match.Vectors // replaced, never changed
	wishes  *lru.Cache[string, []float32]
	blind   map[*unicode.RangeTable]bool // by script: whether the model cannot read it
	failing bool                         // the embedder
}

// New returns a Ranker without statistics and embeddings; Run gets them.
func New(cfg Config) (*Ranker, error) {
	wishes, err := lru.New[string, []float32](expected)
	if err != nil {
		return nil, err
	}
	return &Ranker{cfg: cfg, wishes: wishes, blind: map[*unicode.RangeTable]bool{}}, nil
}

// Rank ranks the tools of the catalog. It fills in the request's Vector, Model and Stats.
func (r *Ranker) Rank(q match.Request) []match.Candidate {
	r.mu.RLock()
	vectors, stats := r.vectors, r.stats
	q.Vector, _ = r.wishes.Get(q.Text)
	r.mu.RUnlock()
	q.Model = vectors.Model
	q.Stats = func(name string) store.ToolStat { return stats[name] }
	return r.keeper.Catalog(r.cfg.Tools(), vectors).Rank(q)
}

// Await computes the embedding of a text that tools will be ranked for, if tools have
// embeddings. It waits a second at most, and no longer than the patience: without the
// embedding, words count.
func (r *Ranker) Await(text string, patience *embed.Patience) {
	r.mu.RLock()
	needed := r.vectors.Model != "" && text != "" && !r.wishes.Contains(text)
	r.mu.RUnlock()
	if !needed {
		return
	}
	texts, in := []string{text}, script(text)
	blind, known := r.blindFor(in)
	tried := !known && telling(text, in)
	if tried {
		texts = append(texts, garbled(text, in))
	}
	var v embed.Vectors
	var err error
	patience.Within(context.Background(), wishWait, func(ctx context.Context) { v, err = r.embed(ctx, texts) })
	if err != nil {
		r.cfg.Log.Debug("a request is matched by words", "error", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if v.Model != r.vectors.Model {
		r.replace(match.Vectors{Model: v.Model}) // the next refresh embeds all tools again
		blind = false                            // that was known of the other model
	}
	if tried {
		blind = same(v.Values[0], v.Values[1])
		r.blind[in] = blind
	}
	if blind {
		v.Values[0] = nil
	}
	r.wishes.Add(text, v.Values[0])
}

// blindFor reports whether the model cannot read a script, if that is known.
func (r *Ranker) blindFor(s *unicode.RangeTable) (blind, known bool) {
	if s == nil {
		return false, true
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	blind, known = r.blind[s]
	return blind, known
}

// Run keeps the Ranker current until ctx ends.
func (r *Ranker) Run(ctx context.Context) {
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	r.refresh(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.refresh(ctx)
		}
	}
}

// refresh reads the statistics, and prepares and embeds tools that are new.
func (r *Ranker) refresh(ctx context.Context) {
	r.keeper.Catalog(r.cfg.Tools(), r.known())
	r.readStats(ctx)
	if r.cfg.Embedder != nil {
		r.note(ctx, r.embedTools(ctx))
	}
}

// known returns the vectors of tools.
func (r *Ranker) known() match.Vectors {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.vectors
}

func (r *Ranker) readStats(ctx context.Context) {
	all, err := r.cfg.Stats(ctx)
	if err != nil {
		r.cfg.Log.Debug("reading tool statistics", "error", err)
		return
	}
	stats := make(map[string]store.ToolStat, len(all))
	for _, s := range all {
		stats[s.Tool] = s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats = stats
}

// note logs when embedding begins to fail, and when it works again.
func (r *Ranker) note(ctx context.Context, err error) {
	if errors.Is(err, embed.ErrNone) {
		err = nil
	}
	if ctx.Err() != nil || (err != nil) == r.failing {
		return
	}
	r.failing = err != nil
	switch {
	case err != nil && r.known().Model == "": // such as while the first provider process starts
		r.cfg.Log.Info("no embeddings yet; tools are matched by words", "error", err)
	case err != nil:
		r.cfg.Log.Warn("no embeddings; tools are matched by words", "error", err)
	default:
		r.cfg.Log.Info("embeddings are available")
	}
}

// embedTools computes the missing vectors of the catalog, and drops those of tools that are
// in it no more.
func (r *Ranker) embedTools(ctx context.Context) error {
	tools, known := r.cfg.Tools(), r.known()
	var missing []tool.Spec
	have := match.Vectors{Model: known.Model, Of: make(map[string][]float32, len(tools))}
	for _, t := range tools {
		if v := known.Of[t.Digest()]; v != nil {
			have.Of[t.Digest()] = v
			continue
		}
		missing = append(missing, t)
	}
	for len(missing) > 0 {
		n := min(batch, len(missing))
		if err := r.embedBatch(ctx, &have, missing[:n]); err != nil {
			return err
		}
		missing = missing[n:]
		r.publish(have)
	}
	if len(have.Of) != len(known.Of) {
		r.publish(have)
	}
	return nil
}

func (r *Ranker) embedBatch(ctx context.Context, have *match.Vectors, tools []tool.Spec) error {
	texts := make([]string, len(tools))
	for i, t := range tools {
		texts[i] = match.Text(t)
	}
	v, err := r.embed(ctx, texts)
	if err != nil {
		return err
	}
	if v.Model != have.Model {
		have.Model, have.Of = v.Model, map[string][]float32{} // vectors of different models cannot be compared
	}
	for i, t := range tools {
		have.Of[t.Digest()] = v.Values[i]
	}
	return nil
}

func (r *Ranker) embed(ctx context.Context, texts []string) (embed.Vectors, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v, err := r.cfg.Embedder.Embed(ctx, texts)
	if err == nil && len(v.Values) != len(texts) {
		err = fmt.Errorf("the embedder returned %d vectors for %d texts", len(v.Values), len(texts))
	}
	return v, err
}

// publish makes a copy of the vectors visible. Texts of another model are forgotten.
func (r *Ranker) publish(v match.Vectors) {
	next := match.Vectors{Model: v.Model, Of: maps.Clone(v.Of)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replace(next)
}

// replace replaces the vectors. The caller holds the lock.
func (r *Ranker) replace(next match.Vectors) {
	if next.Model != r.vectors.Model {
		if r.vectors.Model != "" {
			r.cfg.Log.Info("the embedding model has changed; embedding again", "from", r.vectors.Model, "to", next.Model)
		}
		r.wishes.Purge()
		clear(r.blind)
	}
	r.vectors = next
}
