package tracing

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"skandha.dev/services/internal/signals"
	"skandha.dev/services/internal/timeline"
)

// instruments are the metrics of turns, in seconds.
type instruments struct {
	turn, phase, hook metric.Float64Histogram
}

// buckets of durations, in seconds: a hook takes less than a millisecond, an approval may take an hour.
var buckets = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600}

func newInstruments() (i instruments, err error) {
	meter := otel.Meter(scope)
	for _, h := range []struct {
		into        *metric.Float64Histogram
		name, about string
	}{
		{&i.turn, "skandha.turn.duration", "From the storing of an input to its end."},
		{&i.phase, "skandha.phase.duration", "Parts of turns: queue, plan, step, wait, confirm, run, reflect."},
		{&i.hook, "skandha.hook.duration", "From the question to a plugin to its answer."},
	} {
		*h.into, err = meter.Float64Histogram(h.name, metric.WithUnit("s"), metric.WithDescription(h.about),
			metric.WithExplicitBucketBoundaries(buckets...))
		if err != nil {
			return i, err
		}
	}
	return i, nil
}

// measure counts a turn. The context has its span, of which a metric may keep an example.
func (r *Recorder) measure(ctx context.Context, line timeline.Timeline) {
	agent := signals.GenAIAgent.String(string(line.Agent))
	with := func(more ...attribute.KeyValue) metric.RecordOption {
		return metric.WithAttributes(append(more, agent)...)
	}
	r.tell.turn.Record(ctx, float64(line.DurationMS)/1000, with(signals.Outcome.String(line.Outcome)))
	for _, s := range line.Spans {
		seconds, status := float64(s.DurationUS)/1e6, signals.Status.String(string(s.Status))
		switch s.Kind {
		case timeline.KindHook:
			r.tell.hook.Record(ctx, seconds, with(status, signals.Point.String(string(s.Detail.Point)),
				signals.Plugin.String(string(s.Detail.Plugin))))
		case timeline.KindPolicy, timeline.KindEnd, timeline.KindSense, timeline.KindAttempt:
		case timeline.KindStep, timeline.KindRun, timeline.KindWait, timeline.KindConfirm:
			r.tell.phase.Record(ctx, seconds, with(status, signals.Phase.String(string(s.Kind)), signals.GenAIToolName.String(s.Detail.Tool)))
		default:
			r.tell.phase.Record(ctx, seconds, with(status, signals.Phase.String(string(s.Kind))))
		}
	}
}
