package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
)

// DefaultConcurrency is how many requests a responder handles at a time.
const DefaultConcurrency = 256

// RespondOption changes how a responder works.
type RespondOption func(*Responder)

// Concurrency sets how many requests are handled at a time; with 1 they are
// handled in the order in which they came. Further ones wait.
func Concurrency(n int) RespondOption {
	return func(r *Responder) { r.slots = make(chan struct{}, max(n, 1)) }
}

// Sharing makes the responder use the slots of another one, so that [Concurrency]
// bounds both together.
func Sharing(with *Responder) RespondOption {
	return func(r *Responder) { r.slots = with.slots }
}

// Responder answers requests on a subject.
type Responder struct {
	b       *Bus
	self    string
	sub     *nats.Subscription
	handler func(*Request)
	slots   chan struct{}
	running sync.WaitGroup
	dropped atomic.Uint64

	ctx  context.Context //nolint:containedctx // ends all requests that are being handled
	stop context.CancelFunc
}

// Respond answers requests on a subject, which may hold wildcards. Processes with
// the same queue share them; an empty queue means that each gets all.
//
// The name self is what the responder is called in reply subjects,
// reply.<self>.<caller>.<n>. A request that wants its answer elsewhere is dropped
// with a warning and counted: the answer would be published with this process's
// rights on a subject of the sender's choice. A request without a reply subject
// is handled; its answer goes nowhere.
//
// Each request is handled on a goroutine of its own, [DefaultConcurrency] at a
// time. A panic is answered as [CodeInternal]. A request whose deadline passed
// while it waited is answered as [CodeTimeout] and not handled.
func (b *Bus) Respond(subj, queue, self string, handler func(*Request), opts ...RespondOption) (*Responder, error) {
	if !subject.Valid(self) {
		return nil, Errorf(CodeInvalidArgument, "responding on %s: own name %q is no id", subj, self)
	}
	r := &Responder{b: b, self: self, handler: handler, slots: make(chan struct{}, DefaultConcurrency)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	for _, o := range opts {
		o(r)
	}
	var err error
	if queue == "" {
		r.sub, err = b.ctl.nc.Subscribe(subj, r.take)
	} else {
		r.sub, err = b.ctl.nc.QueueSubscribe(subj, queue, r.take)
	}
	if err != nil {
		r.stop()
		return nil, fmt.Errorf("responding on %s: %w", subj, err)
	}
	b.addPart(r)
	return r, r.sub.SetPendingLimits(-1, 256<<20)
}

func (r *Responder) kick() {}

func (r *Responder) drain(ctx context.Context) error { return r.Drain(ctx) }

// Dropped counts the requests that wanted their answer under another's name.
func (r *Responder) Dropped() uint64 { return r.dropped.Load() }

// Drain takes no new requests and waits until those that came are handled. When
// ctx ends first, the contexts of the rest end and Drain returns its error.
func (r *Responder) Drain(ctx context.Context) error {
	r.b.removePart(r)
	closed := make(chan struct{})
	r.sub.SetClosedHandler(func(string) { close(closed) })
	if err := r.sub.Drain(); err != nil {
		r.stop()
		return transportError("draining "+r.sub.Subject, err)
	}
	idle := make(chan struct{})
	go func() {
		<-closed
		r.running.Wait()
		close(idle)
	}()
	defer r.stop()
	select {
	case <-idle:
		return nil
	case <-r.b.closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("draining %s: %w", r.sub.Subject, ctx.Err())
	}
}

// Stop takes no new requests and ends the contexts of those being handled.
func (r *Responder) Stop() {
	r.b.removePart(r)
	_ = r.sub.Unsubscribe()
	r.stop()
}

func (r *Responder) take(m *nats.Msg) {
	if m.Reply != "" && !subject.IsReplyFrom(m.Reply, r.self) {
		n := r.dropped.Add(1)
		r.b.log.Warn("dropping a request that wants its answer under another's name; use reply."+r.self+".<caller>.<n>",
			"subject", m.Subject, "reply", m.Reply, "dropped", n)
		return
	}
	r.slots <- struct{}{}
	r.running.Add(1)
	leave := sync.OnceFunc(func() { <-r.slots })
	go func() {
		defer r.running.Done()
		defer leave()
		r.serve(m, leave)
	}()
}

func (r *Responder) serve(m *nats.Msg, leave func()) {
	ctx, cancel := r.bounded(m)
	defer cancel()
	req := &Request{
		Subject: m.Subject, Header: m.Header, r: r, reply: m.Reply, leave: leave,
		ctx: telemetry.Extract(ctx, m.Header),
	}
	defer req.recover()
	if err := ctx.Err(); err != nil {
		req.answerError(fmt.Errorf("the request waited too long: %w", err))
		return
	}
	if err := r.b.resolveClaim(ctx, m); err != nil {
		req.answerError(fmt.Errorf("fetching the request's body: %w", err))
		return
	}
	req.Data = m.Data
	r.handler(req)
}

// bounded is the responder's context, until the caller gives up.
func (r *Responder) bounded(m *nats.Msg) (context.Context, context.CancelFunc) {
	if at, ok := Deadline(m.Header); ok {
		return context.WithDeadline(r.ctx, at)
	}
	return context.WithCancel(r.ctx)
}

// Request is a request to this process.
type Request struct {
	Subject string
	Header  nats.Header
	Data    []byte // the body, wherever it was

	ctx   context.Context //nolint:containedctx // the request's own, as in net/http
	r     *Responder
	reply string
	leave func() // frees its slot
}

// Context carries the caller's deadline and trace. It ends when the handler has
// returned; work that goes on takes context.WithoutCancel of it.
func (q *Request) Context() context.Context { return q.ctx }

// Yield releases the request's slot (see [Concurrency]), for a handler that only waits
// from now on.
func (q *Request) Yield() { q.leave() }

// WantsReply reports whether there is anyone to answer.
func (q *Request) WantsReply() bool { return q.reply != "" }

// Reply answers. It may be called several times, also after the handler has
// returned. A large answer is stored first and fetched by the caller.
func (q *Request) Reply(data []byte) error { return q.ReplyMsg(nil, data) }

// ReplyMsg answers with headers.
func (q *Request) ReplyMsg(hdr nats.Header, data []byte) error {
	if q.reply == "" {
		return nil
	}
	m := &nats.Msg{Subject: q.reply, Header: hdr, Data: data}
	ctx, cancel := q.storing()
	defer cancel()
	err := q.r.b.claimLarge(ctx, m)
	if err == nil {
		err = q.r.b.publish(q.ctx, q.r.b.ctl, m)
	}
	if err != nil {
		return transportError("answering "+q.Subject, err)
	}
	return nil
}

// storing bounds how long a large answer is being stored. One that is ready is
// sent, even if the handler has returned, and as long as the caller waits for it.
func (q *Request) storing() (context.Context, context.CancelFunc) {
	at := time.Now().Add(claimWait)
	if wanted, ok := q.ctx.Deadline(); ok && wanted.After(at) {
		at = wanted
	}
	return context.WithDeadline(context.WithoutCancel(q.ctx), at)
}

// ReplyError answers with an error; its code is [CodeOf] err.
func (q *Request) ReplyError(err error) error {
	if err == nil {
		return q.Reply(nil)
	}
	e := wireError(err)
	body, encErr := json.Marshal(e)
	if encErr != nil {
		return fmt.Errorf("encoding the error: %w", encErr)
	}
	return q.ReplyMsg(nats.Header{ErrorHeader: []string{string(e.Code)}}, body)
}

func (q *Request) answerError(err error) {
	if err := q.ReplyError(err); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		q.r.b.log.Warn("could not answer", "subject", q.Subject, "error", err)
	}
}

func (q *Request) recover() {
	if v := recover(); v != nil {
		q.r.b.log.Error("a request's handler panicked", "subject", q.Subject, "panic", v, "stack", string(debug.Stack()))
		q.answerError(Errorf(CodeInternal, "the responder's handler panicked"))
	}
}
