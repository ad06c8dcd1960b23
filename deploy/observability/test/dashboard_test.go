package test

import (
	"errors"
	"os"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// The dashboard has nothing that Grafana's own types of dashboards, panels and queries do not know. That its queries
// find something is tested in services/test/otlptest.
func TestGrafanaKnowsTheDashboard(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	body, err := os.ReadFile("../grafana/skandha.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard.Dashboard  //nolint:staticcheck // every Grafana reads this version from a file; the next is of its API
	var faults cog.BuildErrors // the error is one of these, even if there are none
	if err := d.UnmarshalJSONStrict(body); err != nil && (!errors.As(err, &faults) || len(faults) > 0) {
		t.Error(err)
	}
	if err := d.Validate(); err != nil {
		t.Error(err)
	}
}
