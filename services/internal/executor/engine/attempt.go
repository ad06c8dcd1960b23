package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/text"
)

// Watcher is a caller that receives the answers about an attempt, such as a
// *bus.Request. Reply must not retain the bytes.
type Watcher interface {
	Reply(data []byte) error
}

// phase is an attempt's progress. It only increases.
type phase int

const (
	waiting phase = iota // for a slot
	ready                // has a slot and will start, unless it is stopped first
	running              // has begun
	done                 // has its final answer
)

// attempt is a (call, attempt) that waits, runs, or whose result is kept.
type attempt struct {
	key
	parent   context.Context //nolint:containedctx // the request's trace, for the work
	req      executor.Request
	pool     *pool
	limit    time.Duration // how long it may run
	progress atomic.Pointer[string]
	done     chan struct{} // closed with phase done

	// sending is held while answers are sent to the watchers, so that nothing follows
	// the final answer.
	sending sync.Mutex

	// Guarded by the lock of Attempts.
	phase    phase
	began    time.Time
	cancel   context.CancelFunc // of the work
	stopping bool               // a caller has asked to stop it
	released bool               // no caller will need its result
	monitor  *time.Timer        // starts [Attempts.monitor]
	final    []byte             // the final answer
	kept     bool               // the final answer is a result that waits for its release
	expires  time.Time          // when a kept result is dropped without a release
	heard    time.Time          // when a kept result was last sent, or asked for
	watchers []Watcher
}

func (a *attempt) watch(w Watcher) {
	if w == nil {
		return
	}
	if len(a.watchers) >= MaxWatchers {
		a.watchers = append(a.watchers[:0], a.watchers[1:]...)
	}
	a.watchers = append(a.watchers, w)
}

// awaitSent returns when the attempt has its final answer and the answer was sent to
// the watchers.
func (a *attempt) awaitSent() {
	<-a.done
	a.sending.Lock() // held from before done until the answer was sent
	defer a.sending.Unlock()
}

func (a *attempt) setProgress(s string) {
	s = text.Cut(s, maxProgress)
	a.progress.Store(&s)
}

// pool is a number of slots and the attempts that wait for them, oldest first.
type pool struct {
	name       string
	slots      int
	maxWaiting int
	running    int // slots in use, by attempts that are ready or running, or by work that does not return
	queue      []*attempt
}

func (p *pool) full() bool { return p.running >= p.slots }

func (p *pool) next() *attempt {
	if len(p.queue) == 0 {
		return nil
	}
	a := p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	return a
}

func (p *pool) remove(a *attempt) {
	for i, q := range p.queue {
		if q == a {
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			return
		}
	}
}
