package pool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

const (
	// shares bounds an owner: it gets another sandbox only while it has fewer than this many
	// times the sandboxes that are free for others. Alone it may have two thirds of all.
	shares = 2
	// howToGetOne ends the errors of those who got none.
	howToGetOne = "try again when calls have ended, /reset sessions that need theirs no more, " +
		"or raise the number of sandboxes (SKANDHA_SANDBOX_MAX)"
)

// Want is somebody who waits for a place.
type Want struct {
	Owner string
	// Own says that only a sandbox of the same owner makes a place: it has its share.
	Own bool
}

// Blocked are those who wait for a place that no sandbox on its way, or being destroyed,
// makes: in the order in which they are served.
func (p *Pool) Blocked() []Want {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.blocked)
}

// holdings are how many sandboxes owners have, those on their way to one included.
type holdings struct {
	of   map[string]int
	free int // sandboxes that nobody has yet
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

// admits reports whether the owner may have another sandbox, if there is a place.
func (h *holdings) admits(owner string) bool {
	return h.of[owner] == 0 || h.free <= 0 || h.of[owner] < shares*h.free
}

// queue is the order in which those who wait are served: owners in turns, those with
// the fewest sandboxes first, and the waiters of one owner as they came.
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

// first is who gets the next clean sandbox, or nil.
func (p *Pool) first() *waiter {
	h := p.holdings()
	for _, w := range p.queue(h) {
		if w.set == "" && h.admits(w.owner) {
			return w
		}
	}
	return nil
}

// hurried reports whether somebody waits who may have a sandbox.
func (p *Pool) hurried() bool {
	own := 0
	for _, w := range p.blocked {
		if w.Own {
			own++
		}
	}
	return len(p.waiters) > own
}

// waiting is how many sandboxes an owner waits for.
func (p *Pool) waiting(owner string) (n int) {
	for _, w := range p.waiters {
		if w.owner == owner {
			n++
		}
	}
	return n
}

// full is why an owner got no sandbox, for the model and for people.
func (p *Pool) full(owner string, why error) error {
	h := p.holdings()
	if has := h.of[owner]; !h.admits(owner) {
		return &fullError{fmt.Sprintf("%v: this user has %d of %d with this agent, the others are kept for other users; %s",
			ErrFull, has, p.cfg.Max, howToGetOne), why}
	}
	return &fullError{fmt.Sprintf("%v (%d, the most that are allowed); %s", ErrFull, p.cfg.Max, howToGetOne), why}
}

// fullError is [ErrFull], in words that say what to do.
type fullError struct {
	text  string
	cause error // of the end of waiting
}

func (e *fullError) Error() string   { return e.text }
func (e *fullError) Unwrap() []error { return []error{ErrFull, e.cause} }

// errQueue is the cause when so many wait for one owner that it does not wait.
var errQueue = errors.New("too many calls wait already")
