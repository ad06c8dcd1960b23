package otlptest_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"

	"skandha.dev/services/internal/signals"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/otlptest"
)

// Traces go to a collector that comes late, and none is made before.
func TestACollectorComesLate(t *testing.T) {
	sink := otlptest.New(t)
	to, err := url.Parse(sink.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	t.Setenv(signals.CollectorEnv, "http://"+at)
	s, err := signals.Start(t.Context(), signals.Config{Service: "late", Instance: "one", Log: natstest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	sampled := func() bool {
		_, span := otel.Tracer("test").Start(t.Context(), "a span")
		defer span.End()
		return span.SpanContext().IsSampled()
	}
	if sampled() {
		t.Error("a span was made while there was no collector")
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: httputil.NewSingleHostReverseProxy(to)} //nolint:gosec // of the test alone
	go func() { _ = server.Serve(l) }()                                     // ends with Close
	natstest.Eventually(t, "spans are made", sampled)
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if len(sink.Spans(nil)) == 0 {
		t.Error("the collector has no span")
	}
	_ = server.Close() // nobody needs it
}

func TestAWrongCollectorIsNamed(t *testing.T) {
	t.Setenv(signals.CollectorEnv, "collector:4318")
	_, err := signals.Start(t.Context(), signals.Config{Service: "x", Instance: "one", Log: natstest.Logger(t)})
	if err == nil || !strings.Contains(err.Error(), signals.CollectorEnv) {
		t.Errorf("it starts with %v", err)
	}
}
