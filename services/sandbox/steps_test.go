package sandbox_test

import (
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"skandha.dev/services/internal/signals"
	"skandha.dev/services/sandbox"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/otlptest"
)

// What a call does in its sandbox are spans below that of the tool, in the trace of the turn.
func TestStepsOfACallAreSpans(t *testing.T) {
	sink := otlptest.New(t)
	for _, v := range sink.Env("http/protobuf") {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	sent, err := signals.Start(t.Context(), signals.Config{Service: "sandbox", Instance: "one", Log: natstest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	s.under = trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true,
	})
	if got := s.python("open('a.txt', 'w').write('x')"); got.ExitCode != 0 {
		t.Errorf("got %+v", got)
	}
	if n := c.service.Counters(); n["sandbox_started"] != 1 || n["sandbox_used"] != 1 || n["sandbox_destroyed"] != 0 {
		t.Errorf("the pool counts %v", n)
	}
	c.stop()
	if n := c.service.Counters(); n["sandbox_destroyed"] != 1 || n["sandbox_used"] != 0 {
		t.Errorf("after its end, the pool counts %v", n)
	}
	if err := sent.Stop(); err != nil {
		t.Fatal(err)
	}
	all := sink.Trace(s.under.TraceID().String())
	top := slices.IndexFunc(all, func(s otlptest.Span) bool { return s.Name == "execute_tool python:execute" })
	if top < 0 {
		t.Fatalf("no span of the tool in %+v", all)
	}
	if all[top].Parent != s.under.SpanID().String() {
		t.Errorf("the tool's span is below %s", all[top].Parent)
	}
	for _, name := range []string{"sandbox get", "sandbox run", "sandbox save"} {
		i := slices.IndexFunc(all, func(s otlptest.Span) bool { return s.Name == name })
		if i < 0 || all[i].Parent != all[top].ID || all[i].Failed {
			t.Errorf("%s is not below the tool in %+v", name, all)
		}
	}
	if !sink.Has("sandbox", "skandha.sandbox.duration") {
		t.Errorf("the steps are not measured: %v", sink.Metrics())
	}
}
