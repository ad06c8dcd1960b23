package conformance_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/plugin"
	"skandha.dev/services/skandha/conformance"
)

// emptyIndex keeps nothing and refuses nothing.
type emptyIndex struct{}

func (emptyIndex) Write(context.Context, string, []plugin.Record) ([]plugin.Record, error) {
	return nil, nil
}

func (emptyIndex) Read(context.Context, string, []plugin.Record) ([]plugin.Record, error) {
	return nil, nil
}

func (emptyIndex) List(context.Context, plugin.IndexRequest) ([]plugin.Record, error) {
	return nil, nil
}

func (emptyIndex) Pending(context.Context, plugin.IndexRequest) ([]plugin.Record, error) {
	return nil, nil
}

func (emptyIndex) Rank(context.Context, plugin.IndexRequest) ([]plugin.Record, error) {
	return nil, nil
}

func (emptyIndex) Wipe(context.Context, string) error { return nil }

func TestIndexes(t *testing.T) {
	example := filepath.Join(t.TempDir(), "index")
	build := exec.Command("go", "build", "-o", example, "skandha.dev/pkg/plugin/examples/index")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the example: %v\n%s", err, out)
	}
	good := try(t, "index", func(o *conformance.Options) { o.Command = []string{example} })
	bad := try(t, "empty index", func(o *conformance.Options) { o.Skip = dead })
	failed, dump := failures(report(t, good))
	if len(failed) > 0 || !strings.Contains(dump, string(conformance.Passed)+" storage/index") {
		t.Errorf("the example fails %q\n%s", failed, dump)
	}
	if failed, dump := failures(report(t, bad)); !slices.Equal(failed, []string{"storage/index"}) ||
		!strings.Contains(dump, "a record that exists is not new") {
		t.Errorf("an empty index fails %q\n%s", failed, dump)
	}
}
