package signals

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"

	"skandha.dev/services/internal/periodic"
)

// CollectorEnv is the variable with the address of a collector that a deployment may have: traces are sent there while
// it accepts connections, and no span is made while it does not. The variables of OpenTelemetry come first.
const CollectorEnv = "SKANDHA_COLLECTOR"

const (
	lookEvery = 2 * time.Second
	lookWait  = time.Second
)

// offered returns the address of the collector that is used if the environment asks for no other; empty: none.
func offered() string {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") != "" {
		return ""
	}
	return os.Getenv(CollectorEnv)
}

// exporterTo returns an exporter to a collector, and the address that it connects to.
func exporterTo(ctx context.Context, collector string) (e sdk.SpanExporter, addr string, err error) {
	u, err := url.Parse(collector)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, "", fmt.Errorf("%s is %q, want a URL such as http://localhost:4318", CollectorEnv, collector)
	}
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	addr = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
	e, err = otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.JoinPath("v1/traces").String()))
	return e, addr, err
}

// whilePresent is a tracer provider that makes no spans while the collector is away.
type whilePresent struct {
	embedded.TracerProvider
	real    trace.TracerProvider
	present atomic.Bool
}

// watch follows whether the collector accepts connections, until ctx ends.
func (w *whilePresent) watch(ctx context.Context, addr string) {
	look := func() {
		d := net.Dialer{Timeout: lookWait}
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			_ = c.Close() // nothing was sent
		}
		w.present.Store(err == nil)
	}
	look()
	periodic.Every(ctx, lookEvery, look)
}

// Tracer implements [trace.TracerProvider].
func (w *whilePresent) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return tracer{of: w, real: w.real.Tracer(name, options...), none: noop.NewTracerProvider().Tracer(name)}
}

type tracer struct {
	embedded.Tracer
	of         *whilePresent
	real, none trace.Tracer
}

// Start implements [trace.Tracer].
func (t tracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	if t.of.present.Load() {
		return t.real.Start(ctx, name, options...)
	}
	return t.none.Start(ctx, name, options...)
}
