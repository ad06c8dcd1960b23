package otlptest_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	model "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	names "github.com/prometheus/common/model"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/internal/turn"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/tail"
	"skandha.dev/services/sandbox/selection"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/otlptest"
	"skandha.dev/services/test/scripted"
)

// price is what each answer of the model costs, in millionths of a US dollar.
const price = 1500

// measured is a system that serves /metrics.
type measured struct {
	*system.System
	t      *testing.T
	at     string // host:port
	client *client.Client
}

// serve starts a system whose model answers "write" with two calls, of which one takes a sandbox that is not to be
// had, and "free" with a text whose cost is unknown. A plugin is asked about each call.
func serve(t *testing.T) *measured {
	t.Helper()
	m := &measured{t: t, at: fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))}
	paid := scripted.By(func(text string) scripted.Reply {
		r := scripted.Reply{Text: "yes", Usage: contract.Usage{InputTokens: 10, OutputTokens: 2, CostMicroUSD: price}}
		if strings.HasPrefix(text, "write") {
			r.Calls = []contract.ToolCall{
				{Tool: "file_system:write_file", Args: []byte(`{"path":"a.txt","content":"a"}`)},
				{Tool: "python:execute", Args: []byte(`{"code":"1"}`)},
			}
		}
		if text == "free" {
			r.Usage.CostMicroUSD = 0
		}
		return r
	}, func(tail.Result) string { return "done" })
	config := filepath.Join(t.TempDir(), "config.yaml")
	err := os.WriteFile(config, []byte("providers: {prices: {offline/rules: {input: 1}}}\n"), 0o600) // which is not enough
	if err != nil {
		t.Fatal(err)
	}
	if m.System, err = system.Start(natstest.Context(t), system.Config{
		ConfigFile: config, Sandbox: &system.Sandbox{Flags: selection.Flags{Driver: "none"}}, Data: t.TempDir(), Models: []adapter.Adapter{paid}, Sync: "relaxed", HTTP: m.at, Log: natstest.Logger(t),
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Stop)
	if m.client, err = client.New(natstest.Join(t, m, "test"), "test", natstest.Logger(t)); err != nil {
		t.Fatal(err)
	}
	at, err := m.Invite(natstest.Context(t), rights.Local("guard"))
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	ready := make(chan struct{})
	go func() {
		_ = plugin.Serve(t.Context(), plugin.Manifest{Name: "guard", Version: "1.0.0"}, plugin.Handlers{ // ends with the test
			plugin.BeforeAct(func(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
				return plugin.Continue(), nil
			}),
		}, plugin.WithConfig(bus.Config{URL: at, Name: "guard", Logger: natstest.Logger(t)}), plugin.OnState(func(s plugin.LeaseState, _ string) {
			if s == plugin.Active {
				once.Do(func() { close(ready) })
			}
		}), plugin.WithLogger(natstest.Logger(t)))
	}()
	<-ready
	return m
}

// say waits for the end of a turn, and returns what it cost.
func (m *measured) say(session subject.Session, text string) contract.Usage {
	m.t.Helper()
	ctx, ref := natstest.Context(m.t), subject.Ref{Agent: "main", Session: session}
	items, err := m.client.Follow(ctx, ref)
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := m.client.Say(ctx, ref, event.Input{Text: text}); err != nil {
		m.t.Fatal(err)
	}
	for i := range items {
		if e := i.Event; e.Type == event.TypeRecorded || e.Type == event.TypeTurnFailed {
			if end := turn.EndOf(e); end.Recorded != nil {
				return end.Recorded.Usage
			}
			m.t.Fatalf("%q failed: %s", text, e.Data)
		}
	}
	m.t.Fatalf("%q has no end", text)
	return contract.Usage{}
}

// get returns /metrics in a format.
func (m *measured) get(accept string) string {
	m.t.Helper()
	q, err := http.NewRequestWithContext(natstest.Context(m.t), http.MethodGet, "http://"+m.at+"/metrics", nil)
	if err != nil {
		m.t.Fatal(err)
	}
	q.Header.Set("Accept", accept)
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }() // it was read
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		m.t.Fatalf("%s: %v", res.Status, err)
	}
	return string(body)
}

type families map[string]*model.MetricFamily

// scrape reads /metrics.
func (m *measured) scrape() families {
	m.t.Helper()
	p := expfmt.NewTextParser(names.UTF8Validation)
	f, err := p.TextToMetricFamilies(strings.NewReader(m.get("text/plain")))
	if err != nil {
		m.t.Fatal(err)
	}
	return f
}

