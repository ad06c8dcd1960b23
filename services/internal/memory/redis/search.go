package redis

import (
	"cmp"
	"context"
	"slices"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	index "skandha.dev/services/internal/memory"
)

// Get implements memory.Store.
func (s *Store) Get(ctx context.Context, key index.Key) (e index.Entry, err error) {
	if err := key.Check(); err != nil {
		return e, err
	}
	err = s.do(ctx, "get", func() error {
		found, err := s.fetch(ctx, key.Agent, []string{key.ID})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return index.ErrNotFound
		}
		e = found[0]
		return nil
	})
	return e, err
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
		items, err := s.look(ctx, agent)
		if err != nil {
			return err
		}
		var ids []string
		ids, next = pageOf(items, from, kinds, limit)
		entries, err := s.fetch(ctx, agent, ids)
		page = nil
		for _, e := range entries {
			page = append(page, e.Memory)
		}
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

// pageOf returns the ids of a page of items, and the cursor of the next one.
func pageOf(items []*index.Item, after index.Cursor, kinds []memory.Kind, limit int) (ids []string, next string) {
	for _, i := range items {
		switch {
		case after.Compare(i.Cursor) >= 0 || !(index.Query{Kinds: kinds}).Includes(i.Kind):
		case len(ids) == limit:
			return ids, after.String()
		default:
			ids, after = append(ids, i.ID), i.Cursor
		}
	}
	return ids, ""
}

// Unembedded implements memory.Store.
func (s *Store) Unembedded(ctx context.Context, model string, after uint64, limit int) (out []index.Entry, err error) {
	if err := index.CheckModel(model); err != nil {
		return nil, err
	}
	limit = index.PageSize(limit)
	err = s.do(ctx, "unembedded", func() error {
		out = nil
		agents, err := s.conn.Client.SMembers(ctx, s.agents()).Result()
		if err != nil {
			return damage(err, s.agents())
		}
		for _, agent := range agents {
			found, err := s.unembedded(ctx, subject.Agent(agent), model, after, limit)
			if err != nil {
				return err
			}
			out = append(out, found...)
		}
		slices.SortFunc(out, func(a, b index.Entry) int { return cmp.Compare(a.Revision, b.Revision) })
		out = out[:min(limit, len(out))]
		return nil
	})
	return out, err
}

func (s *Store) unembedded(
	ctx context.Context, agent subject.Agent, model string, after uint64, limit int,
) ([]index.Entry, error) {
	items, err := s.look(ctx, agent)
	if err != nil {
		return nil, err
	}
	var left []*index.Item
	for _, i := range items {
		if i.Model != model && i.Revision > after {
			left = append(left, i)
		}
	}
	slices.SortFunc(left, func(a, b *index.Item) int { return cmp.Compare(a.Revision, b.Revision) })
	var ids []string
	for _, i := range left[:min(limit, len(left))] {
		ids = append(ids, i.ID)
	}
	entries, err := s.fetch(ctx, agent, ids)
	for i := range entries {
		entries[i].Model, entries[i].Vector = "", nil
	}
	return entries, err
}

// Search implements memory.Store.
func (s *Store) Search(ctx context.Context, q index.Query) (hits []memory.Hit, err error) {
	if q, err = q.Prepare(); err != nil {
		return nil, err
	}
	err = s.do(ctx, "search", func() error {
		if q.Vector != nil {
			if err := s.checkDimension(ctx, q.Model, len(q.Vector)); err != nil {
				return err
			}
		}
		items, err := s.look(ctx, q.Agent)
		if err != nil {
			return err
		}
		near, others := index.Nearest(items, q)
		hits, err = s.complete(ctx, q.Agent, index.Merge(near, index.Sharing(others, q), q.Limit))
		return err
	})
	return hits, err
}

// complete reads the memories of hits. It omits those that were removed meanwhile.
func (s *Store) complete(ctx context.Context, agent subject.Agent, hits []memory.Hit) (out []memory.Hit, err error) {
	var ids []string
	for _, h := range hits {
		ids = append(ids, h.ID)
	}
	entries, err := s.fetch(ctx, agent, ids)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		h := hits[slices.IndexFunc(hits, func(h memory.Hit) bool { return h.ID == e.ID })]
		h.Memory = e.Memory
		out = append(out, h)
	}
	return out, nil
}
