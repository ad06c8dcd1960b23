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

// Reply is one reply to a request.
type Reply struct {
	Data   []byte
	Header nats.Header
	// NoResponders means that the subject has no subscribers: nobody received the request.
	NoResponders bool
	// Err is the responder's error, an [*Error]; or why the body of the reply could not be
	// fetched; or [ErrDenied] if the server does not allow this process to send the request.
	Err error
}

// Caller sends requests to other processes. All replies to one process arrive through one
// subscription, reply.<identity>.*.<instance>.*, each under the responder's name, so a responder
// can only answer requests that were sent to it.
type Caller struct {
	b     *Bus
	calls *pending[*call]
}

// replies is the subscription that the callers of a [Bus] share. They cannot have separate
// ones: the server sends "no responders" to only one subscription, the first that it finds,
// and a caller that does not receive it would wait until its deadline.
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
	queue []*nats.Msg // after an answer whose body is being fetched
	busy  bool
}

// NewCaller returns a new caller. Call Close when it is no longer needed.
func (b *Bus) NewCaller() (*Caller, error) {
	c := &Caller{b: b, calls: newPending[*call]()}
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
		sub, err := c.b.Subscribe(subject.Replies(c.b.Identity(), c.b.Instance()), "", r.dispatch)
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

// remove removes a caller, and unsubscribes after the last one.
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

// dispatch passes an answer to the caller that sent the request. The numbers are random and
// have 64 bits, so no two callers wait for the same one.
func (r *replies) dispatch(m *nats.Msg) {
	a, err := subject.ParseReply(m.Subject)
	if err != nil {
		return
	}
	r.mu.Lock()
	callers := r.callers
	r.mu.Unlock()
	for _, c := range callers {
		if call, ok := c.calls.get(a.N); ok {
			if call.responder == a.Responder { // else another responder, which was not asked
				c.deliver(a.N, call, m)
			}
			return
		}
	}
}

func (c *Caller) kick()                       {}
func (c *Caller) drain(context.Context) error { return nil }

// denied answers the requests on the subject that the server has not accepted.
func (c *Caller) denied(subj string, m *nats.Msg) {
	for _, call := range c.calls.all() {
		if call.subj == subj {
			call.on(Reply{Err: fmt.Errorf("sending to %s: %w", subj, deniedError(m))})
		}
	}
}

// Close closes the caller. Its open requests receive no further replies.
func (c *Caller) Close() error {
	c.b.removePart(c)
	return c.b.replies.remove(c)
}

// Instance returns the instance id in the subjects of replies.
func (c *Caller) Instance() subject.Instance { return c.b.Instance() }

// Waiting returns the number of requests that are not cancelled yet.
func (c *Caller) Waiting() int { return c.calls.len() }

// Send sends a request to a responder and calls on for every reply, in order, until cancel is
// called. The context is used only for sending; it sets no deadline for the replies (see
// [SetDeadline] to set one for the responder). The header may be nil; the caller must not
// use it afterwards.
//
// The function on must not block, because it delays the replies to all requests of the
// process. It may run once more while cancel is being called, and may call cancel itself.
//
// The error is [ErrUnavailable] if there is no connection, or [ErrTooLarge].
func (c *Caller) Send(
	ctx context.Context, subj, responder string, hdr nats.Header, body []byte, on func(Reply),
) (cancel func(), err error) {
	m := &nats.Msg{Subject: subj, Header: hdr, Data: body}
	if err := c.b.claimLarge(ctx, m); err != nil {
		return nil, fmt.Errorf("sending to %s: %w", subj, err)
	}
	return c.send(ctx, m, responder, on)
}

// SendWhole is like [Caller.Send], but always sends the body in the message, for responders
// that do not support claims, such as plugins. The error is [ErrTooLarge] if the server does
// not accept the size.
func (c *Caller) SendWhole(
	ctx context.Context, subj, responder string, hdr nats.Header, body []byte, on func(Reply),
) (cancel func(), err error) {
	return c.send(ctx, &nats.Msg{Subject: subj, Header: hdr, Data: body}, responder, on)
}

func (c *Caller) send(ctx context.Context, m *nats.Msg, responder string, on func(Reply)) (cancel func(), err error) {
	subj := m.Subject
	if !subject.Valid(responder) {
		return nil, Errorf(CodeInvalidArgument, "sending to %s: responder %q is not a valid id", subj, responder)
	}
	n := c.calls.add(&call{subj: subj, responder: responder, on: on})
	m.Reply = subject.Reply(c.b.Identity(), responder, c.b.Instance(), n)
	if err := c.b.publish(ctx, c.b.ctl, m); err != nil {
		c.calls.remove(n)
		return nil, TransportError("sending to "+subj, err)
	}
	return func() { c.calls.remove(n) }, nil
}

// Request sends a request and waits for the reply. It sends the context's deadline (five
// seconds if it has none) in the header Skandha-Deadline.
//
// The error is an [*Error] that the responder sent; [ErrUnavailable] if the subject has no
// subscribers or the connection is lost; [ErrTimeout] if the deadline passes, in which case
// the request may have been carried out; or [ErrCancelled].
func (c *Caller) Request(ctx context.Context, subj, responder string, body []byte) ([]byte, error) {
	return c.request(ctx, subj, responder, body, func(string) {})
}

// request calls givenUp with the reply subject if ctx is cancelled before there is a reply.
func (c *Caller) request(
	ctx context.Context, subj, responder string, body []byte, givenUp func(reply string),
) ([]byte, error) {
	ctx, cancel := Bounded(ctx)
	defer cancel()
	hdr := make(nats.Header, 3)
	if at, has := ctx.Deadline(); has {
		SetDeadline(hdr, at)
	}
	answer, lost := make(chan Reply, 1), c.b.ctl.Lost()
	m := &nats.Msg{Subject: subj, Header: hdr, Data: body}
	if err := c.b.claimLarge(ctx, m); err != nil {
		return nil, fmt.Errorf("sending to %s: %w", subj, err)
	}
	forget, err := c.send(ctx, m, responder, func(r Reply) {
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
			return nil, TransportError("asking "+subj, nats.ErrNoResponders)
		case r.Err != nil:
			return nil, fmt.Errorf("asking %s: %w", subj, r.Err)
		}
		return r.Data, nil
	case <-lost:
		return nil, TransportError("asking "+subj, nats.ErrDisconnected)
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) { // the responder has the deadline
			givenUp(m.Reply)
		}
		return nil, TransportError("asking "+subj, ctx.Err())
	}
}

func (c *Caller) deliver(n uint64, call *call, m *nats.Msg) {
	call.mu.Lock()
	// Fetching the body of an answer would delay all others, so it waits in a queue, and
	// later answers to the same request after it.
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

// SetDeadline sets the header with the caller's deadline.
func SetDeadline(h nats.Header, at time.Time) {
	h[DeadlineHeader] = []string{strconv.FormatInt(at.UnixMilli(), 10)}
}

// Deadline returns the caller's deadline; ok is false if the header has none.
func Deadline(h nats.Header) (at time.Time, ok bool) {
	ms, err := strconv.ParseInt(h.Get(DeadlineHeader), 10, 64)
	if err != nil || ms <= 0 {
		return time.Time{}, false
	}
	return time.UnixMilli(ms), true
}
