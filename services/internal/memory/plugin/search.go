package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/memory"
	sdk "skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	index "skandha.dev/services/internal/memory"
)

// maxPage is how many records are asked for at once. A plugin that answers too_large is
// asked for fewer.
const maxPage = 200

// Get implements memory.Store.
func (s *Store) Get(ctx context.Context, key index.Key) (e index.Entry, err error) {
	if err := key.Check(); err != nil {
		return e, err
	}
	err = s.do(ctx, "get", func() error {
		r, err := s.read(ctx, name{key.Agent, keyOf(key.ID)})
		if err != nil {
			return err
		}
		if r.Version == "" {
			return index.ErrNotFound
		}
		if e, err = entryOf(r, key.Agent); err != nil {
			return err
		}
		e, err = vectorOf(r, e)
		return err
	})
	if err != nil {
		return index.Entry{}, err
	}
	return e, nil
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
		page, next = nil, ""
		q := sdk.IndexRequest{Verb: sdk.List, Agent: agent, Kinds: texts(kinds), After: orderOf(from)}
		found, err := s.pages(ctx, q, limit+1, func(e index.Entry) string { return orderOf(index.CursorOf(e.Memory)) })
		for _, e := range found[:min(limit, len(found))] {
			page = append(page, e.Memory)
		}
		if len(found) > limit {
			next = index.CursorOf(page[limit-1]).String()
		}
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

// Unembedded implements memory.Store.
func (s *Store) Unembedded(ctx context.Context, model string, after uint64, limit int) (out []index.Entry, err error) {
	if err := index.CheckModel(model); err != nil {
		return nil, err
	}
	err = s.do(ctx, "unembedded", func() error {
		q := sdk.IndexRequest{Verb: sdk.Pending, Without: model, After: sortable(after)}
		out, err = s.pages(ctx, q, index.PageSize(limit), func(e index.Entry) string { return sortable(e.Revision) })
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// pages returns up to limit entries, in the order of their places.
func (s *Store) pages(
	ctx context.Context, q sdk.IndexRequest, limit int, place func(index.Entry) string,
) (out []index.Entry, err error) {
	most := maxPage
	for len(out) < limit {
		q.Limit = min(most, limit-len(out))
		found, err := s.ask(ctx, q)
		if errors.Is(err, bus.ErrTooLarge) && q.Limit > 1 {
			most = q.Limit / 2
			continue
		}
		if err != nil {
			return nil, err
		}
		entries, err := entriesOf(found, q)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if place(e) <= q.After {
				return nil, fmt.Errorf("its answer to %s is not in order, or begins too early", q.Verb)
			}
			q.After = place(e)
		}
		if out = append(out, entries...); len(entries) < q.Limit {
			break
		}
	}
	return out, nil
}

// entriesOf checks the records of an answer, and returns their entries without vectors.
func entriesOf(found []sdk.Record, q sdk.IndexRequest) ([]index.Entry, error) {
	if len(found) > q.Limit {
		return nil, fmt.Errorf("it answered %s with %d records, asked for at most %d", q.Verb, len(found), q.Limit)
	}
	out := make([]index.Entry, len(found))
	seen := map[name]bool{}
	for i, r := range found {
		e, err := entryOf(r, q.Agent)
		switch {
		case errors.Is(err, index.ErrNotFound):
			return nil, fmt.Errorf("it answered %s with a record without order", q.Verb)
		case err != nil:
			return nil, err
		case seen[name{r.Agent, r.Key}]:
			return nil, fmt.Errorf("it answered %s with the record %.80q twice", q.Verb, r.Key)
		case len(q.Kinds) > 0 && !slices.Contains(q.Kinds, string(e.Kind)):
			return nil, fmt.Errorf("it answered %s with a record of the kind %s, asked for %s", q.Verb, e.Kind, q.Kinds)
		}
		seen[name{r.Agent, r.Key}] = true
		out[i] = e
	}
	return out, nil
}

// Search implements memory.Store.
func (s *Store) Search(ctx context.Context, q index.Query) (hits []memory.Hit, err error) {
	if q, err = q.Prepare(); err != nil {
		return nil, err
	}
	err = s.do(ctx, "search", func() error {
		near, err := s.near(ctx, q)
		if err != nil {
			return err
		}
		sharing, err := s.sharing(ctx, q)
		if err != nil {
			return err
		}
		sharing = slices.DeleteFunc(sharing, func(h memory.Hit) bool { // it got its vector meanwhile
			return slices.ContainsFunc(near, func(n memory.Hit) bool { return n.ID == h.ID })
		})
		hits = index.Merge(near, sharing, q.Limit)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return hits, nil
}

// near ranks the records with a vector of the query's model.
func (s *Store) near(ctx context.Context, q index.Query) ([]memory.Hit, error) {
	if q.Vector == nil {
		return nil, nil
	}
	model, err := s.read(ctx, name{keeper, modelKey(q.Model)})
	if err != nil || model.Version == "" {
		return nil, err
	}
	if err := checkDimension(q.Model, len(q.Vector), model.Version); err != nil {
		return nil, err
	}
	return s.rank(ctx, q, sdk.IndexRequest{Model: q.Model, Vector: q.Vector}, memory.Semantic)
}

// sharing ranks the other records by words.
func (s *Store) sharing(ctx context.Context, q index.Query) ([]memory.Hit, error) {
	terms := index.Terms(q.Text)
	if len(terms) == 0 {
		return nil, nil
	}
	return s.rank(ctx, q, sdk.IndexRequest{Words: strings.Join(terms, " "), Without: q.Model}, memory.Lexical)
}

func (s *Store) rank(ctx context.Context, q index.Query, r sdk.IndexRequest, match memory.Match) ([]memory.Hit, error) {
	r.Verb, r.Agent, r.Kinds, r.Limit = sdk.Rank, q.Agent, texts(q.Kinds), q.Limit
	found, err := s.ask(ctx, r)
	for ; errors.Is(err, bus.ErrTooLarge) && r.Limit > 1; found, err = s.ask(ctx, r) {
		r.Limit /= 2 // the best are found all the same
	}
	if err != nil {
		return nil, err
	}
	entries, err := entriesOf(found, r)
	if err != nil {
		return nil, err
	}
	var hits []memory.Hit
	for i, e := range entries {
		if match == memory.Lexical && found[i].Score <= 0 {
			return nil, fmt.Errorf("it ranked the record %.80q by words with the score %v", found[i].Key, found[i].Score)
		}
		hits = append(hits, memory.Hit{Memory: e.Memory, Score: found[i].Score, Match: match})
	}
	return index.Rank(hits, q.Limit), nil
}

func texts(kinds []memory.Kind) (out []string) {
	for _, k := range kinds {
		if !slices.Contains(out, string(k)) {
			out = append(out, string(k))
		}
	}
	return out
}
