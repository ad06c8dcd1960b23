package agui

import (
	"container/list"
	"sync"

	"skandha.dev/pkg/subject"
)

// sentRequests remembers the confirmation requests recently sent to principals, and the
// position of runs that they interrupted.
type sentRequests struct {
	mu    sync.Mutex
	known map[sentKey]*list.Element
	order *list.List // of *sentRequest, latest first
}

type sentKey struct {
	principal string
	ref       subject.Ref
	id        string
}

type sentRequest struct {
	key   sentKey
	hash  string
	after string           // "" unless the run was interrupted
	calls map[string]*call // likewise
}

// maxSent limits the requests that are remembered.
const maxSent = 4096

func newSentRequests() *sentRequests {
	return &sentRequests{known: map[sentKey]*list.Element{}, order: list.New()}
}

func (s *sentRequests) put(e sentRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.known[e.key]; old != nil {
		s.order.Remove(old)
	}
	s.known[e.key] = s.order.PushFront(&e)
	for s.order.Len() > maxSent {
		last := s.order.Back()
		delete(s.known, last.Value.(*sentRequest).key)
		s.order.Remove(last)
	}
}

func (s *sentRequests) get(k sentKey) (sentRequest, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.known[k]
	if e == nil {
		return sentRequest{}, false
	}
	return *e.Value.(*sentRequest), true
}
