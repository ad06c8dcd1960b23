package scripted

import (
	"net/http"
	"slices"
	"sync"
)

// Queue is what the servers of several APIs have in common: a test's own answers, which come
// before the model's, and a note of each request R. The zero value is ready to use.
type Queue[R any] struct {
	mu   sync.Mutex
	next []http.HandlerFunc
	seen []R
}

// Next has the next requests answered by these handlers, one each; after them the model
// answers again.
func (q *Queue[R]) Next(handlers ...http.HandlerFunc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next = append(q.next, handlers...)
}

// Seen lists the requests that came, well-formed or not.
func (q *Queue[R]) Seen() []R {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.seen)
}

// Note adds a request, and returns the handler that answers it, nil if the model does.
func (q *Queue[R]) Note(r R) http.HandlerFunc {
	q.mu.Lock()
	q.seen = append(q.seen, r)
	q.mu.Unlock()
	return q.Take()
}

// Take returns the handler that answers a request of another kind, nil if the model does.
func (q *Queue[R]) Take() http.HandlerFunc {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.next) == 0 {
		return nil
	}
	h := q.next[0]
	q.next = q.next[1:]
	return h
}
