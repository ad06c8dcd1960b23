package planner_test

import (
	"encoding/json"
	"testing"

	"skandha.dev/services/core/planner"
	"skandha.dev/services/internal/toolschema"
)

func TestParseFind(t *testing.T) {
	for args, want := range map[string]string{
		`{"query":" send mail "}`: "send mail", `{"query":"邮件"}`: "邮件",
		`{"query":" "}`: "", `{}`: "", `null`: "", `[]`: "", `{"query":7}`: "", `{"query":"a","limit":3}`: "", ``: "",
	} {
		if got, err := planner.ParseFind(json.RawMessage(args)); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", args, got, err, want)
		}
	}
}

func TestCoresOwnTools(t *testing.T) {
	for _, name := range []string{planner.ExecuteName, planner.FindName} {
		spec, own := planner.Own(name)
		if _, err := toolschema.Compile(spec); !own || spec.Name != name || err != nil {
			t.Errorf("%s: %+v, %v", name, spec, err)
		}
	}
	if _, own := planner.Own("file_system:read_file"); own {
		t.Error("a tool of a runner is core's own")
	}
}
