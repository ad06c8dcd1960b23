package plugin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/tool"
)

// full is a manifest that uses every field.
const full = `{
	"name": "weather", "version": "1.2.3-beta.1+linux", "instance": "w-1", "description": "☔", "priority": -5,
	"dependencies": ["geo"], "run_after": ["geo", "log"], "run_before": ["audit"],
	"hooks": [{"point": "before_act", "mode": "chain", "deadline_ms": 500, "on_error": "deny"}, {"point": "after_act"}],
	"tools": [{"name": "weather:now", "description": "the weather", "args": {"type": "object"}, "idempotent": true,
		"permissions": ["network.request"], "risk": "low", "scenario_tags": ["information_retrieval"], "timeout_ms": 1000, "pool": "io"}],
	"providers": [{"name": "local", "model": "", "note": "n"}],
	"storage": {"verbs": ["put", "get"], "description": "d"},
	"listeners": [{"name": "mail", "description": "d"}], "sensors": [{"name": "rain"}], "guides": ["forecaster"]
}`

func decodeProblems(t testing.TB, text string) (plugin.Manifest, plugin.Problems) {
	t.Helper()
	m, err := plugin.DecodeManifest([]byte(text))
	var p plugin.Problems
	if err != nil && !errors.As(err, &p) {
		t.Fatalf("the error is no Problems: %v", err)
	}
	return m, p
}

func TestAFullManifestIsAccepted(t *testing.T) {
	m, p := decodeProblems(t, full)
	if p != nil || m.Name != "weather" || m.Priority != -5 || m.Tools[0].Pool != "io" || len(m.Storage.Verbs) != 2 {
		t.Fatalf("%+v\n%v", m, p)
	}
}

