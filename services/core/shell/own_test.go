package shell_test

import (
	"encoding/json"
	"strings"
	"testing"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
)

// capabilities calls capability:match and returns the names of the tools.
func capabilities(t *testing.T, p *plugged, args string) (names, why []string, code tool.Code) {
	t.Helper()
	r, err := internally(t, p.caller,
		`{"agent":"main","session":"s1","caller":"caller","tool":"capability:match","args":`+args+`}`)
	if err != nil {
		t.Fatal(err)
	}
	if r.Error != nil {
		return nil, nil, r.Error.Code
	}
	var out struct {
		Tools []struct {
			Tool, Method, Why string
			Score, Fit        float64
		} `json:"tools"`
	}
	if err := json.Unmarshal(r.Data, &out); err != nil || out.Tools == nil {
		t.Fatalf("%v: %s", err, r.Data)
	}
	for _, f := range out.Tools {
		if f.Score <= 0 || f.Fit <= 0 || f.Method != "lexical" {
			t.Errorf("got %+v", f)
		}
		names, why = append(names, f.Tool), append(why, f.Why)
	}
	return names, why, ""
}

func TestCapabilitiesAreMatched(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	p := s.connectPlugin(plugin.Manifest{Name: "caller"}, nil)
	for args, want := range map[string]string{
		`{"query":"a risky test"}`:         "test:risky test:",
		`{"query":"ask before","limit":1}`: "test:risky",
		`{"query":"zebra"}`:                "",
	} {
		names, why, code := capabilities(t, p, args)
		if got := strings.Join(names, " "); code != "" || !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: got %q, %q, %s", args, got, why, code)
		}
		if strings.Contains(strings.Join(names, " "), "inner") {
			t.Errorf("%s: an internal tool is found", args)
		}
	}
	for _, args := range []string{`{}`, `{"query":""}`, `{"query":"ask","limit":0}`, `{"query":"ask","more":1}`} {
		if _, _, code := capabilities(t, p, args); code != tool.CodeInvalidArgs {
			t.Errorf("%s: got %q", args, code)
		}
	}
}
