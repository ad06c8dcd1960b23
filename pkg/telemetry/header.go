package telemetry

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strings"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The header keys of W3C Trace Context and Baggage, as they are written.
const (
	TraceparentHeader = "traceparent"
	BaggageHeader     = "baggage"
)

var (
	traceContext propagation.TraceContext
	bags         propagation.Baggage
)

// Carrier lets an OpenTelemetry propagator read and write the header of a message. It writes
// keys in lower case and reads them in any case.
type Carrier nats.Header

var _ propagation.TextMapCarrier = Carrier(nil)

// Get returns the first value of the key, whatever its case.
func (c Carrier) Get(key string) string {
	if v := c[key]; len(v) > 0 {
		return v[0]
	}
	for k, v := range c {
		if len(k) == len(key) && len(v) > 0 && strings.EqualFold(k, key) {
			return v[0]
		}
	}
	return ""
}

// Set replaces every spelling of the key by the lower-case one.
func (c Carrier) Set(key, value string) {
	key = strings.ToLower(key)
	for k := range c {
		if k != key && len(k) == len(key) && strings.EqualFold(k, key) {
			delete(c, k)
		}
	}
	c[key] = []string{value}
}

// Keys returns the keys as they are spelled in the header.
func (c Carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}

// Inject writes the trace of ctx into h, which must not be nil. If ctx carries no trace, Inject
// keeps the one that h already has, or else starts a new one: every message on the bus
// belongs to a trace.
func Inject(ctx context.Context, h nats.Header) {
	c := Carrier(h)
	if trace.SpanContextFromContext(ctx).IsValid() {
		traceContext.Inject(ctx, c)
	} else if c.Get(TraceparentHeader) == "" {
		c[TraceparentHeader] = []string{traceparent(newSpanContext(randomTraceID()))}
	}
	if baggage.FromContext(ctx).Len() > 0 {
		bags.Inject(ctx, c)
	}
}

// Extract returns ctx with the trace and baggage of h. It returns ctx unchanged if h carries
// none, and ignores malformed values.
func Extract(ctx context.Context, h nats.Header) context.Context {
	if len(h) == 0 {
		return ctx
	}
	c := Carrier(h)
	if c.Get(TraceparentHeader) != "" {
		ctx = traceContext.Extract(ctx, c)
	}
	if c.Get(BaggageHeader) != "" {
		ctx = bags.Extract(ctx, c)
	}
	return ctx
}

// EnsureTrace returns ctx if it carries a trace, else ctx with a new random one.
func EnsureTrace(ctx context.Context) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, newSpanContext(randomTraceID()))
}

// TraceID returns the trace id of ctx in hexadecimal, or "" if ctx carries no trace.
func TraceID(ctx context.Context) string {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.HasTraceID() {
		return ""
	}
	return sc.TraceID().String()
}

// Begun reports whether a trace was begun for a message, because its sender had none: its span does not exist.
func Begun(sc trace.SpanContext) bool {
	id, span := sc.TraceID(), sc.SpanID()
	return string(span[:]) == string(id[8:])
}

// newSpanContext makes up a span of the trace, which [Begun] recognizes. It is not sampled: nobody has
// recorded it, and a server of NATS looks for where to send the trace of each sampled message.
func newSpanContext(id trace.TraceID) trace.SpanContext {
	var span trace.SpanID
	copy(span[:], id[8:])
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: span, Remote: true,
	})
}

func randomTraceID() (id trace.TraceID) {
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()|1)
	return id
}

// traceparent writes what newSpanContext has made up.
func traceparent(sc trace.SpanContext) string {
	const hexDigits = "0123456789abcdef"
	b := make([]byte, 0, 55)
	b = append(b, "00-"...)
	id, span := sc.TraceID(), sc.SpanID()
	for _, c := range id {
		b = append(b, hexDigits[c>>4], hexDigits[c&15])
	}
	b = append(b, '-')
	for _, c := range span {
		b = append(b, hexDigits[c>>4], hexDigits[c&15])
	}
	return string(append(b, "-00"...))
}