// with changes one place of the full manifest.
func with(t testing.TB, path, value string) string {
	t.Helper()
	var doc any
	if err := json.Unmarshal([]byte(full), &doc); err != nil {
		t.Fatal(err)
	}
	at := doc
	steps := strings.Split(path, "/")
	for i, step := range steps {
		last := i == len(steps)-1
		switch v := at.(type) {
		case map[string]any:
			switch {
			case !last:
				at = v[step]
			case value == "":
				delete(v, step)
			default:
				v[step] = json.RawMessage(value)
			}
		case []any:
			n := int(step[0] - '0')
			if at = v[n]; last {
				v[n] = json.RawMessage(value)
			}
		default:
			t.Fatalf("%s leads nowhere", path)
		}
	}
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEachFieldThatIsWrongIsNamedByItsPath(t *testing.T) {
	long := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	for _, c := range []struct{ at, value, path, says string }{
		{"name", ``, "name", "is missing"},
		{"name", `""`, "name", "is missing"},
		{"name", `7`, "name", "is a number, want a string"},
		{"name", `null`, "name", "is null, want a string"},
		{"name", `"a.b"`, "name", "is not a valid id"},
		{"name", `"geo"`, "dependencies[0]", "is the plugin itself"},
		{"version", ``, "version", "is missing"},
		{"version", `"v1.0.0"`, "version", "not a SemVer"},
		{"version", `"1.0"`, "version", "not a SemVer"},
		{"version", `"01.0.0"`, "version", "not a SemVer"},
		{"version", `"1.0.0-` + strings.Repeat("a", 130) + `"`, "version", "not a SemVer"},
		{"version", `["1.0.0"]`, "version", "is a list, want a string"},
		{"instance", ``, "instance", "is missing"},
		{"instance", `"a b"`, "instance", "is not a valid id"},
		{"description", long(4097), "description", "at most 4096"},
		{"priority", `1.5`, "priority", "want a whole number"},
		{"priority", `3000000000`, "priority", "from -2147483648 to 2147483647"},
		{"priority", `"high"`, "priority", "is a string, want a whole number"},
		{"dependencies", `"geo"`, "dependencies", "is a string, want a list"},
		{"dependencies/0", `"a>"`, "dependencies[0]", "is not a valid id"},
		{"dependencies", `["geo", "geo"]`, "dependencies[1]", "duplicate"},
		{"run_after/1", `"weather"`, "run_after[1]", "the plugin itself"},
		{"run_before/0", `{}`, "run_before[0]", "is an object, want a string"},
		{"hooks", `{}`, "hooks", "is an object, want a list"},
		{"hooks/0/point", ``, "hooks[0].point", "is missing"},
		{"hooks/0/point", `"before_lunch"`, "hooks[0].point", "unknown hook point"},
		{"hooks/1/point", `"before_act"`, "hooks[1].point", "duplicate"},
		{"hooks/0/mode", `"serial"`, "hooks[0].mode", "unknown mode"},
		{"hooks/0/deadline_ms", `0`, "hooks[0].deadline_ms", "at least 1"},
		{"hooks/0/deadline_ms", `-1`, "hooks[0].deadline_ms", "want 1 to 60000"},
		{"hooks/0/deadline_ms", `60001`, "hooks[0].deadline_ms", "want 1 to 60000"},
		{"hooks/0/on_error", `"ignore"`, "hooks[0].on_error", "unknown rule"},
		{"hooks/0", `{"point": "after_reflect", "on_error": "deny"}`, "hooks[0].on_error", "nothing can be denied"},
		{"hooks/0/foo", `1`, "hooks[0].foo", "is not a field"},
		{"hooks/1/Mode", `"chain"`, "hooks[1].Mode", "is not a field"},
		{"tools/0/name", ``, "tools[0].name", "is missing"},
		{"tools/0/name", long(65), "tools[0].name", "at most 64"},
		{"tools/0/name", `"` + strings.Repeat("a", 62) + `:b"`, "tools[0].name", "when encoded"},
		{"tools/0/description", `""`, "tools[0].description", "the model needs it"},
		{"tools/0/args", ``, "tools[0].args", "is missing"},
		{"tools/0/args", `[]`, "tools[0].args", "not a JSON Schema of an object"},
		{"tools/0/args", `null`, "tools[0].args", "not a JSON Schema of an object"},
		{"tools/0/args", `{"type": "array"}`, "tools[0].args.type", `want "object"`},
		{"tools/0/idempotent", `"yes"`, "tools[0].idempotent", "want a boolean"},
		{"tools/0/plugin", `"weather"`, "tools[0].plugin", "must be absent"},
		{"tools/0/risk", `"none"`, "tools[0].risk", "low, medium or high"},
		{"tools/0/timeout_ms", `7200001`, "tools[0].timeout_ms", "want 1 to 7200000"},
		{"tools/0/timeout_ms", `1e3`, "tools[0].timeout_ms", "whole number"},
		{"tools/0/scenario_tags/0", `"fun"`, "tools[0].scenario_tags[0]", "unknown"},
		{"tools/0/scenario_tags", `["creative_work", "creative_work"]`, "tools[0].scenario_tags[1]", "duplicate"},
		{"tools/0/permissions/0", `""`, "tools[0].permissions[0]", "is empty"},
		{"tools/0/permissions", `["a", "a"]`, "tools[0].permissions[1]", "duplicate"},
		{"tools/0/scope", `[""]`, "tools[0].scope[0]", "is empty"},
		{"tools/0/scope", `["a", "a"]`, "tools[0].scope[1]", "duplicate"},
		{"tools/0/scope", `["a", "b", "c", "d", "e", "f", "g", "h", "i"]`, "tools[0].scope", "at most 8"},
		{"tools/0/pool", long(65), "tools[0].pool", "at most 64"},
		{"tools/0/schema", `{}`, "tools[0].schema", "is not a field"},
		{"providers/0/name", `""`, "providers[0].name", "is missing"},
		{"providers/0/model", ``, "providers[0].model", "is missing"},
		{"storage/verbs", `[]`, "storage.verbs", "is empty"},
		{"storage/verbs", ``, "storage.verbs", "is missing"},
		{"storage/verbs/1", `"list"`, "storage.verbs[1]", "unknown"},
		{"storage/verbs/1", `"put"`, "storage.verbs[1]", "duplicate"},
		{"storage/size", `1`, "storage.size", "is not a field"},
		{"listeners/0/name", `"a.b"`, "listeners[0].name", "is not a valid id"},
		{"listeners/0/name", `"core"`, "listeners[0].name", "reserved for core"},
		{"listeners/0/name", `"schedule"`, "listeners[0].name", "reserved for core"},
		{"sensors/0/name", `"mail"`, "sensors[0].name", "duplicate"},
		{"guides/0", `""`, "guides[0]", "is missing"},
		{"guides/0", long(65), "guides[0]", "at most 64"},
		{"guides", `["a", "a"]`, "guides[1]", "duplicate"},
		{"author", `{"name": ["x", {}]}`, "author", "is not a field"},
	} {
		t.Run(c.path+" "+c.says, func(t *testing.T) {
			_, p := decodeProblems(t, with(t, c.at, c.value))
			i := slices.IndexFunc(p, func(one plugin.Problem) bool { return one.Path == c.path })
			if i < 0 || !strings.Contains(p[i].Message, c.says) {
				t.Fatalf("got %v, want %s: … %s …", p, c.path, c.says)
			}
			for _, one := range p {
				if one.Path != c.path && !strings.HasPrefix(c.path, "dependencies") {
					t.Errorf("and %v, of a field that is right", one)
				}
			}
		})
	}
}

func TestAllThatIsWrongIsTold(t *testing.T) {
	_, p := decodeProblems(t,
		`{"name": "a b", "version": 1, "hook": [], "tools": [{"name": "x", "x": 1}, 7], "guides": ["g", "g"]}`)
	var paths []string
	for _, one := range p {
		paths = append(paths, one.Path)
	}
	want := []string{
		"version", "hook", "tools[0].x", "tools[0].description", "tools[0].args", "tools[1]", "instance", "name", "guides[1]",
	}
	if !slices.Equal(paths, want) {
		t.Fatalf("got %q, want %q\n%v", paths, want, p)
	}
	if text := p.Error(); strings.Count(text, "; ") < len(want)-1 || !strings.Contains(text, "tools[0].x: ") {
		t.Errorf("the error is %q", text)
	}
}

func TestWhatIsNoManifestAtAll(t *testing.T) {
	for text, says := range map[string]string{
		``:                         "is not JSON",
		`{"name": `:                "is not JSON",
		full + `{}`:                "is not JSON",
		`[]`:                       "is a list, want an object",
		`null`:                     "is null, want an object",
		"{\"name\": \"\xff\"}":     "UTF-8",
		strings.Repeat(" ", 1<<20): "at most 262144",
		`{"name": "a", "name": "b", "version": "1.0.0", "instance": "i"}`: "name: is a duplicate",
	} {
		if _, p := decodeProblems(t, text); len(p) == 0 || !strings.Contains(p.Error(), says) {
			t.Errorf("%.60q: got %v, want an error with %q", text, p, says)
		}
	}
}

func TestReplicasHaveOneHash(t *testing.T) {
	a, _ := decodeProblems(t, full)
	b := a
	b.Instance = "w-2"
	if a.Hash() != b.Hash() || len(a.Hash()) != 64 {
		t.Errorf("%s and %s", a.Hash(), b.Hash())
	}
	if b.Version = "1.2.4"; a.Hash() == b.Hash() {
		t.Error("another version has the same hash")
	}
}

func TestAPathCoversWhatIsBelowIt(t *testing.T) {
	p := plugin.Problems{{Path: "tools[1]", Message: "x"}, {Message: "whole"}}
	for path, want := range map[string]bool{
		"tools[1]": true, "tools[1].name": true, "tools[10]": false, "tools": false, "name": false,
	} {
		if p.At(path) != want {
			t.Errorf("At(%q) is %t", path, !want)
		}
	}
}

func FuzzDecodeManifest(f *testing.F) {
	f.Add([]byte(full))
	for _, s := range []string{
		`{}`, `[]`, `{"hooks":[{"point":1}]}`, `{"tools":[{"args":{"a":[1,{"b":null}]}}]}`, `{"a":{"b":[`,
		`{"priority":1e400}`, `"\ud800"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := plugin.DecodeManifest(data)
		if err != nil {
			var p plugin.Problems
			if !errors.As(err, &p) || len(p) == 0 || p.Error() == "" {
				t.Fatalf("%q: the error says nothing: %v", data, err)
			}
			return
		}
		// What is accepted is a manifest, and stays one when it is written.
		if err := m.Check(); err != nil {
			t.Fatalf("%q is accepted, and %v", data, err)
		}
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		again, err := plugin.DecodeManifest(b)
		if err != nil || again.Hash() != m.Hash() {
			t.Fatalf("%q is written as %s: %v", data, b, err)
		}
	})
}

func ExampleDecodeManifest() {
	_, err := plugin.DecodeManifest([]byte(
		`{"name": "my plugin", "version": "1", "instance": "a", "hooks": [{"point": "before_act", "on_eror": "deny"}]}`))
	fmt.Println(strings.ReplaceAll(err.Error(), "; ", "\n"))
	// Output:
	// hooks[0].on_eror: is not a field
	// want one of point, mode, deadline_ms, on_error
	// name: "my plugin" is not a valid id: want 1 to 64 characters of A-Z a-z 0-9 _ -
	// version: "1" is not a SemVer 2.0.0 version such as 1.0.0
}

// Only a plugin's own listeners deliver by its tools: nothing else may take their answers.
func TestToolsThatDeliverBelongToAListener(t *testing.T) {
	m := plugin.Manifest{
		Name: "chat", Version: "1.0.0", Instance: "c1", Listeners: []plugin.Listener{{Name: "chat"}},
		Tools: []tool.Spec{
			{Name: "deliver:chat", Description: "delivers", Args: json.RawMessage(`{"type":"object"}`), Internal: true},
			{Name: "deliver:email", Description: "delivers", Args: json.RawMessage(`{"type":"object"}`), Internal: true},
			{Name: "Deliver:chat", Description: "delivers", Args: json.RawMessage(`{"type":"object"}`)},
		},
	}
	err := m.Check()
	for at, want := range map[string]bool{"tools[0].": false, "tools[1].name": true, "tools[2].name": true, "tools[2].internal": true} {
		if got := err != nil && strings.Contains(err.Error(), at); got != want {
			t.Errorf("%s: %t, want %t, in %v", at, got, want, err)
		}
	}
}
