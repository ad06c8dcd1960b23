package session

import (
	"sync"

	"skandha.dev/services/core/attempt"
)

// mailbox is an unbounded queue, so that a subscription's callback never waits for a
// session. It holds only what was sent to the session. Mail that a turn waits for is
// taken first, so that the turn continues before the next input is processed.
type mailbox struct {
	mu         sync.Mutex
	turn       []any // answers of executors, and notifications of free slots
	mail       []any
	urgentMail int // number of urgent messages
	signal     chan struct{}
}

func newMailbox() mailbox { return mailbox{signal: make(chan struct{}, 1)} }

// isUrgent reports whether mail is more urgent than storing an input: it advances a
// turn, or is a user's message about it.
func isUrgent(m any) bool {
	switch m := m.(type) {
	case attempt.Answer:
		return m.Gone || m.State.Final()
	case delivery:
		return !m.queues
	}
	return true
}

func (b *mailbox) put(m any) {
	b.mu.Lock()
	switch m.(type) {
	case attempt.Answer, pokeMail:
		b.turn = append(b.turn, m)
	default:
		b.mail = append(b.mail, m)
	}
	if isUrgent(m) {
		b.urgentMail++
	}
	b.mu.Unlock()
	b.ring()
}

// ring wakes the session.
func (b *mailbox) ring() {
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

func (b *mailbox) take() (any, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := &b.turn
	if len(*from) == 0 {
		from = &b.mail
	}
	if len(*from) == 0 {
		return nil, false
	}
	m := (*from)[0]
	(*from)[0] = nil
	if *from = (*from)[1:]; len(*from) == 0 {
		*from = nil
	}
	if isUrgent(m) {
		b.urgentMail--
	}
	return m, true
}

// urgent reports whether there is urgent mail.
func (b *mailbox) urgent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.urgentMail > 0
}

// turnless reports whether there is mail, but none for the turn.
func (b *mailbox) turnless() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.turn) == 0 && len(b.mail) > 0
}

func (b *mailbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.turn)+len(b.mail) == 0
}

// takeDeliveries takes only the deliveries, and leaves the rest in order.
func (b *mailbox) takeDeliveries() []delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []delivery
	rest := b.mail[:0:0]
	for _, m := range b.mail {
		if d, is := m.(delivery); is {
			if out = append(out, d); isUrgent(m) {
				b.urgentMail--
			}
		} else {
			rest = append(rest, m)
		}
	}
	b.mail = rest
	return out
}
