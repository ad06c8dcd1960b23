package tools

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/toolschema"
	"skandha.dev/services/sandbox/agent"
)

// read validates arguments as the service does, and reads them.
func read(t *testing.T, tool Tool, args string) (Job, error) {
	t.Helper()
	v, err := toolschema.Compile(tool.Spec)
	if err != nil {
		t.Fatal(err)
	}
	valid, errs := v.Validate(json.RawMessage(args))
	if errs != nil {
		t.Fatalf("%s: %q", args, errs)
	}
	return tool.Read(valid)
}

func TestARunHasATimeoutAndALifecycle(t *testing.T) {
	for args, want := range map[string]struct {
		timeout time.Duration
		fresh   bool
	}{
		`{"code":"1"}`:                       {DefaultTimeout, false},
		`{"code":"1","timeout":1.5}`:         {1500 * time.Millisecond, false},
		`{"code":"1","timeout":600}`:         {MaxTimeout, false},
		`{"code":"1","lifecycle":"call"}`:    {DefaultTimeout, true},
		`{"code":"1","lifecycle":"session"}`: {DefaultTimeout, false},
	} {
		j, err := read(t, Python(), args)
		if err != nil || j.Run.Kind != agent.Python || j.Run.Timeout != want.timeout || j.Fresh != want.fresh {
			t.Errorf("%s: got %+v, %v", args, j, err)
		}
	}
}

func TestDependenciesAndRequirementsAreTheSame(t *testing.T) {
	j, err := read(t, Python(), `{"code":"1","dependencies":["a","b>=2"],"requirements":["c"]}`)
	if err != nil || strings.Join(j.Packages, " ") != "a b>=2 c" {
		t.Errorf("got %q, %v", j.Packages, err)
	}
}

func TestTheTimeOfACallCoversItsLongestRun(t *testing.T) {
	for _, tool := range All() {
		if j, err := tool.Read(json.RawMessage(`{"code":"1","command":"ls"}`)); err == nil && j.Run != nil &&
			tool.Spec.Timeout() < MaxTimeout+Around {
			t.Errorf("%s may take %v", tool.Spec.Name, tool.Spec.Timeout())
		}
	}
}

func TestPathsBelowTheWorkspaceBecomeRelative(t *testing.T) {
	for p, want := range map[string]string{
		"a": "a", "": "", "/workspace": ".", "/workspace/": "", "/workspace/a/b": "a/b", "/workspace//a": "a",
		"/workspaces/a": "/workspaces/a", "/etc": "/etc", "../a": "../a",
	} {
		if got := inside(p); got != want {
			t.Errorf("%q becomes %q, want %q", p, got, want)
		}
	}
}

func TestMediaTypesGoByTheNameAndThenByTheContent(t *testing.T) {
	png := []byte("\x89PNG\r\n\x1a\n")
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"a.csv", []byte("x"), "text/csv"},
		{"A.PNG", nil, "image/png"},
		{"figure", png, "image/png"},
		{"data", []byte{0, 1, 2}, "application/octet-stream"},
	} {
		if got := mediaType(c.name, c.data); got != c.want {
			t.Errorf("%s is %s, want %s", c.name, got, c.want)
		}
	}
}

// A grant for a call covers other calls of the same scope: all paths are in it.
func TestTheScopeIsThePathsOfTheSchema(t *testing.T) {
	for _, tool := range Files() {
		var schema struct{ Properties map[string]any }
		if err := json.Unmarshal(tool.Spec.Args, &schema); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, name := range []string{"path", "from", "to"} {
			if schema.Properties[name] != nil {
				want = append(want, name)
			}
		}
		if !slices.Equal(tool.Spec.Scope, want) {
			t.Errorf("%s: the scope is %q, want %q", tool.Spec.Name, tool.Spec.Scope, want)
		}
	}
}
