package memory

import (
	"slices"

	"skandha.dev/pkg/memory"
	"skandha.dev/services/internal/lexical"
)

// Item is what is compared of one memory. It is immutable.
type Item struct {
	Cursor

	Revision uint64
	Kind     memory.Kind
	Terms    []string
	Model    string
	Vector   []float32
	Memory   *memory.Memory // nil in Items that keep only what is compared
}

// Items is an agent's memories as a process keeps them, so that it can compare them by
// itself. The zero Items is empty. Only implementations of Store use it.
type Items struct {
	Whole bool // keep the memories, so that hits are complete

	byID  map[string]*Item
	order []*Item // replaced, never changed; nil: not sorted yet
}

// Change replaces the memories with these ids by those of the entries.
func (x *Items) Change(ids []string, entries []Entry) {
	if len(ids) == 0 {
		return
	}
	if x.byID == nil {
		x.byID = make(map[string]*Item, len(entries))
	}
	for _, id := range ids {
		delete(x.byID, id)
	}
	for _, e := range entries {
		i := &Item{CursorOf(e.Memory), e.Revision, e.Kind, lexical.Terms(e.Text), e.Model, e.Vector, nil}
		if x.Whole {
			i.Memory = &e.Memory
		}
		x.byID[e.ID] = i
	}
	x.order = nil
}

// Newest returns all items, newest first. The caller must not change the slice.
func (x *Items) Newest() []*Item {
	if x.order == nil {
		x.order = make([]*Item, 0, len(x.byID))
		for _, i := range x.byID {
			x.order = append(x.order, i)
		}
		slices.SortFunc(x.order, func(a, b *Item) int { return a.Compare(b.Cursor) })
	}
	return x.order
}

// Bytes returns about the size of all vectors and words, and of the texts of memories that are
// kept.
func (x *Items) Bytes() (n int) {
	const header = 16 // of a string
	for _, i := range x.byID {
		n += 4 * len(i.Vector)
		for _, t := range i.Terms {
			n += header + len(t)
		}
		if i.Memory != nil {
			n += len(i.Memory.Text)
		}
	}
	return n
}

// Nearest ranks the items, newest first, that have a vector of the query's model, and returns
// the other ones of its kinds. Without the memories, only the ids of hits are set.
func Nearest(items []*Item, q Query) (near []memory.Hit, others []*Item) {
	best := nearest{make([]candidate, 0, q.Limit+1)}
	for _, i := range items {
		switch {
		case !q.Includes(i.Kind):
		case q.Vector == nil || len(i.Vector) != len(q.Vector) || i.Model != q.Model:
			others = append(others, i)
		default:
			best.add(candidate{i, Dot(i.Vector, q.Vector)})
		}
	}
	for _, c := range best.list {
		near = append(near, c.hit(c.score, memory.Semantic))
	}
	return near, others
}

type candidate struct {
	*Item

	score float64
}

// nearest keeps the best candidates, best first, one less than it has room for. Of equals, those
// that came first stay.
type nearest struct{ list []candidate }

func (n *nearest) add(c candidate) {
	if full := len(n.list) == cap(n.list)-1; full && c.score <= n.list[len(n.list)-1].score {
		return
	}
	at := len(n.list)
	for at > 0 && n.list[at-1].score < c.score {
		at--
	}
	n.list = slices.Insert(n.list, at, c)
	n.list = n.list[:min(len(n.list), cap(n.list)-1)]
}

// Sharing ranks items, newest first, by the words that they share with the query. Without the
// memories, only the ids of hits are set.
func Sharing(items []*Item, q Query) (hits []memory.Hit) {
	terms := Terms(q.Text)
	if len(terms) == 0 || len(items) == 0 {
		return nil
	}
	b := lexical.NewBuilder(terms...)
	for _, i := range slices.Backward(items) {
		b.Add(i.Terms...)
	}
	for _, h := range b.Index().Search(terms, q.Limit) {
		hits = append(hits, items[len(items)-1-h.Text].hit(h.Score, memory.Lexical))
	}
	return hits
}

func (i *Item) hit(score float64, match memory.Match) memory.Hit {
	h := memory.Hit{Memory: memory.Memory{ID: i.ID}, Score: score, Match: match}
	if i.Memory != nil {
		h.Memory = *i.Memory
	}
	return h
}
