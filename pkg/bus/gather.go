package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Question is one of several requests that are sent together.
type Question struct {
	Subject   string
	Responder string // the name under which the answer is sent
	Body      []byte
	Deadline  time.Time // a later answer is ignored; also sent as Skandha-Deadline
}

// Answer is the outcome of a [Question].
type Answer struct {
	Data []byte
	Err  error     // as from [Caller.Request]
	At   time.Time // when the answer arrived, or waiting for it ended
}

// retryIn is the pause before a question that reached no responder is sent again: the
// responder may not have reconnected yet.
const retryIn = 50 * time.Millisecond

// RequestAll sends the questions, each with its body in the message, and waits for one answer
// to each until its deadline. It returns the answers in the order of the questions.
//
// A question may arrive more than once: after a reconnect, RequestAll sends the unanswered
// questions again, because the question or its answer may have been lost.
func (c *Caller) RequestAll(ctx context.Context, questions []Question) []Answer {
	g := &gathering{
		c: c, questions: questions, answers: make([]Answer, len(questions)), left: len(questions),
		done: make(chan struct{}), again: make(chan struct{}, 1),
	}
	defer g.forget()
	back := c.b.Reconnected()
	for i := range questions {
		g.send(ctx, i)
	}
	for {
		next, open := g.next(time.Now())
		if !open {
			return g.answers // complete, so they are not written any more
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-g.done:
		case <-g.again: // next returns when
		case <-timer.C:
			g.sendUnsent(ctx)
		case <-back:
			back = c.b.Reconnected()
			g.sendOpen(ctx)
		case <-c.b.closed:
			g.giveUp(nats.ErrConnectionClosed)
		case <-ctx.Done():
			g.giveUp(ctx.Err())
		}
		timer.Stop()
	}
}

// failed is the error that a reply carries.
func failed(subj string, r Reply) error {
	switch {
	case r.NoResponders:
		return TransportError("asking "+subj, nats.ErrNoResponders)
	case r.Err != nil:
		return fmt.Errorf("asking %s: %w", subj, r.Err)
	}
	return nil
}

type gathering struct {
	c         *Caller
	questions []Question
	sent      []func() // forget the sent requests

	mu      sync.Mutex
	answers []Answer
	left    int
	done    chan struct{} // closed when all answers have arrived
	again   chan struct{} // there is something unsent
	unsent  map[int]bool  // questions without a responder, to be sent again soon
}

// send sends one question. One that cannot be sent now is sent again later.
func (g *gathering) send(ctx context.Context, i int) {
	q := g.questions[i]
	hdr := make(nats.Header, 3)
	SetDeadline(hdr, q.Deadline)
	forget, err := g.c.SendWhole(ctx, q.Subject, q.Responder, hdr, q.Body, func(r Reply) {
		if r.NoResponders && g.c.b.Settling() {
			g.later(i)
			return
		}
		g.answer(i, r.Data, failed(q.Subject, r))
	})
	switch {
	case err == nil:
		g.sent = append(g.sent, forget)
	case errors.Is(err, nats.ErrDisconnected): // until the connection is back, or the deadline
	default:
		g.answer(i, nil, err)
	}
}

func (g *gathering) forget() {
	for _, f := range g.sent {
		f()
	}
}

// sendOpen sends all unanswered questions again.
func (g *gathering) sendOpen(ctx context.Context) {
	for i := range g.questions {
		if g.isOpen(i) {
			g.send(ctx, i)
		}
	}
}

func (g *gathering) isOpen(i int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.unsent, i)
	return g.answers[i].At.IsZero()
}

func (g *gathering) later(i int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.unsent == nil {
		g.unsent = map[int]bool{}
	}
	g.unsent[i] = true
	select {
	case g.again <- struct{}{}:
	default:
	}
}

func (g *gathering) sendUnsent(ctx context.Context) {
	g.mu.Lock()
	list := slices.Collect(maps.Keys(g.unsent))
	g.mu.Unlock()
	for _, i := range list {
		if g.isOpen(i) {
			g.send(ctx, i)
		}
	}
}

// answer sets the answer to a question. Only the first one counts.
func (g *gathering) answer(i int, data []byte, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.set(i, data, err)
}

func (g *gathering) set(i int, data []byte, err error) {
	if !g.answers[i].At.IsZero() {
		return
	}
	g.answers[i] = Answer{Data: data, Err: err, At: time.Now()}
	if g.left--; g.left == 0 {
		close(g.done)
	}
}

// next gives up on questions whose deadline has passed, and returns when there is
// something to do next.
func (g *gathering) next(now time.Time) (next time.Time, open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, q := range g.questions {
		if !g.answers[i].At.IsZero() {
			continue
		}
		if !now.Before(q.Deadline) {
			g.set(i, nil, TransportError("asking "+q.Subject, context.DeadlineExceeded))
			continue
		}
		if !open || q.Deadline.Before(next) {
			next, open = q.Deadline, true
		}
	}
	if soon := now.Add(retryIn); open && len(g.unsent) > 0 && soon.Before(next) {
		next = soon
	}
	return next, open
}

func (g *gathering) giveUp(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, q := range g.questions {
		g.set(i, nil, TransportError("asking "+q.Subject, err))
	}
}