// sum adds up the values, or the counts of histograms, of all series that have the labels.
func (f families) sum(name string, labels ...string) (sum float64) {
	for _, s := range f[name].GetMetric() {
		has := 0
		for _, l := range s.GetLabel() {
			for i := 0; i < len(labels); i += 2 {
				if l.GetName() == labels[i] && l.GetValue() == labels[i+1] {
					has++
				}
			}
		}
		if has == len(labels)/2 {
			sum += s.GetCounter().GetValue() + s.GetGauge().GetValue() + float64(s.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// /metrics has what turns did, without any variable of OpenTelemetry.
func TestMetricsSayWhatHappened(t *testing.T) {
	m := serve(t)
	used := m.say("one", "write").Add(m.say("two", "hello"))
	if used.CostMicroUSD < 2*price {
		t.Fatalf("the log says that the turns used %+v", used)
	}
	var f families
	natstest.Eventually(t, "the turns are measured", func() bool {
		f = m.scrape()
		return f.sum("skandha_turn_duration_seconds", "skandha_outcome", "answered", "gen_ai_agent_name", "main") == 2
	})
	const (
		chat = "gen_ai_operation_name"
		cost = "skandha_cost_usd_total"
	)
	if got := f.sum(cost, "gen_ai_agent_name", "main", "gen_ai_provider_name", "offline"); math.Abs(got-float64(used.CostMicroUSD)/1e6) > 1e-9 {
		t.Errorf("%s is %v, and the log says %d millionths", cost, got, used.CostMicroUSD)
	}
	info, err := m.client.Journal.LogInfo(natstest.Context(t), "")
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the backlog is known", func() bool {
		f = m.scrape()
		return f["skandha_backlog"] != nil
	})
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
		kind   model.MetricType
	}{
		{"skandha_phase_duration_seconds", []string{"skandha_phase", "reflect"}, 2, model.MetricType_HISTOGRAM},
		{"skandha_phase_duration_seconds", []string{"skandha_phase", "step", "gen_ai_tool_name", "file_system:write_file"}, 1, model.MetricType_HISTOGRAM},
		{"skandha_hook_duration_seconds", []string{"skandha_plugin", "guard", "skandha_hook_point", "before_act"}, 2, model.MetricType_HISTOGRAM},
		{"gen_ai_client_operation_duration_seconds", []string{chat, "chat", "gen_ai_provider_name", "offline"}, 3, model.MetricType_HISTOGRAM},
		{"gen_ai_client_operation_duration_seconds", []string{chat, "execute_tool", "gen_ai_tool_name", "file_system:write_file"}, 1, model.MetricType_HISTOGRAM},
		{"skandha_sandbox_duration_seconds", []string{"skandha_phase", "get", "skandha_status", "failed"}, 1, model.MetricType_HISTOGRAM},
		{"skandha_stream_messages", []string{"stream", bus.StreamSessions}, float64(info.State.Msgs), model.MetricType_GAUGE},
		{"skandha_stream_size_bytes", []string{"stream", bus.StreamSessions}, float64(info.State.Bytes), model.MetricType_GAUGE},
		{"skandha_stream_limit_bytes", []string{"stream", bus.StreamSessions}, float64(info.Config.MaxBytes), model.MetricType_GAUGE},
		{"skandha_fence_lost_total", nil, 0, model.MetricType_COUNTER},
		{"skandha_redeliveries_total", nil, 0, model.MetricType_COUNTER},
		{"skandha_dead_letters_total", nil, 0, model.MetricType_COUNTER},
		{"skandha_open_sessions", nil, 0, model.MetricType_GAUGE},
		{"skandha_backlog", nil, 0, model.MetricType_GAUGE},
	} {
		if got := f.sum(c.name, c.labels...); got != c.want || f[c.name].GetType() != c.kind {
			t.Errorf("%s %v is %v (%v), want %v (%v)", c.name, c.labels, got, f[c.name].GetType(), c.want, c.kind)
		}
	}
	// No label has an id: one series per session would fill Prometheus.
	for name, family := range f {
		for _, s := range family.GetMetric() {
			for _, l := range s.GetLabel() {
				if strings.Contains(l.GetName(), "session") || strings.Contains(l.GetName(), "conversation") || l.GetValue() == "one" {
					t.Errorf("%s has the label %s=%q", name, l.GetName(), l.GetValue())
				}
			}
		}
	}
}

// With traces, buckets have the trace of a turn, which the sink has.
func TestMetricsNameTraces(t *testing.T) {
	sink := otlptest.New(t)
	for _, v := range sink.Env("http/protobuf") {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	m := serve(t)
	m.say("one", "write")
	turn, _ := of(t, sink, "one")
	for _, name := range []string{
		"skandha_turn_duration_seconds", "skandha_phase_duration_seconds", "skandha_hook_duration_seconds", "gen_ai_client_operation_duration_seconds",
	} {
		natstest.Eventually(t, name+" has an exemplar", func() bool {
			for line := range strings.Lines(m.get("application/openmetrics-text")) {
				if strings.HasPrefix(line, name+"_bucket{") && strings.Contains(line, `trace_id="`+turn.Trace+`"`) {
					return true
				}
			}
			return false
		})
	}
}
