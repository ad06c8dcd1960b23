package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// The limits of a memo. Beyond them, the oldest answers are dropped.
const (
	memoAnswers = 4096
	memoBytes   = 64 << 20
)

// errForgotten means that a question was answered, and that the answer was dropped.
var errForgotten = errors.New("the request was answered before, and the answer is no longer stored")

// memo remembers answers, so that a request that arrives twice is answered twice and handled
// once. Errors are not remembered, because they are not answers.
type memo struct {
	mu        sync.Mutex
	answers   map[string]*answer
	order     []string // of the finished ones, oldest first
	bytes     int
	forgotten map[string]time.Time // requests whose answers were dropped, and until when they may be repeated
	purgeAt   int                  // size of forgotten at which expired entries are removed
}

type answer struct {
	ready chan struct{} // closed when body and err are set
	until time.Time     // do not handle the request again before; zero if it may be
	body  []byte
	err   error
}

func newMemo() *memo {
	return &memo{answers: map[string]*answer{}, forgotten: map[string]time.Time{}, purgeAt: memoAnswers}
}

// question identifies a request to a memo.
type question struct {
	key string
	// once is the time until which the request must not be handled again, even if its
	// answer was dropped; zero if it may be.
	once  time.Time
	yield func() // releases the request's slot while an earlier copy is being answered
}

// do returns the answer to a request. The first caller computes it; callers that arrive in
// the meantime wait for it, each until its context ends.
func (m *memo) do(ctx context.Context, q question, compute func() ([]byte, error)) ([]byte, error) {
	m.mu.Lock()
	if a, ok := m.answers[q.key]; ok {
		m.mu.Unlock()
		q.yield()
		select {
		case <-a.ready:
			return a.body, a.err
		case <-ctx.Done():
			return nil, fmt.Errorf("the same request is still being handled: %w", ctx.Err())
		}
	}
	if until, ok := m.forgotten[q.key]; ok && time.Now().Before(until) {
		m.mu.Unlock()
		return nil, errForgotten
	}
	a := &answer{ready: make(chan struct{}), until: q.once, err: errNoAnswer}
	m.answers[q.key] = a
	m.mu.Unlock()
	defer m.finish(q.key, a) // also when compute panics or calls runtime.Goexit
	a.body, a.err = compute()
	return a.body, a.err
}

// errNoAnswer is the outcome until the handler returns: one that did not return may have had
// an effect.
var errNoAnswer = errors.New("the handler ended without an answer")

func (m *memo) finish(key string, a *answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(a.ready)
	if a.err != nil {
		delete(m.answers, key)
		if errors.Is(a.err, errNoAnswer) {
			m.forget(key, a)
		}
		return
	}
	m.order = append(m.order, key)
	m.bytes += len(a.body)
	for len(m.order) > memoAnswers || m.bytes > memoBytes && len(m.order) > 1 {
		oldest := m.order[0]
		old := m.answers[oldest]
		m.bytes -= len(old.body)
		delete(m.answers, oldest)
		m.order = m.order[1:]
		m.forget(oldest, old)
	}
}

// forget drops the answer to a request. It remembers only that the request was handled, for
// as long as it may arrive again.
func (m *memo) forget(key string, a *answer) {
	now := time.Now()
	if !now.Before(a.until) {
		return
	}
	m.forgotten[key] = a.until
	if len(m.forgotten) < m.purgeAt {
		return
	}
	for k, until := range m.forgotten {
		if !now.Before(until) {
			delete(m.forgotten, k)
		}
	}
	m.purgeAt = max(memoAnswers, 2*len(m.forgotten))
}
