package shell

import (
	"container/list"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

// stateCache keeps the states of sessions that are not open, most recently used
// first. A state may lag behind the log; the fence detects that. The caller must hold
// the owner's lock.
type stateCache struct {
	max   int
	order *list.List // of *decide.State
	index map[subject.Ref]*list.Element
}

func newStateCache(size int) *stateCache {
	return &stateCache{max: size, order: list.New(), index: map[subject.Ref]*list.Element{}}
}

func (c *stateCache) take(ref subject.Ref) *decide.State {
	e := c.index[ref]
	if e == nil {
		return nil
	}
	delete(c.index, ref)
	return c.order.Remove(e).(*decide.State)
}

func (c *stateCache) put(ref subject.Ref, s *decide.State) {
	c.index[ref] = c.order.PushFront(s)
	for c.order.Len() > c.max {
		last := c.order.Back()
		delete(c.index, c.order.Remove(last).(*decide.State).Ref)
	}
}
