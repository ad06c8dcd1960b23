package sandbox

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"skandha.dev/services/internal/signals"
)

// The steps of a call, each a span below that of the tool.
const (
	stepGet     = "get"     // until a sandbox is free
	stepInstall = "install" // of packages
	stepRestore = "restore" // of the session's files
	stepRun     = "run"
	stepSave    = "save" // of the session's files; the result does not wait for its end
)

// steps makes the spans and durations of steps, if the process sends any.
type steps struct {
	tracer   trace.Tracer
	duration metric.Float64Histogram
}

// The buckets in seconds: a warm sandbox takes a millisecond, the installation of packages minutes.
var stepBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

func newSteps() (s steps, err error) {
	const scope = "skandha.dev/services/" + name
	s.tracer = otel.Tracer(scope)
	s.duration, err = otel.Meter(scope).Float64Histogram("skandha.sandbox.duration", metric.WithUnit("s"),
		metric.WithDescription("Steps of calls in sandboxes: get, install, restore, run, save."),
		metric.WithExplicitBucketBoundaries(stepBuckets...))
	return s, err
}

// begin begins a step of the call that the context belongs to. end takes the step's error.
func (s steps) begin(ctx context.Context, step string) (_ context.Context, end func(error)) {
	began, phase := time.Now(), signals.Phase.String(step)
	ctx, span := s.tracer.Start(ctx, "sandbox "+step, trace.WithTimestamp(began), trace.WithAttributes(phase))
	return ctx, func(err error) {
		status := "ok"
		if err != nil {
			status = "failed"
			span.SetStatus(codes.Error, signals.Said(err.Error(), status))
		}
		s.duration.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(phase, signals.Status.String(status)))
		span.End()
	}
}
