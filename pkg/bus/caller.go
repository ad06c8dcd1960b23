package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/subject"
)

// Reply is one answer to a request.
type Reply struct {
	Data   []byte
	Header nats.Header
	// NoResponders: the server says that nobody listens on the subject; nobody got the request.
	NoResponders bool
	// Err is the responder's error, an [*Error], or why the answer's body could not
	// be fetched, or [ErrDenied] when the server does not let this process ask.
	Err error
}

// Caller asks other processes. All answers to one process come through one
// subscription, reply.*.<instance>.*, each under the responder's own name, so
// that a responder can answer nobody but its own caller.
type Caller struct {
	b     *Bus
	calls *table[*call]
}

// replies is the subscription that the callers of a [Bus] share. Each must not have its
// own: the server sends "no responders" to one subscription only, whichever it finds
// first, and a caller that does not get it waits until its deadline.
type replies struct {
	mu      sync.Mutex
	sub     *nats.Subscription // nil while there is no caller
	callers []*Caller
}

// call is one request that waits for answers.
type call struct {
	subj      string
	responder string
	on        func(Reply)

	mu    sync.Mutex
	queue []*nats.Msg // behind an answer whose body is being fetched
	busy  bool
}

// NewCaller makes a caller. Close ends it.
func (b *Bus) NewCaller() (*Caller, error) {
	c := &Caller{b: b, calls: newTable[*call]()}
	if err := b.replies.add(c); err != nil {
		return nil, err
	}
	b.addPart(c)
	return c, nil
}

func (r *replies) add(c *Caller) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sub == nil {
		sub, err := c.b.ctl.nc.Subscribe(subject.Replies(c.b.Instance()), r.dispatch)
		if err != nil {
			return fmt.Errorf("subscribing to replies: %w", err)
		}
		if err := sub.SetPendingLimits(-1, 256<<20); err != nil {
			return errors.Join(fmt.Errorf("subscribing to replies: %w", err), sub.Unsubscribe())
		}
		r.sub = sub
	}
	r.callers = append(slices.Clip(r.callers), c)
	return nil
}

// remove unsubscribes with the last caller.
func (r *replies) remove(c *Caller) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.callers, c)
	if i < 0 {
		return nil
	}
	r.callers = slices.Concat(r.callers[:i], r.callers[i+1:])
	if len(r.callers) > 0 {
		return nil
	}
	sub := r.sub
	r.sub = nil
	return sub.Unsubscribe()
}

// dispatch hands an answer to the caller whose question it answers. Numbers are random
// 64-bit ones, so no two callers wait for the same.
func (r *replies) dispatch(m *nats.Msg) {
	responder, _, n, err := subject.ParseReply(m.Subject)
	if err != nil {
		return
	}
	r.mu.Lock()
	callers := r.callers
	r.mu.Unlock()
	for _, c := range callers {
		if call, ok := c.calls.get(n); ok {
			if call.responder == responder { // else someone who was not asked
				c.deliver(n, call, m)
			}
			return
		}
	}
}

func (c *Caller) kick()                       {}
func (c *Caller) drain(context.Context) error { return nil }

// denied answers what was sent on the subject in the server's stead.
func (c *Caller) denied(subj string, m *nats.Msg) {
	for _, call := range c.calls.all() {
		if call.subj == subj {
			call.on(Reply{Err: fmt.Errorf("sending to %s: %w", subj, deniedError(m))})
		}
	}
}

// Close ends the caller: what it still waits for is not answered any more.
func (c *Caller) Close() error {
	c.b.removePart(c)
	return c.b.replies.remove(c)
}

// Instance is under which name answers come.
func (c *Caller) Instance() subject.Instance { return c.b.Instance() }

// Waiting counts the requests that are not cancelled yet.
func (c *Caller) Waiting() int { return c.calls.len() }

// Send sends a request to a responder and calls on for every answer, in order,
// until cancel is called. The context serves the sending alone; it sets no
// deadline on the answers (see [SetDeadline] for telling the responder). The
// header may be nil and belongs to the call from then on.
//
// The function on must not block: the answers to all requests of the process
// wait behind it. It may run once more while cancel is being called, and may
// call cancel itself.
//
// Errors: [ErrUnavailable] when there is no connection, [ErrTooLarge].
func (c *Caller) Send(ctx context.Context, subj, responder string, hdr nats.Header, body []byte, on func(Reply)) (cancel func(), err error) {
	m := &nats.Msg{Subject: subj, Header: hdr, Data: body}
	if err := c.b.claimLarge(ctx, m); err != nil {
		return nil, fmt.Errorf("sending to %s: %w", subj, err)
	}
	return c.send(ctx, m, responder, on)
}

