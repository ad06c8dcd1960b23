package engine

import (
	"time"

	"skandha.dev/services/internal/executor"
)

// Ask attaches the watcher to an attempt, or leaves a tombstone for an unknown one.
func (t *Attempts) Ask(r executor.Request, w Watcher) {
	k := key{r.Call, r.Attempt}
	t.mu.Lock()
	if a := t.live[k]; a != nil {
		a.heard = time.Now()
	}
	answer := t.knownOrTombstone(k, w)
	t.mu.Unlock()
	answer()
}

func (t *Attempts) knownOrTombstone(k key, w Watcher) func() {
	if known := t.known(k, w); known != nil {
		return known
	}
	if validKey(k) == nil { // an attempt with an invalid id never runs
		t.past.put(k, wasNever)
	}
	return func() { t.send(w, t.encode(k, executor.Answer{State: executor.Never})) }
}

// Stop ends the attempt. The answer is "never" if it has not begun, "stopped" once its
// work has returned or the grace has passed, or its result if it has one.
func (t *Attempts) Stop(r executor.Request, w Watcher) {
	k := key{r.Call, r.Attempt}
	t.mu.Lock()
	a := t.live[k]
	if a == nil || a.phase == done {
		answer := t.knownOrTombstone(k, w)
		t.mu.Unlock()
		answer()
		return
	}
	a.watch(w)
	t.mu.Unlock()
	if t.conclude(a, ready, executor.Answer{State: executor.Never, Message: "it was stopped before it began"}) {
		return
	}
	t.mu.Lock()
	cancel := a.cancel
	first := a.phase == running && !a.stopping
	a.stopping = true
	t.mu.Unlock()
	if first {
		cancel()
	}
}

// Release drops the result of an attempt. An attempt that is running may continue; one
// that has not begun never will.
func (t *Attempts) Release(r executor.Request) {
	k := key{r.Call, r.Attempt}
	t.mu.Lock()
	a := t.live[k]
	if a == nil {
		if t.past.get(k) == noVerdict && validKey(k) == nil {
			t.past.put(k, wasNever)
		}
		t.mu.Unlock()
		return
	}
	a.released = true
	if a.kept {
		t.forget(a)
	}
	t.mu.Unlock()
	t.conclude(a, ready, executor.Answer{State: executor.Never, Message: "it was released before it began"})
}

// forget drops a kept result, but keeps the id.
func (t *Attempts) forget(a *attempt) {
	delete(t.live, a.key)
	t.kept -= int64(len(a.final))
	t.past.put(a.key, wasUnknown)
	t.checkEmpty()
}

// unheard is how long a drain waits for the release of a result that nobody asks for. A caller that lacks
// an answer asks every few seconds, so the release was lost, or there is nobody.
const unheard = 10 * time.Second

// Sweep drops the results that were not released in time.
func (t *Attempts) Sweep() {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.live {
		if a.kept && (now.After(a.expires) || t.draining && now.Sub(a.heard) > unheard) {
			t.forget(a)
		}
	}
}
