package otlptest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/otlptest"
)

// need finds a program of Debian's package prometheus. Without it, it skips the test, or fails it if the environment
// says SKANDHA_REQUIRE=all.
func need(t *testing.T, name string) string {
	t.Helper()
	program, err := exec.LookPath(name)
	if err != nil {
		missing := "NOT TESTED: " + name + " is not installed (Debian: prometheus)"
		if os.Getenv("SKANDHA_REQUIRE") == "all" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	return program
}

// prometheus is a server of the test.
type prometheus struct {
	t   *testing.T
	url string
}

// collecting starts Prometheus with the configuration of the Compose profile, but for where it finds the services: it
// collects from the address, without much delay.
func collecting(t *testing.T, from string) *prometheus {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployed, "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Global map[string]any   `yaml:"global"`
		Jobs   []map[string]any `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	c.Global["scrape_interval"], c.Global["scrape_timeout"] = "250ms", "250ms"
	c.Jobs = c.Jobs[:1]
	delete(c.Jobs[0], "dns_sd_configs")
	delete(c.Jobs[0], "relabel_configs")
	c.Jobs[0]["static_configs"] = []any{map[string]any{"targets": []string{from}, "labels": map[string]string{"service": "core"}}}
	if text, err = yaml.Marshal(c); err != nil {
		t.Fatal(err)
	}
	dir, at := t.TempDir(), fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), need(t, "prometheus"), "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+at, "--enable-feature=exemplar-storage")
	cmd.Stderr = &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // even if the test runs no cleanup
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // its data goes
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus says:\n%s", log.String())
		}
	})
	return &prometheus{t: t, url: "http://" + at}
}

// get asks the API; while the server does not answer, into stays as it is.
func (p *prometheus) get(path string, form url.Values, into any) {
	p.t.Helper()
	q, err := http.NewRequestWithContext(natstest.Context(p.t), http.MethodGet, p.url+"/api/v1/"+path+"?"+form.Encode(), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return // it starts
	}
	defer func() { _ = res.Body.Close() }() // it was read
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return // it is not ready
	}
	if answer.Status != "success" {
		p.t.Fatalf("%s %s: %s", path, form, answer.Error)
	}
	if err := json.Unmarshal(answer.Data, into); err != nil {
		p.t.Fatal(err)
	}
}

// series returns how many series an expression has.
func (p *prometheus) series(expr string) int {
	p.t.Helper()
	var data struct{ Result []json.RawMessage }
	p.get("query", url.Values{"query": {expr}}, &data)
	return len(data.Result)
}

// Debian's Prometheus collects from a running system, accepts every expression of the dashboard, and finds something for
// each. Its exemplars are traces that a collector has received.
func TestPrometheusShowsTheDashboard(t *testing.T) {
	need(t, "prometheus")
	sink := otlptest.New(t)
	for _, v := range append(sink.Env("grpc"), "OTEL_METRICS_EXPORTER=prometheus") {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	m := serve(t)
	m.say("one", "write")
	m.say("two", "free")
	p := collecting(t, m.at)
	natstest.Eventually(t, "the turns are collected", func() bool {
		return p.series(`sum(skandha_turn_duration_seconds_count{gen_ai_agent_name="main",service="core"}) == 2`) == 1
	})
	for _, panel := range dashboard(t) {
		for _, target := range panel.Targets {
			natstest.Eventually(t, panel.Title+" has data: "+target.Expr, func() bool { return p.series(query(target.Expr)) > 0 })
		}
	}
	natstest.Eventually(t, "the examples have traces", func() bool {
		var found []struct {
			Exemplars []struct{ Labels map[string]string }
		}
		p.get("query_exemplars", url.Values{
			"query": {"skandha_turn_duration_seconds_bucket"},
			"start": {time.Now().Add(-time.Minute).Format(time.RFC3339)}, "end": {time.Now().Add(time.Minute).Format(time.RFC3339)},
		}, &found)
		for _, s := range found {
			for _, e := range s.Exemplars {
				if len(sink.Trace(e.Labels["trace_id"])) > 0 {
					return true
				}
			}
		}
		return false
	})
}

// Prometheus's own tool accepts the file of the Compose profile, which it reads strictly.
func TestPrometheusAcceptsItsConfiguration(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), need(t, "promtool"), "check", "config", filepath.Join(deployed, "prometheus.yml")).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
