package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"skandha.dev/pkg/telemetry"
)

var wellFormed = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-00$`)

func TestEveryMessageBelongsToATrace(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		h := nats.Header{}
		telemetry.Inject(context.Background(), h)
		tp := h["traceparent"]
		if len(tp) != 1 || !wellFormed.MatchString(tp[0]) || seen[tp[0]] {
			t.Fatalf("header %v, want a new lower-case traceparent", h)
		}
		seen[tp[0]] = true
		sc := trace.SpanContextFromContext(telemetry.Extract(context.Background(), h))
		if !sc.IsValid() || !sc.IsRemote() {
			t.Fatalf("%v was not read back: %+v", tp, sc)
		}
	}
}

func TestATraceGoesOnAcrossProcesses(t *testing.T) {
	first := telemetry.EnsureTrace(context.Background())
	h := nats.Header{}
	telemetry.Inject(first, h)
	second := telemetry.Extract(context.Background(), h)
	if telemetry.TraceID(second) != telemetry.TraceID(first) || telemetry.TraceID(first) == "" {
		t.Errorf("trace %q became %q", telemetry.TraceID(first), telemetry.TraceID(second))
	}
}

func TestATraceIsKept(t *testing.T) {
	a, b := telemetry.EnsureTrace(context.Background()), telemetry.EnsureTrace(context.Background())
	if telemetry.TraceID(a) == telemetry.TraceID(b) {
		t.Errorf("%s twice", telemetry.TraceID(a))
	}
	if telemetry.EnsureTrace(a) != a {
		t.Error("a trace was replaced")
	}
	if telemetry.TraceID(telemetry.EnsureTrace(context.Background())) == "" ||
		telemetry.TraceID(context.Background()) != "" {
		t.Error("no trace, or one out of nothing")
	}
}

func TestAMessageKeepsTheTraceItHas(t *testing.T) {
	const tp = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	h := nats.Header{"Traceparent": {tp}}
	telemetry.Inject(context.Background(), h)
	if len(h) != 1 || h["Traceparent"][0] != tp {
		t.Errorf("%v", h)
	}
	telemetry.Inject(telemetry.EnsureTrace(context.Background()), h)
	if len(h) != 1 || h["traceparent"] == nil || h["traceparent"][0] == tp {
		t.Errorf("%v, want the context's trace under the lower-case key alone", h)
	}
}

func TestHeadersAreReadInAnyCase(t *testing.T) {
	const tp = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	for _, key := range []string{"traceparent", "Traceparent", "TRACEPARENT", "TraceParent"} {
		sc := trace.SpanContextFromContext(telemetry.Extract(context.Background(),
			nats.Header{key: {tp}, "Tracestate": {"a=b"}}))
		if sc.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || sc.TraceState().Get("a") != "b" {
			t.Errorf("%s: %+v", key, sc)
		}
	}
}

func TestMalformedHeadersAreIgnored(t *testing.T) {
	for _, tp := range []string{
		"", "x", "00-00000000000000000000000000000000-b7ad6b7169203331-01", strings.Repeat("0", 4096),
	} {
		ctx := telemetry.Extract(context.Background(), nats.Header{"traceparent": {tp}, "baggage": {"=,;"}})
		if telemetry.TraceID(ctx) != "" {
			t.Errorf("%q made the trace %s", tp, telemetry.TraceID(ctx))
		}
	}
}

func TestBaggageGoesAlong(t *testing.T) {
	m, err := baggage.NewMember("party", "acme")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(m)
	if err != nil {
		t.Fatal(err)
	}
	h := nats.Header{}
	telemetry.Inject(baggage.ContextWithBaggage(context.Background(), bag), h)
	if got := baggage.FromContext(telemetry.Extract(context.Background(), h)).Member("party").Value(); got != "acme" ||
		len(h["baggage"]) != 1 {
		t.Errorf("%q from %v", got, h)
	}
}

func TestNothingToExtractCostsNothing(t *testing.T) {
	ctx, other := context.Background(), nats.Header{"Nats-Msg-Id": {"x"}}
	if n := testing.AllocsPerRun(100, func() {
		if telemetry.Extract(ctx, nil) != ctx || telemetry.Extract(ctx, other) != ctx {
			t.Error("the context was replaced")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCarrierSpeaksLowerCase(t *testing.T) {
	c := telemetry.Carrier{"TraceState": {"old"}, "Other": {"x"}}
	c.Set("Tracestate", "new")
	if len(c) != 2 || c["tracestate"][0] != "new" || c.Get("TRACESTATE") != "new" || c.Get("none") != "" ||
		len(c.Keys()) != 2 {
		t.Errorf("%v", c)
	}
}

func TestLoggerIsTextOrJSON(t *testing.T) {
	var text, jsonl bytes.Buffer
	for _, c := range []struct {
		w      *bytes.Buffer
		config telemetry.LogConfig
	}{{&text, telemetry.LogConfig{}}, {&jsonl, telemetry.LogConfig{Format: "json", Level: "WARN"}}} {
		l, err := telemetry.NewLogger(c.w, "core", c.config)
		if err != nil {
			t.Fatal(err)
		}
		l.Debug("no")
		l.Info("hello")
		l.Warn("careful")
	}
	if s := text.String(); !strings.Contains(s, "msg=hello service=core") || strings.Contains(s, "msg=no") {
		t.Error(s)
	}
	var record map[string]any
	if err := json.Unmarshal(jsonl.Bytes(), &record); err != nil || record["msg"] != "careful" ||
		record["service"] != "core" {
		t.Errorf("%s: %v", jsonl.String(), err)
	}
}

func TestLogsHaveTheTrace(t *testing.T) {
	var out bytes.Buffer
	log, err := telemetry.NewLogger(&out, "core", telemetry.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	const tp = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	spanned := telemetry.Extract(context.Background(), nats.Header{"traceparent": {tp}})
	begun := telemetry.EnsureTrace(context.Background())
	for want, ctx := range map[string]context.Context{
		"msg=x service=core a=b\n": context.Background(),
		"a=b trace_id=0af7651916cd43dd8448eb211c80319c span_id=b7ad6b7169203331\n": spanned,
		"a=b trace_id=" + telemetry.TraceID(begun) + "\n":                          begun,
	} {
		out.Reset()
		log.With("a", "b").InfoContext(ctx, "x")
		if !strings.HasSuffix(out.String(), want) {
			t.Errorf("%q, want %q at its end", out.String(), want)
		}
	}
}

func TestLogConfigIsChecked(t *testing.T) {
	for field, c := range map[string]telemetry.LogConfig{
		"log.level": {Level: "loud"}, "log.format": {Format: "xml"},
	} {
		if _, err := telemetry.NewLogger(io.Discard, "", c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%+v: %v, want an error that names %s", c, err, field)
		}
	}
}

func BenchmarkInject(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		telemetry.Inject(context.Background(), make(nats.Header, 1))
	}
}

func TestCredentialsInURLsAreNotShown(t *testing.T) {
	for text, want := range map[string]string{
		"nats://user:secret@host:4222":                   "nats://xxxxx@host:4222",
		"nats://host:4222, nats://secret@other:4222":     "nats://host:4222, nats://xxxxx@other:4222",
		"nats://secret@%zz":                              "nats://xxxxx@%zz",
		`nats.addr "nats://se/cret@host:1": want a port`: `nats.addr "nats://xxxxx@host:1": want a port`,
		"get https://example.org/@ada: not found":        "get https://example.org/@ada: not found",
		`invalid proxy address "u:secret%zz@h": parse "http://u:secret%zz@h": invalid`: "invalid proxy address: " +
			"see HTTP_PROXY and HTTPS_PROXY",
		`invalid proxy address "my_user:se%zzcret@proxy:3128": parse "my_user:se%zzcret": first path segment`: "invalid " +
			"proxy address: see HTTP_PROXY and HTTPS_PROXY",
		"mail ada@example.org": "mail ada@example.org",
	} {
		if got := telemetry.Redact(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	var out bytes.Buffer
	log, err := telemetry.NewLogger(&out, "", telemetry.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	log.Info("connecting to nats://secret@host", "url", "nats://secret@host",
		"error", errors.New("nats://secret@host is away"), "all", []string{"nats://secret@host"},
		"parsed", &url.URL{Scheme: "http", User: url.UserPassword("u", "secret"), Host: "host"})
	if strings.Contains(out.String(), "secret") {
		t.Errorf("the log shows the token: %s", out.String())
	}
}
