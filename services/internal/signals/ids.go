package signals

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"skandha.dev/pkg/subject"
)

// TraceOf returns the trace of an input that came without one: the same on every core.
func TraceOf(ref subject.Ref, sequence uint64) (id trace.TraceID) {
	h := fnv.New128a()
	write(h, ref, binary.BigEndian.AppendUint64(nil, sequence))
	h.Sum(id[:0])
	id[15] |= 1 // it must not be zero
	return id
}

// SpanOf returns the id of a span of a session, such as that of a call: the same in every process.
func SpanOf(ref subject.Ref, of string) (id trace.SpanID) {
	h := fnv.New64a()
	write(h, ref, []byte(of))
	h.Sum(id[:0])
	id[7] |= 1 // it must not be zero
	return id
}

func write(h interface{ Write([]byte) (int, error) }, ref subject.Ref, more []byte) {
	for _, part := range []string{string(ref.Agent), string(ref.Session)} {
		_, _ = h.Write([]byte(part)) // of package hash: it never fails
		_, _ = h.Write([]byte{0})
	}
	_, _ = h.Write(more)
}

type spanKey struct{}

// As returns a context in which the next span that is started has the id, and the trace of the context's span or, if
// it has none, the trace in.
func As(ctx context.Context, in trace.TraceID, id trace.SpanID) context.Context {
	return context.WithValue(ctx, spanKey{}, &own{trace: in, span: id})
}

// own is the id of the next span.
type own struct {
	trace trace.TraceID
	span  trace.SpanID
	given atomic.Bool // the context of the span, in which its children are started, has it, too
}

// next returns the id that the context has for the next span; nil: any.
func next(ctx context.Context) *own {
	if o, ok := ctx.Value(spanKey{}).(*own); ok && o.given.CompareAndSwap(false, true) {
		return o
	}
	return nil
}

// ids gives spans the ids of [As], or random ones.
type ids struct{}

// NewIDs implements sdktrace.IDGenerator.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if o := next(ctx); o != nil {
		return o.trace, o.span
	}
	var id trace.TraceID
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()|1)
	return id, randomSpan()
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if o := next(ctx); o != nil {
		return o.span
	}
	return randomSpan()
}

func randomSpan() (id trace.SpanID) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}
