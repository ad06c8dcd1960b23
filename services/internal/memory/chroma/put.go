package chroma

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skandha.dev/services/internal/lexical"
	index "skandha.dev/services/internal/memory"
)

// The most that is written or looked up in one request. The server refuses bodies of 40 MB.
const (
	maxBatch  = 500       // memories
	maxFloats = 1_000_000 // in their vectors
)

// Put implements memory.Store. Each entry is stored in one step, after its vector.
func (s *Store) Put(ctx context.Context, entries []index.Entry) error {
	entries, err := index.Prepare(entries)
	if err != nil {
		return err
	}
	return s.do(ctx, "put", func() error {
		longest := 1
		for _, e := range entries {
			longest = max(longest, len(e.Vector))
		}
		for batch := range slices.Chunk(entries, min(maxBatch, max(1, maxFloats/longest))) {
			if err := s.putBatch(ctx, batch); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) putBatch(ctx context.Context, entries []index.Entry) error {
	to, err := s.client.make(ctx, s.entriesName(), euclidean)
	if err != nil {
		return err
	}
	var keys []string
	for _, e := range entries {
		keys = append(keys, keyOf(e.Key()))
	}
	known, err := s.lookUp(ctx, to, keys)
	if err != nil {
		return err
	}
	w := writing{s: s, ctx: ctx, known: known, fresh: map[string]index.Entry{}}
	for _, e := range entries {
		if err := w.take(e); err != nil {
			return err
		}
	}
	return w.write(to)
}

// lookUp returns all records of memories, by their keys, newest first.
func (s *Store) lookUp(ctx context.Context, from collection, keys []string) (map[string][]metadata, error) {
	known := map[string][]metadata{}
	for some := range slices.Chunk(keys, maxBatch) {
		var found records
		if err := s.client.do(ctx, from, "get", map[string]any{
			"where": in("key", some), "include": []string{"metadatas"},
		}, &found); err != nil {
			return nil, err
		}
		for _, m := range found.Metadatas {
			known[m.Key] = append(known[m.Key], m)
		}
	}
	for _, all := range known {
		slices.SortFunc(all, newestFirst)
	}
	return known, nil
}

func newestFirst(a, b metadata) int {
	if a.Revision > b.Revision {
		return -1
	}
	return 1 // a revision has one record
}

// writing is one batch of puts.
type writing struct {
	s     *Store
	ctx   context.Context //nolint:containedctx // it lives for one call
	known map[string][]metadata
	fresh map[string]index.Entry // to be written, by key
}

// take decides whether the entry is to be written, with which vector.
func (w *writing) take(e index.Entry) error {
	key := keyOf(e.Key())
	if other, found := w.fresh[key]; found && (other.Revision > e.Revision || other.Revision == e.Revision && e.Vector == nil) {
		return nil
	}
	if all := w.known[key]; len(all) > 0 {
		last := all[0]
		if last.Revision > e.Revision || last.Revision == e.Revision && (last.Removed || e.Vector == nil) {
			return nil
		}
		if e.Vector == nil && last.Vectors != "" {
			model, v, err := w.s.vectorOf(w.ctx, last, e.Text)
			if err != nil {
				return err
			}
			e.Model, e.Vector = model, v
		}
	}
	w.fresh[key] = e
	return nil
}

// vectorOf returns the vector of a record if it is that of the text, and is there.
func (s *Store) vectorOf(ctx context.Context, m metadata, text string) (model string, v []float32, err error) {
	if e, err := m.entry(); err != nil || e.Text != text {
		return "", nil, nil //nolint:nilerr // what cannot be read is written again
	}
	var found records
	err = s.client.do(ctx, collection{ID: m.Vectors}, "get", map[string]any{
		"ids": []string{recordOf(m.Key, m.Revision)}, "include": []string{"embeddings"},
	}, &found)
	if missing(err) || err == nil && len(found.Embeddings) == 0 {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	return m.Model, found.Embeddings[0], nil
}

// write stores vectors, then entries, and then removes older revisions.
func (w *writing) write(to collection) error {
	if len(w.fresh) == 0 {
		return nil
	}
	vectors, err := w.vectors()
	if err != nil {
		return err
	}
	up := upsert{}
	old := map[string][]string{} // record ids, by the id of their collection
	for _, key := range slices.Sorted(maps.Keys(w.fresh)) {
		e := w.fresh[key]
		m, err := metadataOf(e)
		if err != nil {
			return err
		}
		if e.Vector != nil {
			m.Vectors = vectors[e.Model].ID
		}
		up.add(m, []float32{float32(e.Revision % (1 << 20))}, document(lexical.Terms(e.Text)))
		for _, was := range w.known[key] {
			id := recordOf(key, was.Revision)
			if was.Revision != e.Revision {
				old[to.ID] = append(old[to.ID], id)
			}
			if was.Vectors != "" && (was.Revision != e.Revision || was.Vectors != m.Vectors) {
				old[was.Vectors] = append(old[was.Vectors], id)
			}
		}
	}
	if err := w.s.client.do(w.ctx, to, "upsert", up.body(), nil); err != nil {
		return err
	}
	for id, records := range old {
		err := w.s.client.do(w.ctx, collection{ID: id}, "delete", map[string]any{"ids": records}, nil)
		if err != nil && (id == to.ID || !missing(err)) {
			return err
		}
	}
	return nil
}

// vectors stores the vectors, and returns the collection of each model.
func (w *writing) vectors() (map[string]collection, error) {
	ups, dimensions := map[string]*upsert{}, map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(w.fresh)) {
		e := w.fresh[key]
		if e.Vector == nil {
			continue
		}
		if ups[e.Model] == nil {
			ups[e.Model], dimensions[e.Model] = &upsert{}, len(e.Vector)
		}
		if want := dimensions[e.Model]; want != len(e.Vector) {
			return nil, index.WrongDimension(e.Model, len(e.Vector), want)
		}
		ups[e.Model].add(metadata{Agent: string(e.Agent), Key: key, Revision: e.Revision, Kind: string(e.Kind)}, e.Vector, "")
	}
	out := map[string]collection{}
	for model, up := range ups {
		to, err := w.s.vectorsOf(w.ctx, model, dimensions[model])
		if err == nil && to.ID == "" {
			to, err = w.s.client.make(w.ctx, w.s.vectorsName(model), cosine)
		}
		if err != nil {
			return nil, err
		}
		if err := w.s.client.do(w.ctx, to, "upsert", up.body(), nil); err != nil {
			return nil, err
		}
		out[model] = to
	}
	return out, nil
}

// Remove implements memory.Store, in one step.
func (s *Store) Remove(ctx context.Context, key index.Key, revision uint64) error {
	if err := index.CheckRemoval(key, revision); err != nil {
		return err
	}
	return s.do(ctx, "remove", func() error {
		from, err := s.client.make(ctx, s.entriesName(), euclidean)
		if err != nil {
			return err
		}
		k := keyOf(key)
		known, err := s.lookUp(ctx, from, []string{k})
		if err != nil || len(known[k]) > 0 && known[k][0].Revision > revision {
			return err
		}
		up := upsert{}
		up.add(metadata{Agent: string(key.Agent), Key: k, Revision: revision, Removed: true}, []float32{0}, "")
		if err := s.client.do(ctx, from, "upsert", up.body(), nil); err != nil {
			return err
		}
		return s.dropOlder(ctx, from, known[k], revision)
	})
}

// dropOlder removes the records that a removal replaces.
func (s *Store) dropOlder(ctx context.Context, from collection, known []metadata, revision uint64) error {
	for _, m := range known {
		records := map[string]any{"ids": []string{recordOf(m.Key, m.Revision)}}
		if m.Vectors != "" {
			if err := s.client.do(ctx, collection{ID: m.Vectors}, "delete", records, nil); err != nil && !missing(err) {
				return err
			}
		}
		if m.Revision != revision {
			if err := s.client.do(ctx, from, "delete", records, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// upsert is the body of a request.
type upsert struct {
	ids        []string
	embeddings [][]float32
	documents  []string
	metadatas  []metadata
}

func (u *upsert) add(m metadata, v []float32, document string) {
	u.ids = append(u.ids, recordOf(m.Key, m.Revision))
	u.embeddings = append(u.embeddings, v)
	u.documents = append(u.documents, document)
	u.metadatas = append(u.metadatas, m)
}

func (u *upsert) body() map[string]any {
	return map[string]any{"ids": u.ids, "embeddings": u.embeddings, "documents": u.documents, "metadatas": u.metadatas}
}

// document returns terms such that each is between spaces.
func document(terms []string) string { return " " + strings.Join(terms, " ") + " " }

func metadataOf(e index.Entry) (metadata, error) {
	data, err := json.Marshal(e.Memory)
	return metadata{
		Agent: string(e.Agent), Key: keyOf(e.Key()), Revision: e.Revision, Kind: string(e.Kind), Model: e.Model, Data: string(data),
	}, err
}

// entry returns the entry, without its vector.
func (m metadata) entry() (e index.Entry, err error) {
	e = index.Entry{Revision: m.Revision, Model: m.Model}
	if err := json.Unmarshal([]byte(m.Data), &e.Memory); err != nil {
		return e, fmt.Errorf("the memory in record %s is not JSON: %w", recordOf(m.Key, m.Revision), err)
	}
	return e, nil
}
