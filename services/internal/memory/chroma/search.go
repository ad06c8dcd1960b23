package chroma

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/lexical"
	index "skandha.dev/services/internal/memory"
)

// Get implements memory.Store.
func (s *Store) Get(ctx context.Context, key index.Key) (e index.Entry, err error) {
	if err := key.Check(); err != nil {
		return e, err
	}
	err = s.do(ctx, "get", func() error {
		from, err := s.client.find(ctx, s.entriesName())
		if err != nil {
			return err
		}
		if from.ID == "" {
			return index.ErrNotFound
		}
		k := keyOf(key)
		known, err := s.lookUp(ctx, from, []string{k})
		if err != nil {
			return err
		}
		if len(known[k]) == 0 || known[k][0].Removed {
			return index.ErrNotFound
		}
		if e, err = known[k][0].entry(); err != nil || e.Model == "" {
			return err
		}
		e.Model, e.Vector, err = s.vectorOf(ctx, known[k][0], e.Text)
		return err
	})
	if err != nil {
		return index.Entry{}, err
	}
	return e, nil
}

// read returns the newest records that meet the conditions, one for each memory, without
// removed ones. A condition must be one that no revision of a memory changes.
func (s *Store) read(ctx context.Context, from collection, conditions ...map[string]any) (out []metadata, err error) {
	var found records
	if err := s.client.do(ctx, from, "get", map[string]any{
		"where": where(conditions...), "include": []string{"metadatas"},
	}, &found); err != nil {
		return nil, err
	}
	newest := map[string]metadata{}
	for _, m := range found.Metadatas {
		if m.Revision > newest[m.Key].Revision {
			newest[m.Key] = m
		}
	}
	for _, m := range newest {
		if !m.Removed {
			out = append(out, m)
		}
	}
	return out, nil
}

