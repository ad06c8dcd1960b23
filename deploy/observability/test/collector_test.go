package test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/batchprocessor"
	"go.opentelemetry.io/collector/processor/memorylimiterprocessor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const patience = 20 * time.Second

// jaeger takes traces.
type jaeger struct {
	ptraceotlp.UnimplementedGRPCServer
	got chan string // names of spans
}

func (j *jaeger) Export(_ context.Context, r ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	for _, of := range r.Traces().ResourceSpans().All() {
		for _, scope := range of.ScopeSpans().All() {
			for _, span := range scope.Spans().All() {
				j.got <- span.Name()
			}
		}
	}
	return ptraceotlp.NewExportResponse(), nil
}

func port(t *testing.T) (address string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the address is free again
	return l.Addr().String()
}

func factories() (f otelcol.Factories, err error) {
	if f.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory()); err != nil {
		return f, err
	}
	if f.Processors, err = otelcol.MakeFactoryMap[processor.Factory](batchprocessor.NewFactory(), memorylimiterprocessor.NewFactory()); err != nil {
		return f, err
	}
	f.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](otlpexporter.NewFactory())
	return f, err
}

func request(name string) ptraceotlp.ExportRequest {
	traces := ptrace.NewTraces()
	span := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.SetName(name)
	span.SetTraceID([16]byte{1})
	span.SetSpanID([8]byte{2})
	return ptraceotlp.NewExportRequestFromTraces(traces)
}

// The file is accepted, which the collector reads strictly, and what services and plugins send arrives, by both protocols.
// Only the addresses are others.
func TestTheCollectorPassesTracesOn(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	store, server := &jaeger{got: make(chan string, 16)}, grpc.NewServer()
	ptraceotlp.RegisterGRPCServer(server, store)
	go func() { _ = server.Serve(l) }() // ends with Stop
	t.Cleanup(server.Stop)
	overGRPC, overHTTP, own := port(t), port(t), port(t)
	_, ownPort, err := net.SplitHostPort(own)
	if err != nil {
		t.Fatal(err)
	}
	c, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "collector", Version: "test"}, Factories: factories, DisableGracefulShutdown: true,
		LoggingOptions: []zap.Option{zap.WrapCore(func(zapcore.Core) zapcore.Core { return zapcore.NewNopCore() })},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs: []string{
				"file:../collector.yaml", "yaml:receivers::otlp::protocols::grpc::endpoint: " + overGRPC,
				"yaml:receivers::otlp::protocols::http::endpoint: " + overHTTP,
				"yaml:exporters::otlp/jaeger::endpoint: " + l.Addr().String(),
				fmt.Sprintf("yaml:service: {telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: %s}}}}]}}}", ownPort),
			},
			ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory(), yamlprovider.NewFactory()},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		c.Shutdown()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(overGRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // everything was answered
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := ptraceotlp.NewGRPCClient(conn).Export(ctx, request("by gRPC"), grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	body, err := request("by HTTP").MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+overHTTP+"/v1/traces", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/x-protobuf")
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close() // the status says it
	if res.StatusCode != http.StatusOK {
		t.Errorf("over HTTP it answers %s", res.Status)
	}
	for got := map[string]bool{}; !got["by gRPC"] || !got["by HTTP"]; {
		select {
		case name := <-store.got:
			got[name] = true
		case <-ctx.Done():
			t.Fatalf("only %v arrived", got)
		}
	}
}

// What is tested is what is deployed.
func TestTheVersionIsThatOfTheImage(t *testing.T) {
	version := regexp.MustCompile(`otel/opentelemetry-collector:([0-9.]+)`)
	own, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	tested := regexp.MustCompile(`go.opentelemetry.io/collector/otelcol v([0-9.]+)`).FindSubmatch(own)
	for _, name := range []string{"../../../docker-compose.yml", "../../docker/Dockerfile"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if deployed := version.FindSubmatch(text); deployed == nil || tested == nil || string(deployed[1]) != string(tested[1]) {
			t.Errorf("%s has %q, go.mod %q", name, deployed, tested)
		}
	}
}
