package signals

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/internal/buildinfo"
)

// Signals are the traces, metrics and logs of this process.
type Signals struct {
	traces  *trace.TracerProvider // nil: none are sent
	metrics *metric.MeterProvider
	scraped *prometheus.Registry // nil: /metrics is not served
	logs    *log.LoggerProvider
	unwatch func() // of the collector; nil: there is none to watch
}

// The names in the variables.
const (
	traces  = "TRACES"
	metrics = "METRICS"
	logs    = "LOGS"
)

// wanted reports whether the environment asks for a kind of signal.
func wanted(kind string) bool {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return false
	}
	switch os.Getenv("OTEL_" + kind + "_EXPORTER") {
	case "none":
		return false
	case "":
		return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+kind+"_ENDPOINT") != ""
	}
	return true
}

// flushWait is how long the end of a process may take to send what is left.
const flushWait = 3 * time.Second

// Config of the signals of a process.
type Config struct {
	Service  string       // name of the process
	Instance string       // that no other process has
	Scraped  bool         // the process serves /metrics, so metrics are collected whatever the environment says
	Log      *slog.Logger // gets what goes wrong
}

// Start begins to send what the environment asks for, which may be nothing. The error names the variable that is
// wrong.
func Start(ctx context.Context, c Config) (*Signals, error) {
	s := &Signals{}
	if c.Scraped {
		s.scraped = prometheus.NewRegistry()
	}
	for _, v := range os.Environ() { // a variable that is empty is none, which not every part of the SDK knows
		if name, value, _ := strings.Cut(v, "="); value == "" && strings.HasPrefix(name, "OTEL_") {
			_ = os.Unsetenv(name) // it has no invalid characters
		}
	}
	sent := wanted(traces) || pushed() || wanted(logs)
	if !sent && !c.Scraped && offered() == "" {
		return s, nil
	}
	otel.SetErrorHandler(&faults{say: c.Log})
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(
		attribute.String("service.name", c.Service), attribute.String("service.namespace", "skandha"),
		attribute.String("service.version", buildinfo.String()), attribute.String("service.instance.id", c.Instance),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if err := s.start(ctx, about); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	if sent {
		c.Log.Info("telemetry is sent by OTLP", "traces", wanted(traces), "metrics", pushed(), "logs", s.logs != nil)
	}
	return s, nil
}

func (s *Signals) start(ctx context.Context, about *resource.Resource) error {
	switch collector := offered(); {
	case wanted(traces):
		e, err := autoexport.NewSpanExporter(ctx)
		if err != nil {
			return wrong(traces, err)
		}
		s.traces = provider(e, about)
		otel.SetTracerProvider(s.traces)
	case collector != "":
		e, addr, err := exporterTo(ctx, collector)
		if err != nil {
			return err
		}
		s.traces = provider(e, about)
		w := &whilePresent{real: s.traces}
		watched, stop := context.WithCancel(context.WithoutCancel(ctx))
		go w.watch(watched, addr)
		s.unwatch = stop
		otel.SetTracerProvider(w)
	}
	if pushed() || s.scraped != nil {
		if err := s.collect(ctx, about); err != nil {
			return wrong(metrics, err)
		}
	}
	if wanted(logs) {
		e, err := autoexport.NewLogExporter(ctx)
		if err != nil {
			return wrong(logs, err)
		}
		s.logs = log.NewLoggerProvider(log.WithProcessor(log.NewBatchProcessor(e)), log.WithResource(about))
	}
	return nil
}

func provider(e trace.SpanExporter, about *resource.Resource) *trace.TracerProvider {
	return trace.NewTracerProvider(trace.WithBatcher(e), trace.WithResource(about), trace.WithIDGenerator(ids{}))
}

// pushed reports whether metrics are sent. With the exporter prometheus they are at /metrics only.
func pushed() bool { return wanted(metrics) && os.Getenv("OTEL_METRICS_EXPORTER") != "prometheus" }

// collect makes the metrics, to be sent, at /metrics, or both.
func (s *Signals) collect(ctx context.Context, about *resource.Resource) error {
	options := []metric.Option{metric.WithResource(about)}
	if pushed() {
		r, err := autoexport.NewMetricReader(ctx)
		if err != nil {
			return err
		}
		options = append(options, metric.WithReader(r))
	}
	if s.scraped != nil {
		// Labels that are the same for every metric of a service would only cost memory.
		r, err := exporter.New(exporter.WithRegisterer(s.scraped), exporter.WithoutScopeInfo())
		if err != nil {
			return err
		}
		options = append(options, metric.WithReader(r))
	}
	s.metrics = metric.NewMeterProvider(options...)
	otel.SetMeterProvider(s.metrics)
	return nil
}

// Handler serves the metrics in the formats of Prometheus and OpenMetrics; nil: the process does not serve them.
func (s *Signals) Handler() http.Handler {
	if s == nil || s.scraped == nil {
		return nil
	}
	return promhttp.HandlerFor(s.scraped, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// wrong says which variables an exporter cannot be made of.
func wrong(kind string, err error) error {
	return fmt.Errorf("OTEL_%s_EXPORTER is %q, OTEL_EXPORTER_OTLP_PROTOCOL is %q: %w; want otlp, console or none (for metrics also prometheus), and http/protobuf or grpc",
		kind, os.Getenv("OTEL_"+kind+"_EXPORTER"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), err)
}

// On reports whether traces or metrics are collected.
func (s *Signals) On() bool { return s != nil && (s.traces != nil || s.metrics != nil) }

// Stop sends what is left, for a few seconds at most.
func (s *Signals) Stop() error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushWait)
	defer cancel()
	var errs []error
	if s.unwatch != nil {
		s.unwatch()
	}
	if s.traces != nil {
		errs = append(errs, s.traces.Shutdown(ctx))
	}
	if s.metrics != nil {
		errs = append(errs, s.metrics.Shutdown(ctx))
	}
	if s.logs != nil {
		errs = append(errs, s.logs.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// faults says what goes wrong, once a minute.
type faults struct {
	say *slog.Logger

	mu   sync.Mutex
	said time.Time
	more int
}

const sayEvery = time.Minute

// Handle implements otel.ErrorHandler.
func (f *faults) Handle(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.said) < sayEvery {
		f.more++
		return
	}
	f.say.Warn("telemetry cannot be delivered and is dropped", "error", telemetry.Redact(err.Error()), "before", f.more)
	f.said, f.more = time.Now(), 0
}
