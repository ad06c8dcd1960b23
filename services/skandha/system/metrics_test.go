package system_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/internal/httpd"
	"skandha.dev/services/internal/signals"
	"skandha.dev/services/sandbox/selection"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
)

// Every gauge is a value of a service, so that none that is renamed becomes a counter.
func TestGaugesAreValues(t *testing.T) {
	s, err := system.Start(natstest.Context(t), system.Config{
		Data: t.TempDir(), Provider: "offline", Sync: "relaxed", Log: natstest.Logger(t), UI: &system.UI{Listen: "127.0.0.1:0"},
		Sandbox:    &system.Sandbox{Flags: selection.Flags{Driver: "none"}},
		ConfigFile: write(t, "listeners: {cron: {c: {session: s, entries: {e: {schedule: \"0 0 1 1 *\", text: hi}}}}}\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	for _, gauge := range signals.Gauges() {
		name, _ := strings.CutSuffix(gauge, "*")
		natstest.Eventually(t, gauge+" is a value", func() bool {
			values := s.Metrics()
			maps.Copy(values, httpd.Process())
			return slices.ContainsFunc(slices.Collect(maps.Keys(values)), func(v string) bool { return strings.HasPrefix(v, name) })
		})
	}
}