// List implements memory.Store.
func (s *Store) List(ctx context.Context, agent subject.Agent, kinds []memory.Kind, limit int, after string) (
	page []memory.Memory, next string, err error,
) {
	from, err := index.Page(agent, kinds, after)
	if err != nil {
		return nil, "", err
	}
	limit = index.PageSize(limit)
	err = s.do(ctx, "list", func() error {
		page = nil
		entries, err := s.client.find(ctx, s.entriesName())
		if err != nil || entries.ID == "" {
			return err
		}
		all, err := s.read(ctx, entries, is("agent", agent))
		if err != nil {
			return err
		}
		for _, m := range all {
			e, err := m.entry()
			if err != nil {
				return err
			}
			if from.Compare(index.CursorOf(e.Memory)) < 0 && (index.Query{Kinds: kinds}).Includes(e.Kind) {
				page = append(page, e.Memory)
			}
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(page, func(a, b memory.Memory) int { return index.CursorOf(a).Compare(index.CursorOf(b)) })
	if len(page) > limit {
		page = page[:limit]
		next = index.CursorOf(page[limit-1]).String()
	}
	return page, next, nil
}

// Unembedded implements memory.Store.
func (s *Store) Unembedded(ctx context.Context, model string, after uint64, limit int) (out []index.Entry, err error) {
	if err := index.CheckModel(model); err != nil {
		return nil, err
	}
	err = s.do(ctx, "unembedded", func() error {
		out = nil
		entries, err := s.client.find(ctx, s.entriesName())
		if err != nil || entries.ID == "" || after >= index.MaxRevision {
			return err
		}
		vectors, err := s.client.find(ctx, s.vectorsName(model))
		if err != nil {
			return err
		}
		// An older revision is passed over because its memory has a newer one.
		all, err := s.read(ctx, entries, map[string]any{"revision": map[string]any{"$gt": after}})
		if err != nil {
			return err
		}
		for _, m := range all {
			if m.Vectors != "" && m.Vectors == vectors.ID || m.Key == positionRecord {
				continue
			}
			e, err := m.entry()
			if err != nil {
				return err
			}
			e.Model = ""
			out = append(out, e)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b index.Entry) int { return cmp.Compare(a.Revision, b.Revision) })
	return out[:min(index.PageSize(limit), len(out))], nil
}

// Search implements memory.Store.
func (s *Store) Search(ctx context.Context, q index.Query) (hits []memory.Hit, err error) {
	if q, err = q.Prepare(); err != nil {
		return nil, err
	}
	err = s.do(ctx, "search", func() error {
		hits = nil
		entries, err := s.client.find(ctx, s.entriesName())
		if err != nil || entries.ID == "" {
			return err
		}
		vectors, near, err := s.near(ctx, q)
		if err != nil {
			return err
		}
		shared, err := s.sharing(ctx, entries, q, vectors.ID)
		if err != nil {
			return err
		}
		if hits, err = s.merge(ctx, entries, q, vectors.ID, near, shared); err != nil {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return hits, nil
}

// candidate is a record that may be a hit: it may be an old revision.
type candidate struct {
	key      string
	revision uint64
	score    float64
}

// conditions are those of a query.
func conditions(q index.Query) []map[string]any {
	out := []map[string]any{is("agent", q.Agent)}
	if len(q.Kinds) > 0 {
		out = append(out, in("kind", q.Kinds))
	}
	return out
}

// spare is how many more candidates are asked for than hits are wanted: some may be old
// revisions, and equal ones are ordered here.
func spare(limit int) int { return 2*limit + 16 }

// near returns the collection of the query's model, and its nearest records.
func (s *Store) near(ctx context.Context, q index.Query) (from collection, out []candidate, err error) {
	if q.Vector == nil {
		return from, nil, nil
	}
	from, err = s.vectorsOf(ctx, q.Model, len(q.Vector))
	if err != nil || from.Dimension == 0 {
		return collection{}, nil, err
	}
	var found struct {
		Metadatas [][]metadata `json:"metadatas"`
		Distances [][]float64  `json:"distances"`
	}
	if err := s.client.do(ctx, from, "query", map[string]any{
		"query_embeddings": [][]float32{q.Vector}, "n_results": spare(q.Limit), "where": where(conditions(q)...),
		"include": []string{"metadatas", "distances"},
	}, &found); err != nil || len(found.Metadatas) == 0 {
		return from, nil, err
	}
	for i, m := range found.Metadatas[0] {
		out = append(out, candidate{m.Key, m.Revision, 1 - found.Distances[0][i]})
	}
	return from, out, nil
}

// sharing ranks the records without a vector in the collection by words.
func (s *Store) sharing(ctx context.Context, from collection, q index.Query, vectors string) (out []candidate, err error) {
	terms := index.Terms(q.Text)
	if len(terms) == 0 {
		return nil, nil
	}
	var each []map[string]any
	for _, t := range terms {
		each = append(each, map[string]any{"$contains": document([]string{t})})
	}
	contains := each[0]
	if len(each) > 1 {
		contains = map[string]any{"$or": each}
	}
	filter := conditions(q)
	if vectors != "" {
		filter = append(filter, map[string]any{"vectors": map[string]any{"$ne": vectors}})
	}
	var found records
	if err := s.client.do(ctx, from, "get", map[string]any{
		"where": where(filter...), "where_document": contains, "include": []string{"documents", "metadatas"},
	}, &found); err != nil {
		return nil, err
	}
	return rank(found, terms)
}

// rank ranks records by BM25. Among equals, the newest memory is first.
func rank(found records, terms []string) (out []candidate, err error) {
	type text struct {
		candidate
		at    index.Cursor
		terms []string
	}
	texts := make([]text, len(found.IDs))
	for i, m := range found.Metadatas {
		e, err := m.entry()
		if err != nil {
			return nil, err
		}
		texts[i] = text{candidate{m.Key, m.Revision, 0}, index.CursorOf(e.Memory), strings.Fields(found.Documents[i])}
	}
	slices.SortFunc(texts, func(a, b text) int { return b.at.Compare(a.at) })
	b := lexical.NewBuilder(terms...)
	for _, t := range texts {
		b.Add(t.terms...)
	}
	for _, h := range b.Index().Search(terms, len(texts)) {
		texts[h.Text].score = h.Score
		out = append(out, texts[h.Text].candidate)
	}
	return out, nil
}

// merge reads the memories of the candidates, without those that are old.
func (s *Store) merge(
	ctx context.Context, from collection, q index.Query, vectors string, near, shared []candidate,
) ([]memory.Hit, error) {
	shared = shared[:min(spare(q.Limit), len(shared))]
	var keys []string
	for _, c := range slices.Concat(near, shared) {
		keys = append(keys, c.key)
	}
	if len(keys) == 0 {
		return nil, nil
	}
	known, err := s.lookUp(ctx, from, keys)
	if err != nil {
		return nil, err
	}
	pick := func(all []candidate, match memory.Match) (hits []memory.Hit, err error) {
		for _, c := range all {
			m := metadata{Removed: true}
			if len(known[c.key]) > 0 {
				m = known[c.key][0]
			}
			if m.Removed || m.Revision != c.revision || (match == memory.Semantic) != (vectors != "" && m.Vectors == vectors) {
				continue
			}
			e, err := m.entry()
			if err != nil {
				return nil, err
			}
			hits = append(hits, memory.Hit{Memory: e.Memory, Score: c.score, Match: match})
		}
		return index.Rank(hits, q.Limit), nil
	}
	semantic, err := pick(near, memory.Semantic)
	if err != nil {
		return nil, err
	}
	words, err := pick(shared, memory.Lexical)
	return index.Merge(semantic, words, q.Limit), err
}
