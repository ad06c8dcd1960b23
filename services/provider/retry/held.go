package retry

import (
	"context"
	"errors"
	"fmt"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
)

// maxHeld is how long a question is remembered at most: no turn lasts longer.
const maxHeld = time.Hour

// maxWaiting is how many questions may wait at a time: each holds a slot of the process, which its
// other providers need too, and the money that its answer may cost.
const maxWaiting = 4

// held is a question whose attempt failed, and which core may ask again.
type held struct {
	until time.Time // the API does not want to be asked before
	why   contract.Error
}

func question(ctx context.Context) string {
	id, _ := ctx.Value(questionKey{}).(string)
	return id
}

// charged reports whether the API has answered a try that core can repeat. It charges for that,
// whatever is wrong with the answer, so core decides whether it is asked again.
func charged(ctx context.Context) bool { return question(ctx) != "" && adapter.HasBegun(ctx) }

// wait waits until a question that failed before may be asked again. It fails at once if too
// little time would be left for the answer. A question that is new is never held, so that core
// can ask another provider meanwhile.
func (p *Policy) wait(ctx context.Context) error {
	p.mu.Lock()
	h, ok := p.held[question(ctx)]
	p.mu.Unlock()
	left := time.Until(h.until)
	if !ok || left <= 0 {
		return nil
	}
	waiting := p.waiting.Add(1)
	defer p.waiting.Add(-1)
	if end, ok := ctx.Deadline(); waiting > maxWaiting || ok && longest(left) > time.Until(end)*2/3 {
		e := h.why
		e.Message += fmt.Sprintf(" (it is not asked again: it wants a pause of %s)", left.Round(time.Second))
		e.RetryInMS = left.Milliseconds()
		return &e
	}
	pause := time.NewTimer(jittered(left))
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hold remembers how an attempt at a question ended, until it may be asked again. Where the API
// names no time, one that broke off has to wait, too; the others have waited between the tries.
func (p *Policy) hold(ctx context.Context, begun bool, err error) {
	id := question(ctx)
	if id == "" {
		return
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for old, h := range p.held {
		if h.until.Before(now) {
			delete(p.held, old)
		}
	}
	var e *contract.Error
	if !errors.As(err, &e) || !e.Retryable {
		return
	}
	pause := time.Duration(min(e.RetryInMS, maxHeld.Milliseconds())) * time.Millisecond
	if begun {
		pause = max(pause, p.cfg.Pause)
	}
	if pause > 0 {
		p.held[id] = held{now.Add(pause), *e}
	}
}
