package engine

import (
	"slices"

	"skandha.dev/services/internal/executor"
)

// Pools returns the pools with the number of their busy slots.
func (t *Attempts) Pools() []executor.Pool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.appendPools(nil)
}

func (t *Attempts) appendPools(out []executor.Pool) []executor.Pool {
	out = slices.Grow(out, len(t.order))
	for _, p := range t.order {
		out = append(out, executor.Pool{Name: p.name, Slots: p.slots, Busy: p.running + len(p.queue)})
	}
	return out
}

// Drain refuses waiting attempts and all new ones. The returned channel is closed when no
// attempt is running and all results are released.
func (t *Attempts) Drain() <-chan struct{} {
	t.mu.Lock()
	t.draining = true
	var refuse []*attempt
	for _, p := range t.order {
		refuse = append(refuse, p.queue...)
	}
	t.checkEmpty()
	t.mu.Unlock()
	for _, a := range refuse {
		t.conclude(a, waiting,
			executor.Answer{State: executor.Refused, Reason: executor.RefusedDraining, Message: "the instance is draining"})
	}
	return t.empty
}

func (t *Attempts) checkEmpty() {
	if !t.draining || len(t.live) > 0 {
		return
	}
	select {
	case <-t.empty:
	default:
		close(t.empty)
	}
}

// StopAll drains, stops the running attempts and waits until all of them are answered.
func (t *Attempts) StopAll() {
	t.Drain() // otherwise waiting attempts would get the freed slots
	t.mu.Lock()
	var open []*attempt
	for _, a := range t.live {
		if a.phase != done {
			open = append(open, a)
		}
	}
	t.mu.Unlock()
	for _, a := range open {
		t.Stop(executor.Request{Call: a.call, Attempt: a.attempt}, nil)
	}
	for _, a := range open {
		a.awaitSent()
	}
}