// SendWhole is [Caller.Send] with the body in the message, whatever its size: for
// responders that know nothing of claims, such as plugins. [ErrTooLarge] when the
// server does not take it.
func (c *Caller) SendWhole(ctx context.Context, subj, responder string, hdr nats.Header, body []byte, on func(Reply)) (cancel func(), err error) {
	return c.send(ctx, &nats.Msg{Subject: subj, Header: hdr, Data: body}, responder, on)
}

func (c *Caller) send(ctx context.Context, m *nats.Msg, responder string, on func(Reply)) (cancel func(), err error) {
	subj := m.Subject
	if !subject.Valid(responder) {
		return nil, Errorf(CodeInvalidArgument, "sending to %s: responder %q is no id", subj, responder)
	}
	n := c.calls.add(&call{subj: subj, responder: responder, on: on})
	m.Reply = subject.Reply(responder, c.b.Instance(), n)
	if err := c.b.publish(ctx, c.b.ctl, m); err != nil {
		c.calls.remove(n)
		return nil, transportError("sending to "+subj, err)
	}
	return func() { c.calls.remove(n) }, nil
}

// Request sends a request and waits for its one answer. The context's deadline
// (five seconds if it has none) goes along in the header Skandha-Deadline.
//
// Errors: an [*Error] that the responder sent; [ErrUnavailable] when nobody
// listens or the connection is lost; [ErrTimeout] when the deadline passes, in
// which case the request may have been carried out; [ErrCancelled].
func (c *Caller) Request(ctx context.Context, subj, responder string, body []byte) ([]byte, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	hdr := make(nats.Header, 3)
	if at, has := ctx.Deadline(); has {
		SetDeadline(hdr, at)
	}
	answer, lost := make(chan Reply, 1), c.b.ctl.lostChan()
	forget, err := c.Send(ctx, subj, responder, hdr, body, func(r Reply) {
		select {
		case answer <- r:
		default:
		}
	})
	if err != nil {
		return nil, err
	}
	defer forget()
	select {
	case r := <-answer:
		switch {
		case r.NoResponders:
			return nil, transportError("asking "+subj, nats.ErrNoResponders)
		case r.Err != nil:
			return nil, fmt.Errorf("asking %s: %w", subj, r.Err)
		}
		return r.Data, nil
	case <-lost:
		return nil, transportError("asking "+subj, nats.ErrDisconnected)
	case <-ctx.Done():
		return nil, transportError("asking "+subj, ctx.Err())
	}
}

func (c *Caller) deliver(n uint64, call *call, m *nats.Msg) {
	call.mu.Lock()
	// An answer whose body must be fetched would hold up all others, so it waits
	// aside, and those to the same request behind it.
	if call.busy || m.Header.Get(ClaimHeader) != "" {
		call.queue = append(call.queue, m)
		if !call.busy {
			call.busy = true
			go c.deliverQueue(n, call)
		}
		call.mu.Unlock()
		return
	}
	call.mu.Unlock()
	call.on(readReply(m))
}

func (c *Caller) deliverQueue(n uint64, call *call) {
	for {
		call.mu.Lock()
		if len(call.queue) == 0 {
			call.busy = false
			call.mu.Unlock()
			return
		}
		m := call.queue[0]
		call.queue = call.queue[1:]
		call.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), claimWait)
		err := c.b.resolveClaim(ctx, m)
		cancel()
		if _, ok := c.calls.get(n); !ok {
			return
		}
		if err != nil {
			call.on(Reply{Header: m.Header, Err: fmt.Errorf("fetching the body of an answer: %w", err)})
			continue
		}
		call.on(readReply(m))
	}
}

func readReply(m *nats.Msg) Reply {
	if noResponders(m) {
		return Reply{NoResponders: true, Header: m.Header}
	}
	return Reply{Data: m.Data, Header: m.Header, Err: errorFromWire(m.Header, m.Data)}
}

// SetDeadline tells the responder when the caller gives up.
func SetDeadline(h nats.Header, at time.Time) {
	h[DeadlineHeader] = []string{strconv.FormatInt(at.UnixMilli(), 10)}
}

// Deadline reads when the caller gives up; ok is false when the header does not say.
func Deadline(h nats.Header) (at time.Time, ok bool) {
	ms, err := strconv.ParseInt(h.Get(DeadlineHeader), 10, 64)
	if err != nil || ms <= 0 {
		return time.Time{}, false
	}
	return time.UnixMilli(ms), true
}
