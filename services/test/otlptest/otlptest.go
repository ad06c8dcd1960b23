// Package otlptest receives traces, metrics and logs as a collector does, by OTLP over HTTP and over gRPC, for tests.
package otlptest

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collectlogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Span is a span that was received. Ids are in hexadecimal, and an attribute's value is its text.
type Span struct {
	Trace, ID, Parent string
	Service           string // of the process that sent it
	Name              string
	Links             []string // traces
	Start, End        uint64   // Unix time in ns
	Failed            bool
	Attributes        map[string]string
}

// Sink is a collector.
type Sink struct {
	HTTP, GRPC string // endpoints

	mu      sync.Mutex
	spans   []Span
	metrics map[string]int // data points by "service name"
	logs    []string       // "service: body"
	refuse  bool
}

// New starts a collector, until the test ends.
func New(t testing.TB) *Sink {
	t.Helper()
	s := &Sink{metrics: map[string]int{}}
	web := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(web.Close)
	s.HTTP = web.URL
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collecttraces.RegisterTraceServiceServer(server, traceService{s: s})
	collectmetrics.RegisterMetricsServiceServer(server, metricsService{s: s})
	collectlogs.RegisterLogsServiceServer(server, logsService{s: s})
	go func() { _ = server.Serve(l) }() // ends with Stop
	t.Cleanup(server.Stop)
	s.GRPC = "http://" + l.Addr().String()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("spans: %+v\nmetrics: %q\nlogs:\n%s", s.Spans(nil), s.Metrics(), s.Logs())
		}
	})
	return s
}

// Refuse makes the collector answer 503 over HTTP from now on, or no longer.
func (s *Sink) Refuse(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = on
}

// Env is the environment of a process that sends everything to the sink without delay, by the protocol.
func (s *Sink) Env(protocol string) []string {
	at := s.HTTP
	if protocol == "grpc" {
		at = s.GRPC
	}
	return []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + at, "OTEL_EXPORTER_OTLP_PROTOCOL=" + protocol,
		"OTEL_BSP_SCHEDULE_DELAY=20", "OTEL_BLRP_SCHEDULE_DELAY=20", "OTEL_METRIC_EXPORT_INTERVAL=200",
	}
}

// Spans returns the spans of which all attributes are as given.
func (s *Sink) Spans(attributes map[string]string) (out []Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.spans {
		match := true
		for k, v := range attributes {
			match = match && span.Attributes[k] == v
		}
		if match {
			out = append(out, span)
		}
	}
	return out
}

// Trace returns the spans of a trace, in the order of their beginnings.
func (s *Sink) Trace(id string) []Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Span
	for _, span := range s.spans {
		if span.Trace == id {
			out = append(out, span)
		}
	}
	slices.SortStableFunc(out, func(a, b Span) int {
		return int(int64(a.Start) - int64(b.Start)) //nolint:gosec // within one test
	})
	return out
}

// Has reports whether a service has sent a metric.
func (s *Sink) Has(service, metric string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.metrics[service+" "+metric] > 0
}

// Metrics lists what has been sent, as "service name".
func (s *Sink) Metrics() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.metrics {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Logs returns the lines that were sent, as "service: text".
func (s *Sink) Logs() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.logs, "\n")
}

func (s *Sink) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	refuse := s.refuse
	s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil || refuse {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var request proto.Message
	var take func()
	switch r.URL.Path {
	case "/v1/traces":
		m := &collecttraces.ExportTraceServiceRequest{}
		request, take = m, func() { s.takeTraces(m) }
	case "/v1/metrics":
		m := &collectmetrics.ExportMetricsServiceRequest{}
		request, take = m, func() { s.takeMetrics(m) }
	case "/v1/logs":
		m := &collectlogs.ExportLogsServiceRequest{}
		request, take = m, func() { s.takeLogs(m) }
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if err := proto.Unmarshal(body, request); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	take()
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func service(r *resource.Resource) string { return values(r.GetAttributes())["service.name"] }

func values(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[a.GetKey()] = v.StringValue
		default:
			out[a.GetKey()] = strings.TrimSpace(a.GetValue().String()[strings.Index(a.GetValue().String(), ":")+1:])
		}
	}
	return out
}

func (s *Sink) takeTraces(m *collecttraces.ExportTraceServiceRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range m.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			for _, x := range scope.GetSpans() {
				span := Span{
					Trace: hex.EncodeToString(x.GetTraceId()), ID: hex.EncodeToString(x.GetSpanId()), Parent: hex.EncodeToString(x.GetParentSpanId()),
					Service: service(of.GetResource()), Name: x.GetName(), Attributes: values(x.GetAttributes()),
					Start: x.GetStartTimeUnixNano(), End: x.GetEndTimeUnixNano(), Failed: x.GetStatus().GetCode() == traces.Status_STATUS_CODE_ERROR,
				}
				for _, l := range x.GetLinks() {
					span.Links = append(span.Links, hex.EncodeToString(l.GetTraceId()))
				}
				s.spans = append(s.spans, span)
			}
		}
	}
}

func (s *Sink) takeMetrics(m *collectmetrics.ExportMetricsServiceRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range m.GetResourceMetrics() {
		for _, scope := range of.GetScopeMetrics() {
			for _, x := range scope.GetMetrics() {
				n := len(x.GetGauge().GetDataPoints()) + len(x.GetSum().GetDataPoints()) + len(x.GetHistogram().GetDataPoints())
				s.metrics[service(of.GetResource())+" "+x.GetName()] += n
			}
		}
	}
}

func (s *Sink) takeLogs(m *collectlogs.ExportLogsServiceRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range m.GetResourceLogs() {
		for _, scope := range of.GetScopeLogs() {
			for _, x := range scope.GetLogRecords() {
				s.logs = append(s.logs, service(of.GetResource())+": "+x.GetBody().GetStringValue()+" "+strings.Join(pairs(x.GetAttributes()), " "))
			}
		}
	}
}

func pairs(list []*common.KeyValue) (out []string) {
	for k, v := range values(list) {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

type traceService struct {
	collecttraces.UnimplementedTraceServiceServer
	s *Sink
}

func (x traceService) Export(
	_ context.Context, m *collecttraces.ExportTraceServiceRequest,
) (*collecttraces.ExportTraceServiceResponse, error) {
	x.s.takeTraces(m)
	return &collecttraces.ExportTraceServiceResponse{}, nil
}

type metricsService struct {
	collectmetrics.UnimplementedMetricsServiceServer
	s *Sink
}

func (x metricsService) Export(
	_ context.Context, m *collectmetrics.ExportMetricsServiceRequest,
) (*collectmetrics.ExportMetricsServiceResponse, error) {
	x.s.takeMetrics(m)
	return &collectmetrics.ExportMetricsServiceResponse{}, nil
}

type logsService struct {
	collectlogs.UnimplementedLogsServiceServer
	s *Sink
}

func (x logsService) Export(_ context.Context, m *collectlogs.ExportLogsServiceRequest) (*collectlogs.ExportLogsServiceResponse, error) {
	x.s.takeLogs(m)
	return &collectlogs.ExportLogsServiceResponse{}, nil
}
