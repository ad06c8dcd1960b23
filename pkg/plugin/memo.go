package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// What a memo remembers at most. Beyond it the oldest answers are forgotten.
const (
	memoAnswers = 4096
	memoBytes   = 64 << 20
)

// memo remembers answers, so that the same question asked twice is answered twice
// and handled once. Errors are not remembered: they are no answer.
type memo struct {
	mu      sync.Mutex
	answers map[string]*answer
	order   []string // of the finished ones, oldest first
	bytes   int
}

type answer struct {
	ready chan struct{} // closed when body and err stand
	body  []byte
	err   error
}

func newMemo() *memo { return &memo{answers: map[string]*answer{}} }

// do gives the answer to the question called key. The first to ask computes it;
// who asks meanwhile waits for it until its own context ends.
func (m *memo) do(ctx context.Context, key string, compute func() ([]byte, error)) ([]byte, error) {
	m.mu.Lock()
	if a, ok := m.answers[key]; ok {
		m.mu.Unlock()
		select {
		case <-a.ready:
			return a.body, a.err
		case <-ctx.Done():
			return nil, fmt.Errorf("the first time this was asked it is still being answered: %w", ctx.Err())
		}
	}
	a := &answer{ready: make(chan struct{}), err: errors.New("the handler ended without an answer")}
	m.answers[key] = a
	m.mu.Unlock()
	defer m.finish(key, a) // also when compute panics or calls runtime.Goexit
	a.body, a.err = compute()
	return a.body, a.err
}

func (m *memo) finish(key string, a *answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(a.ready)
	if a.err != nil {
		delete(m.answers, key)
		return
	}
	m.order = append(m.order, key)
	m.bytes += len(a.body)
	for len(m.order) > memoAnswers || m.bytes > memoBytes && len(m.order) > 1 {
		oldest := m.order[0]
		m.bytes -= len(m.answers[oldest].body)
		delete(m.answers, oldest)
		m.order = m.order[1:]
	}
}
