package plugin

import (
	"context"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
)

// The limits of the outbox: age, number and bytes of the answers.
const (
	resendFor   = 30 * time.Second // longer than it takes to notice a dead connection
	resendMost  = 1024
	resendBytes = 16 << 20
)

// outbox keeps the latest answers. Answers sent shortly before a connection was lost
// may be lost, and answers given without a connection were not sent.
type outbox struct {
	mu    sync.Mutex
	list  []outgoing // oldest first
	bytes int
}

// outgoing is an answer to a request.
type outgoing struct {
	q    *bus.Request
	at   time.Time
	body []byte
	err  error
}

func (o *outbox) keep(g outgoing) {
	if !g.q.WantsReply() {
		return
	}
	g.q.Data = nil // not needed any more
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, g)
	o.bytes += len(g.body)
	n := 0
	for n < len(o.list) && (len(o.list)-n > resendMost || o.bytes > resendBytes || g.at.Sub(o.list[n].at) > resendFor) {
		o.bytes -= len(o.list[n].body)
		o.list[n] = outgoing{}
		n++
	}
	o.list = o.list[n:]
}

// take removes and returns the answers whose callers may still be waiting.
func (o *outbox) take() (out []outgoing) {
	o.mu.Lock()
	list := o.list
	o.list, o.bytes = nil, 0
	o.mu.Unlock()
	now := time.Now()
	for _, g := range list {
		if until, ok := g.q.Context().Deadline(); !ok || now.Before(until) {
			out = append(out, g)
		}
	}
	return out
}

// resend sends the latest answers again whenever a lost connection is restored, until ctx
// ends. It sends them immediately, and once more when callers that lost their connection at
// the same time have had time to subscribe again. A caller ignores a second answer.
func (s *server) resend(ctx context.Context) {
	var settled <-chan time.Time
	for back := s.bus.Reconnected(); ; {
		select {
		case <-back:
			back, settled = s.bus.Reconnected(), time.After(bus.SettleTime)
		case <-settled:
			settled = nil
		case <-ctx.Done():
			return
		}
		for _, g := range s.outbox.take() {
			s.answer(g)
		}
	}
}

// answer sends an answer and keeps it for a resend.
func (s *server) answer(g outgoing) {
	s.outbox.keep(g)
	err := g.err
	if err == nil {
		err = g.q.Reply(g.body)
	}
	if err == nil {
		return
	}
	if g.err == nil && unsent(err) {
		s.log.Info("sending an answer failed; it is sent again after the reconnect",
			"subject", g.q.Subject, "error", err)
		return
	}
	s.log.Warn("sending an answer failed", "subject", g.q.Subject, "error", err)
	if err := g.q.ReplyError(err); err != nil && !unsent(err) {
		s.log.Warn("reporting the failed answer failed", "subject", g.q.Subject, "error", err)
	}
}

// unsent reports whether an error is due to the connection.
func unsent(err error) bool {
	code := bus.CodeOf(err)
	return code == bus.CodeUnavailable || code == bus.CodeTimeout
}
