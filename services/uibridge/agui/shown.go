package agui

import (
	"container/list"
	"sync"

	"skandha.dev/pkg/subject"
)

// shown keeps, for the principals to whom confirmation requests were shown lately, what
// they were shown, and where a run stood that was interrupted by them.
type shown struct {
	mu    sync.Mutex
	known map[shownKey]*list.Element
	order *list.List // of *shownEntry, the latest first
}

type shownKey struct {
	principal string
	ref       subject.Ref
	id        string
}

type shownEntry struct {
	key   shownKey
	hash  string
	after string           // "" unless the run was interrupted
	calls map[string]*call // likewise
}

// maxShown bounds what is kept.
const maxShown = 4096

func newShown() *shown { return &shown{known: map[shownKey]*list.Element{}, order: list.New()} }

func (s *shown) put(e shownEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.known[e.key]; old != nil {
		s.order.Remove(old)
	}
	s.known[e.key] = s.order.PushFront(&e)
	for s.order.Len() > maxShown {
		last := s.order.Back()
		delete(s.known, last.Value.(*shownEntry).key)
		s.order.Remove(last)
	}
}

func (s *shown) get(k shownKey) (shownEntry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.known[k]
	if e == nil {
		return shownEntry{}, false
	}
	return *e.Value.(*shownEntry), true
}
