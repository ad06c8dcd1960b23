package pool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

const (
	// shares bounds an owner: it gets another sandbox only while it has fewer than this
	// many times the sandboxes that are free for others. A single owner may have two thirds
	// of all.
	shares = 2
	// advice ends the errors of callers that got no sandbox.
	advice = "try again when calls have finished, /reset sessions that no longer need theirs, " +
		"or raise SKANDHA_SANDBOX_MAX"
)

// Want is a caller that waits for a place.
type Want struct {
	Owner string
	// Own reports that only a sandbox of the same owner frees a place: the owner has its
	// share.
	Own bool
}

// Blocked returns the callers for which neither a starting sandbox nor one that is being
// destroyed will free a place, in the order in which they are served.
func (p *Pool) Blocked() []Want {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.blocked)
}

// holdings counts the sandboxes of each owner, including those that are starting for it.
type holdings struct {
	of   map[string]int
	free int // sandboxes without an owner
}

func (p *Pool) holdings() holdings {
	h := holdings{map[string]int{}, p.cfg.Max}
	for _, owner := range p.used {
		h.give(owner)
	}
	for _, w := range p.waiters {
		if w.started {
			h.give(w.owner)
		}
	}
	return h
}

func (h *holdings) give(owner string) { h.of[owner]++; h.free-- }

// admits reports whether the owner may have another sandbox once there is a place.
func (h *holdings) admits(owner string) bool {
	return h.of[owner] == 0 || h.free <= 0 || h.of[owner] < shares*h.free
}

// queue returns the waiters in the order in which they are served: owners in turn, those
// with the fewest sandboxes first, and the waiters of one owner in the order of arrival.
func (p *Pool) queue(h holdings) []*waiter {
	ahead := make(map[*waiter]int, len(p.waiters))
	has := map[string]int{}
	for _, w := range p.waiters {
		ahead[w] = h.of[w.owner] + has[w.owner]
		has[w.owner]++
	}
	out := slices.Clone(p.waiters)
	slices.SortStableFunc(out, func(a, b *waiter) int { return cmp.Compare(ahead[a], ahead[b]) })
	return out
}

// first returns the waiter that gets the next clean sandbox, or nil.
func (p *Pool) first() *waiter {
	h := p.holdings()
	for _, w := range p.queue(h) {
		if w.set == "" && h.admits(w.owner) {
			return w
		}
	}
	return nil
}

// canServe reports whether a waiter may have a sandbox.
func (p *Pool) canServe() bool {
	own := 0
	for _, w := range p.blocked {
		if w.Own {
			own++
		}
	}
	return len(p.waiters) > own
}

// waiting returns how many sandboxes an owner waits for.
func (p *Pool) waiting(owner string) (n int) {
	for _, w := range p.waiters {
		if w.owner == owner {
			n++
		}
	}
	return n
}

// full returns why an owner got no sandbox, for the model and for people.
func (p *Pool) full(owner string, why error) error {
	h := p.holdings()
	if has := h.of[owner]; !h.admits(owner) {
		return &fullError{fmt.Sprintf("%v: this user has %d of %d with this agent, "+
			"and the rest is reserved for other users; %s",
			ErrFull, has, p.cfg.Max, advice), why}
	}
	return &fullError{fmt.Sprintf("%v (the limit is %d); %s", ErrFull, p.cfg.Max, advice), why}
}

// fullError is [ErrFull] with a text that says what to do.
type fullError struct {
	text  string
	cause error // why the wait ended
}

func (e *fullError) Error() string   { return e.text }
func (e *fullError) Unwrap() []error { return []error{ErrFull, e.cause} }

// errQueue is the cause when too many calls wait for one owner already.
var errQueue = errors.New("too many calls are waiting")
