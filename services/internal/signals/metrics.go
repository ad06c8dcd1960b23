package signals

import (
	"context"
	"maps"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/metric"
)

// Counters sends the values that f returns, by name, whenever metrics are collected.
func (s *Signals) Counters(f func() map[string]int64) {
	if s == nil || s.metrics == nil {
		return
	}
	c := &counters{meter: s.metrics.Meter("skandha.dev/counters"), read: f, known: map[string]metric.Int64ObservableGauge{}}
	c.learn(f())
}

// counters are values whose names are only known when they are read.
type counters struct {
	meter metric.Meter
	read  func() map[string]int64

	mu    sync.Mutex
	known map[string]metric.Int64ObservableGauge
}

// learn registers the names that are new.
func (c *counters) learn(values map[string]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var fresh []metric.Observable
	names := map[string]metric.Int64ObservableGauge{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if c.known[name] != nil {
			continue
		}
		if g, err := c.meter.Int64ObservableGauge("skandha." + name); err == nil { // a name that is none is left out
			c.known[name], names[name] = g, g
			fresh = append(fresh, g)
		}
	}
	if len(fresh) == 0 {
		return
	}
	// It only fails for instruments of another meter.
	_, _ = c.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		values := c.read()
		for name, g := range names {
			if v, is := values[name]; is {
				o.ObserveInt64(g, v)
			}
		}
		go c.learn(values) // not now: the meter is locked
		return nil
	}, fresh...)
}
