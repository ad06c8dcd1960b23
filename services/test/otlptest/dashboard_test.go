package otlptest_test

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"skandha.dev/services/test/natstest"
)

// deployed is where the configuration of the Compose profile is.
const deployed = "../../../deploy/observability"

// panel is one of Grafana's dashboard.
type panel struct {
	Type, Title, Description string
	Datasource               struct{ UID string }
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct{ Expr string }
}

// dashboard reads it.
func dashboard(t *testing.T) []panel {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(deployed, "grafana", "skandha.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct{ Panels []panel }
	if err := json.Unmarshal(body, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) == 0 {
		t.Fatal("the dashboard is empty")
	}
	return d.Panels
}

// query is an expression with values in place of Grafana's variables.
func query(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5s", "$agent", ".*").Replace(expr)
}

var (
	selectors  = regexp.MustCompile(`\{[^}]*\}|\b(by|on) \([^)]*\)`)
	metric     = regexp.MustCompile(`\b(skandha|gen_ai)_\w+`)
	documented = regexp.MustCompile("`((?:skandha|gen_ai)_[a-z_]+)`")
)

// Every metric of the dashboard is one that a system has which has run a turn; so a metric that is renamed fails here.
func TestTheDashboardNamesMetrics(t *testing.T) {
	m := serve(t)
	m.say("one", "write")
	m.say("two", "free")
	var f families
	natstest.Eventually(t, "turns and the backlog are measured", func() bool {
		f = m.scrape()
		return f.sum("skandha_turn_duration_seconds") == 2 && f["skandha_backlog"] != nil
	})
	var seen []string
	for _, p := range dashboard(t) {
		for _, target := range p.Targets {
			for _, name := range metric.FindAllString(selectors.ReplaceAllString(target.Expr, ""), -1) {
				seen = append(seen, name)
				family := name
				for _, suffix := range []string{"_bucket", "_count", "_sum"} {
					family = strings.TrimSuffix(family, suffix)
				}
				if f[family] == nil {
					t.Errorf("%s: no process has the metric %s", p.Title, name)
				}
			}
		}
	}
	page, err := os.ReadFile("../../../deploy/docs/observing.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range documented.FindAllStringSubmatch(string(page), -1) {
		if f[name[1]] == nil {
			t.Errorf("observing.md names %s, which no process has", name[1])
		}
	}
	// What people have to be able to see.
	for _, name := range []string{
		"skandha_turn_duration_seconds_bucket", "skandha_phase_duration_seconds_bucket", "skandha_hook_duration_seconds_bucket",
		"gen_ai_client_operation_duration_seconds_bucket", "gen_ai_client_token_usage_sum", "skandha_cost_usd_total",
		"skandha_backlog", "skandha_redeliveries_total", "skandha_fence_lost_total", "skandha_dead_letters_total",
		"skandha_stream_size_bytes", "skandha_stream_messages", "skandha_sandbox_warm", "skandha_sandbox_used",
		"skandha_sandbox_started_total", "skandha_sandbox_destroyed_total",
	} {
		if !slices.Contains(seen, name) {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// Panels do not cover each other, and each shows something of the data source that is provisioned.
func TestTheDashboardIsInOrder(t *testing.T) {
	taken := map[[2]int]string{}
	for _, p := range dashboard(t) {
		if !slices.Contains([]string{"row", "stat", "timeseries"}, p.Type) {
			t.Errorf("%s is a %s, which Grafana may not have", p.Title, p.Type)
		}
		if p.Title == "" || p.Type != "row" && (len(p.Targets) == 0 || p.Datasource.UID != "prometheus") {
			t.Errorf("%+v has no title, data source or query", p)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q is where %q is, or beyond the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// The data sources are those that the dashboard names, at the services of the profile, and an exemplar leads to traces.
func TestTheDataSourcesAreThere(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deployed, "grafana", "datasources.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	type source struct {
		UID, Type, URL string
		JSONData       struct {
			Destinations []struct {
				Name string `yaml:"name"`
				UID  string `yaml:"datasourceUid"`
			} `yaml:"exemplarTraceIdDestinations"`
		} `yaml:"jsonData"`
	}
	var f struct{ Datasources []source }
	if err := yaml.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	var compose struct{ Services map[string]any }
	if text, err = os.ReadFile(filepath.Join(deployed, "../../docker-compose.yml")); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	all := map[string]source{}
	for _, s := range f.Datasources {
		at, err := url.Parse(s.URL)
		if err != nil || compose.Services[at.Hostname()] == nil {
			t.Errorf("%s is at %q, and no such service is in docker-compose.yml (%v)", s.UID, s.URL, err)
		}
		all[s.UID] = s
	}
	if all["prometheus"].Type != "prometheus" || len(all["prometheus"].JSONData.Destinations) != 1 {
		t.Fatalf("the data sources are %+v", all)
	}
	if to := all["prometheus"].JSONData.Destinations[0]; to.Name != "trace_id" || all[to.UID].Type != "jaeger" {
		t.Errorf("an exemplar leads to %+v", to)
	}
}
