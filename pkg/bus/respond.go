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

// RespondOption configures a responder.
type RespondOption func(*Responder)

// Concurrency sets how many requests are handled at a time; further ones wait. With 1, they
// are handled in the order of their arrival.
func Concurrency(n int) RespondOption {
	return func(r *Responder) { r.slots = make(chan struct{}, max(n, 1)) }
}

// Sharing makes the responder share the slots of another one, so that [Concurrency] limits
// both together.
func Sharing(with *Responder) RespondOption {
	return func(r *Responder) { r.slots = with.slots }
}

// Queue limits how many requests wait while all slots (see [Concurrency]) are in use; further ones
// are answered with [CodeOverloaded] at once. The bodies of those that wait are not fetched yet.
func Queue(n int) RespondOption {
	return func(r *Responder) { r.waiting = max(n, 0) }
}

// Stoppable makes callers able to stop their requests (see [Caller.RequestOrStop]): the context of
// such a request ends, also while it waits. The responder's name must be that of its service.
func Stoppable() RespondOption {
	return func(r *Responder) { r.stops = &stops{} }
}

// Responder answers requests on a subject.
type Responder struct {
	b       *Bus
	self    string
	sub     *nats.Subscription
	handler func(*Request)
	slots   chan struct{}
	waiting int           // requests that may wait; -1: any number, in the order of their arrival
	places  chan struct{} // for the requests that are handled or wait; nil if any number may wait
	stops   *stops        // nil: not stoppable
	running sync.WaitGroup
	dropped atomic.Uint64

	ctx  context.Context //nolint:containedctx // ends all requests that are being handled
	stop context.CancelFunc
}

// Respond handles requests on a subject, which may contain wildcards. Processes with the same
// queue share the requests; with an empty queue, each process receives all of them.
//
// The name self is the responder's name in reply subjects,
// reply.<caller>.<self>.<instance>.<n>. A request with any other reply subject is counted and
// dropped with a warning: the answer would be published with this process's permissions on a
// subject that the sender chose. A request without a reply subject is handled, but its answer is
// discarded.
//
// Each request is handled on a separate goroutine, [DefaultConcurrency] at a time. A panic is
// answered with [CodeInternal]. A request whose deadline passed while it waited is answered
// with [CodeTimeout] and not handled.
func (b *Bus) Respond(subj, queue, self string, handler func(*Request), opts ...RespondOption) (*Responder, error) {
	if !subject.Valid(self) {
		return nil, Errorf(CodeInvalidArgument, "responding on %s: name %q is not a valid id", subj, self)
	}
	r := &Responder{b: b, self: self, handler: handler, slots: make(chan struct{}, DefaultConcurrency), waiting: -1}
	r.ctx, r.stop = context.WithCancel(context.Background())
	for _, o := range opts {
		o(r)
	}
	if r.waiting >= 0 {
		r.places = make(chan struct{}, cap(r.slots)+r.waiting)
	}
	if r.stops != nil {
		if err := r.stops.subscribe(b, self); err != nil {
			r.stop()
			return nil, fmt.Errorf("responding on %s: taking stops: %w", subj, err)
		}
	}
	var err error
	if r.sub, err = b.Subscribe(subj, queue, r.take); err != nil {
		r.end()
		return nil, fmt.Errorf("responding on %s: %w", subj, err)
	}
	b.addPart(r)
	return r, r.sub.SetPendingLimits(-1, 256<<20)
}

func (r *Responder) kick() {}

func (r *Responder) drain(ctx context.Context) error { return r.Drain(ctx) }

// Dropped returns the number of requests dropped because of their reply subject.
func (r *Responder) Dropped() uint64 { return r.dropped.Load() }

// Drain stops receiving requests and waits until those received are handled. If ctx ends
// first, the contexts of the remaining requests end, and Drain returns the error of ctx.
func (r *Responder) Drain(ctx context.Context) error {
	r.b.removePart(r)
	closed := make(chan struct{})
	r.sub.SetClosedHandler(func(string) { close(closed) })
	if err := r.sub.Drain(); err != nil {
		r.end()
		return TransportError("draining "+r.sub.Subject, err)
	}
	idle := make(chan struct{})
	go func() {
		<-closed
		r.running.Wait()
		close(idle)
	}()
	defer r.end()
	select {
	case <-idle:
		return nil
	case <-r.b.closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("draining %s: %w", r.sub.Subject, ctx.Err())
	}
}

// Stop stops receiving requests and ends the contexts of those being handled.
func (r *Responder) Stop() {
	r.b.removePart(r)
	_ = r.sub.Unsubscribe()
	r.end()
}

// end ends the contexts of all requests.
func (r *Responder) end() {
	r.stops.close()
	r.stop()
}

