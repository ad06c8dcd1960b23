package shell

import (
	"sync"

	"skandha.dev/pkg/bus"
)

// mailbox is an unbounded queue: a subscription's callback never waits for a
// session. What is in it is bounded by what the session was sent.
type mailbox struct {
	mu     sync.Mutex
	mail   []any
	signal chan struct{}
}

func newMailbox() mailbox { return mailbox{signal: make(chan struct{}, 1)} }

func (b *mailbox) put(m any) {
	b.mu.Lock()
	b.mail = append(b.mail, m)
	b.mu.Unlock()
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

func (b *mailbox) take() (any, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mail) == 0 {
		return nil, false
	}
	m := b.mail[0]
	b.mail[0] = nil
	b.mail = b.mail[1:]
	if len(b.mail) == 0 {
		b.mail = nil
	}
	return m, true
}

func (b *mailbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mail) == 0
}

// takeDeliveries takes the deliveries alone, and leaves the rest in order.
func (b *mailbox) takeDeliveries() []bus.Delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []bus.Delivery
	rest := b.mail[:0:0]
	for _, m := range b.mail {
		if d, is := m.(deliveryMail); is {
			out = append(out, d.d)
		} else {
			rest = append(rest, m)
		}
	}
	b.mail = rest
	return out
}
