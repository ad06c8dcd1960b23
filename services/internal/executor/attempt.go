package executor

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/executor"
)

// Watcher is a caller that wants to know what becomes of an attempt; a
// *bus.Request is one. Reply must not keep the bytes.
type Watcher interface {
	Reply(data []byte) error
}

// phase is where an attempt stands. It only ever grows.
type phase int

const (
	waiting phase = iota // for a slot
	ready                // has a slot and will be started, unless it is stopped first
	running              // has begun
	done                 // its final answer stands
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

	// saying is held while the watchers are told something, so that nothing
	// follows the final answer.
	saying sync.Mutex

	// Guarded by the table's lock.
	phase    phase
	began    time.Time
	cancel   context.CancelFunc // of the work
	stopping bool               // somebody asked to stop it
	released bool               // nobody will want its result
	minder   *time.Timer        // starts [Table.mind]
	final    []byte             // the final answer
	kept     bool               // the final answer is a result, and waits for its release
	expires  time.Time          // when it is forgotten without one
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

// awaitTold returns when the final answer stands and the watchers were told.
func (a *attempt) awaitTold() {
	<-a.done
	a.saying.Lock() // is held from before the one until after the other
	defer a.saying.Unlock()
}

func (a *attempt) setProgress(s string) {
	s = clip(s, MaxProgress)
	a.progress.Store(&s)
}

// pool is a number of slots and what waits for them, oldest first.
type pool struct {
	name    string
	slots   int
	room    int // how many may wait
	running int // slots that are taken, by attempts that are ready or running, or by work that does not end
	queue   []*attempt
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