func (r *Responder) take(m *nats.Msg) {
	if m.Reply != "" && !subject.IsReplyFrom(m.Reply, r.self) {
		r.drop(m)
		return
	}
	if !r.admit(m) {
		return
	}
	r.running.Add(1)
	go func() {
		defer r.running.Done()
		r.serve(m)
	}()
}

// drop drops a request because of its reply subject. A client of the first contract learns why.
func (r *Responder) drop(m *nats.Msg) {
	form := "reply.<caller>." + r.self + ".<instance>.<n>"
	r.b.log.Warn("dropping a request with a foreign reply subject; use "+form,
		"subject", m.Subject, "reply", m.Reply, "dropped", r.dropped.Add(1))
	if subject.IsOldReplyFrom(m.Reply, r.self) {
		q := &Request{Subject: m.Subject, ctx: r.ctx, r: r, reply: m.Reply}
		q.answerError(Errorf(CodeInvalidArgument, "the reply subject %s is of contract 1, this system has contract 2: "+
			"use %s, or a newer SDK (schemas/adr/0039)", m.Reply, form))
	}
}

// admit waits for a slot, or finds a place to wait for one.
func (r *Responder) admit(m *nats.Msg) bool {
	if r.places == nil {
		r.slots <- struct{}{}
		return true
	}
	select {
	case r.places <- struct{}{}:
		return true
	default:
	}
	req := &Request{Subject: m.Subject, ctx: r.ctx, r: r, reply: m.Reply}
	req.answerError(Errorf(CodeOverloaded, "%d requests are handled or wait; try again in a moment", cap(r.places)))
	return false
}

// enter waits for the slot of an admitted request.
func (r *Responder) enter(ctx context.Context) (leave func(), err error) {
	leave = sync.OnceFunc(func() { <-r.slots })
	if r.places == nil {
		return leave, context.Cause(ctx)
	}
	select {
	case <-ctx.Done():
		return func() {}, context.Cause(ctx)
	case r.slots <- struct{}{}:
		return leave, context.Cause(ctx)
	}
}

func (r *Responder) serve(m *nats.Msg) {
	if r.places != nil {
		defer func() { <-r.places }()
	}
	ctx, cancel := r.bounded(m)
	defer cancel()
	ctx, forget := r.stops.watch(ctx, m.Reply)
	defer forget()
	req := &Request{Subject: m.Subject, Header: m.Header, r: r, reply: m.Reply, ctx: telemetry.Extract(ctx, m.Header)}
	defer req.recover()
	leave, err := r.enter(ctx)
	req.leave = leave
	defer leave()
	if err != nil {
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

// bounded returns the responder's context with the caller's deadline.
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
	Data    []byte // the body, also if it was stored separately

	ctx   context.Context //nolint:containedctx // the request's context, as in net/http
	r     *Responder
	reply string
	leave func() // frees its slot
}

// Context returns a context with the caller's deadline and trace. It ends when the handler
// has returned; use context.WithoutCancel for work that continues.
func (q *Request) Context() context.Context { return q.ctx }

// Yield releases the request's slot (see [Concurrency]). A handler calls it before it only
// waits.
func (q *Request) Yield() { q.leave() }

// WantsReply reports whether the request has a reply subject.
func (q *Request) WantsReply() bool { return q.reply != "" }

// Caller returns the name as which the caller is connected, which the bus enforces if it has
// rights; empty if the caller has another account, or wants no reply.
func (q *Request) Caller() subject.Identity {
	a, err := subject.ParseReply(q.reply)
	if err != nil {
		return ""
	}
	return a.Caller
}

// Reply sends a reply. It may be called several times, also after the handler has returned. A
// large reply is stored first, and the caller fetches it.
func (q *Request) Reply(data []byte) error { return q.ReplyMsg(nil, data) }

// ReplyMsg sends a reply with headers.
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
		return TransportError("answering "+q.Subject, err)
	}
	return nil
}

// storing returns the context for storing a large answer. The answer is sent even if the
// handler has returned, as long as the caller waits for it.
func (q *Request) storing() (context.Context, context.CancelFunc) {
	at := time.Now().Add(claimWait)
	if wanted, ok := q.ctx.Deadline(); ok && wanted.After(at) {
		at = wanted
	}
	return context.WithDeadline(context.WithoutCancel(q.ctx), at)
}

// ReplyError sends an error as the reply, with the code [CodeOf] err.
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
		q.r.b.log.Error("request handler panicked", "subject", q.Subject, "panic", v, "stack", string(debug.Stack()))
		q.answerError(Errorf(CodeInternal, "the responder's handler panicked"))
	}
}
