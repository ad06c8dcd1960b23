package bus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Question is one of several requests that are sent together.
type Question struct {
	Subject   string
	Responder string // under whose name the answer comes
	Body      []byte
	Deadline  time.Time // an answer that comes later counts as none; also sent as Skandha-Deadline
}

// Answer is what came of a [Question].
type Answer struct {
	Data []byte
	Err  error     // as of [Caller.Request]
	At   time.Time // when it came, or was given up
}

// RequestAll sends the questions, each with its body in the message, and waits for the one answer to each, until each
// one's deadline. The answers stand in the order of the questions.
func (c *Caller) RequestAll(ctx context.Context, questions []Question) []Answer {
	g := &gathering{answers: make([]Answer, len(questions)), left: len(questions), done: make(chan struct{})}
	lost := c.b.lostChan()
	for i, q := range questions {
		hdr := make(nats.Header, 3)
		SetDeadline(hdr, q.Deadline)
		forget, err := c.SendWhole(ctx, q.Subject, q.Responder, hdr, q.Body, func(r Reply) { g.answer(i, r.Data, failed(q.Subject, r)) })
		if err != nil {
			g.answer(i, nil, err)
			continue
		}
		defer forget()
	}
	for {
		next, open := g.next(questions, time.Now())
		if !open {
			return g.answers // nobody writes to them any more: each has its answer
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-g.done:
		case <-timer.C:
		case <-lost:
			g.giveUp(questions, nats.ErrDisconnected)
		case <-ctx.Done():
			g.giveUp(questions, ctx.Err())
		}
		timer.Stop()
	}
}

// failed is the error that a reply carries.
func failed(subj string, r Reply) error {
	switch {
	case r.NoResponders:
		return transportError("asking "+subj, nats.ErrNoResponders)
	case r.Err != nil:
		return fmt.Errorf("asking %s: %w", subj, r.Err)
	}
	return nil
}

type gathering struct {
	mu      sync.Mutex
	answers []Answer
	left    int
	done    chan struct{} // closed when all are there
}

// answer takes the first answer to a question.
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

// next gives up on those whose time has come, and says when the next one's comes.
func (g *gathering) next(questions []Question, now time.Time) (next time.Time, open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, q := range questions {
		if !g.answers[i].At.IsZero() {
			continue
		}
		if !now.Before(q.Deadline) {
			g.set(i, nil, transportError("asking "+q.Subject, context.DeadlineExceeded))
			continue
		}
		if !open || q.Deadline.Before(next) {
			next, open = q.Deadline, true
		}
	}
	return next, open
}

func (g *gathering) giveUp(questions []Question, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, q := range questions {
		g.set(i, nil, transportError("asking "+q.Subject, err))
	}
}
