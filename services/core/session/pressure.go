package session

import (
	"sync"
	"time"

	"skandha.dev/pkg/subject"
)

// pressure counts the inputs of each writer that were delivered to this core and are not done.
type pressure struct {
	limit  int // 0: nothing is reported
	report func(w subject.Writer, waiting int)

	mu      sync.Mutex
	inputs  map[uint64]subject.Writer // by sequence
	writers map[subject.Writer]*burden
}

// burden is what a writer has waiting.
type burden struct {
	n    int
	over bool      // it was reported to be over the limit
	said time.Time // when it was reported last
}

// reportEvery is how often a writer is reported while it is over the limit.
const reportEvery = 2 * time.Second

func newPressure(limit int, report func(subject.Writer, int)) *pressure {
	return &pressure{limit: limit, report: report, inputs: map[uint64]subject.Writer{}, writers: map[subject.Writer]*burden{}}
}

// add counts an input; a redelivery counts once.
func (p *pressure) add(seq uint64, w subject.Writer) {
	if p.limit <= 0 || p.report == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.inputs[seq]; known {
		return
	}
	p.inputs[seq] = w
	b := p.writers[w]
	if b == nil {
		b = &burden{}
		p.writers[w] = b
	}
	b.n++
	p.judge(w, b)
}

// done counts an input no more.
func (p *pressure) done(seq uint64) {
	if p.limit <= 0 || p.report == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w, known := p.inputs[seq]
	if !known {
		return
	}
	delete(p.inputs, seq)
	b := p.writers[w]
	b.n--
	p.judge(w, b)
	if b.n == 0 {
		delete(p.writers, w)
	}
}

// clear counts nothing any more: the log was lost.
func (p *pressure) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.inputs)
	clear(p.writers)
}

// judge reports a writer that is over the limit, again and again, and once when it has come down to half of it. The
// caller holds the lock; report does not wait.
func (p *pressure) judge(w subject.Writer, b *burden) {
	switch {
	case b.n >= p.limit || b.over && b.n > p.limit/2:
		if b.over && time.Since(b.said) < reportEvery {
			return
		}
		b.over = true
	case b.over:
		b.over = false
	default:
		return
	}
	b.said = time.Now()
	n := b.n
	if !b.over {
		n = 0
	}
	p.report(w, n)
}
