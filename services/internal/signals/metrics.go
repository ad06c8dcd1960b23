package signals

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/metric"
)

// Counters exports the values that f returns, by name, whenever metrics are collected. Names are "skandha." and what f
// calls them. A value is a counter, which Prometheus shows with the suffix _total, unless [IsGauge] knows it.
func (s *Signals) Counters(f func() map[string]int64) {
	if s == nil || s.metrics == nil {
		return
	}
	c := &counters{meter: s.metrics.Meter("skandha.dev/counters"), read: f, known: map[string]metric.Int64Observable{}}
	c.learn(f())
}

// gauges are the values that go down as well; a name that ends with * is a prefix.
var gauges = []string{
	"goroutines", "heap_bytes", "sys_bytes",
	"open_sessions", "waiting_sessions", "queued_sessions", "limited_sessions", "backlog", "log_bytes", "log_max_bytes",
	"provider_slots*", "sandbox_slots*", "toolrunner_slots*", "schedules",
	"sandbox_sessions", "sandbox_warm", "sandbox_used", "sandbox_starting", "sandbox_ending", "sandbox_waiting",
	"listener_state_*", "listener_websocket_open",
	"uibridge_sessions", "uibridge_feeds", "uibridge_connections", "uibridge_anonymous", "uibridge_cameras",
	"uibridge_sse_open", "uibridge_ws_open", "uibridge_agui_open", "uibridge_openai_open",
}

// Gauges returns the names of values that are gauges; one that ends with * is a prefix.
func Gauges() []string { return slices.Clone(gauges) }

// IsGauge reports whether a value is a gauge.
func IsGauge(name string) bool {
	return slices.ContainsFunc(gauges, func(g string) bool { return covers(g, name) })
}

// covers reports whether a name of [Gauges] is, or begins, that of a value.
func covers(gauge, name string) bool {
	prefix, all := strings.CutSuffix(gauge, "*")
	return name == gauge || all && strings.HasPrefix(name, prefix)
}

// counters are values whose names are only known when they are read.
type counters struct {
	meter metric.Meter
	read  func() map[string]int64

	mu    sync.Mutex
	known map[string]metric.Int64Observable
}

// learn registers the names that are new.
func (c *counters) learn(values map[string]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var fresh []metric.Observable
	names := map[string]metric.Int64Observable{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if c.known[name] != nil {
			continue
		}
		if v, err := c.instrument(name); err == nil { // a name that is none is left out
			c.known[name], names[name] = v, v
			fresh = append(fresh, v)
		}
	}
	if len(fresh) == 0 {
		return
	}
	// It only fails for instruments of another meter.
	_, _ = c.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		values := c.read()
		for name, v := range names {
			if n, is := values[name]; is {
				o.ObserveInt64(v, n)
			}
		}
		go c.learn(values) // not now: the meter is locked
		return nil
	}, fresh...)
}

func (c *counters) instrument(name string) (metric.Int64Observable, error) {
	full := "skandha." + strings.TrimSuffix(name, "_total")
	if IsGauge(name) {
		return c.meter.Int64ObservableGauge(full)
	}
	return c.meter.Int64ObservableCounter(full)
}
