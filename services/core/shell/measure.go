package shell

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"skandha.dev/services/internal/signals"
)

// usageWait bounds how long a collection of metrics waits for the bus.
const usageWait = 2 * time.Second

// measureStreams exports what each stream holds, until stop is called. All cores export the same.
func (c *Core) measureStreams() (stop func(), err error) {
	meter := otel.Meter("skandha.dev/services/core")
	var bytes, most, messages metric.Int64ObservableGauge
	for _, g := range []struct {
		into              *metric.Int64ObservableGauge
		name, unit, about string
	}{
		{&bytes, "skandha.stream.size", "By", "What a stream holds, in bytes."},
		{&most, "skandha.stream.limit", "By", "What a stream may hold, in bytes; none if it has no limit."},
		{&messages, "skandha.stream.messages", "{message}", "Messages in a stream."},
	} {
		*g.into, err = meter.Int64ObservableGauge(g.name, metric.WithUnit(g.unit), metric.WithDescription(g.about))
		if err != nil {
			return nil, err
		}
	}
	r, err := meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, usageWait)
		defer cancel()
		all, err := c.bus.Use(ctx, c.cfg.Streams)
		if err != nil { // what is missing says that the bus does not answer
			c.log.Debug("not all streams are measured", "error", err)
		}
		for _, s := range all {
			of := metric.WithAttributeSet(attribute.NewSet(signals.Stream.String(s.Name)))
			o.ObserveInt64(bytes, int64(s.Bytes), of)       //nolint:gosec // on a disk
			o.ObserveInt64(messages, int64(s.Messages), of) //nolint:gosec // on a disk
			if s.MaxBytes > 0 {
				o.ObserveInt64(most, s.MaxBytes, of)
			}
		}
		return nil
	}, bytes, most, messages)
	if err != nil {
		return nil, err
	}
	return func() { _ = r.Unregister() }, nil // it never fails
}
