package toolschema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/toolschema"
)

const readFile = `{
	"type": "object",
	"properties": {
		"path": {"type": "string", "minLength": 1},
		"limit": {"type": "integer", "minimum": 1, "default": 10},
		"options": {
			"type": "object",
			"properties": {"deep": {"type": "boolean", "default": false}},
			"additionalProperties": false
		},
		"when": {"type": "string", "format": "date-time"}
	},
	"required": ["path"],
	"additionalProperties": false
}`

func compile(t *testing.T, args string) *toolschema.Validator {
	t.Helper()
	v, err := toolschema.Compile(tool.Spec{Name: "t", Args: json.RawMessage(args)})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestValidateGivesCanonicalArgumentsWithDefaults(t *testing.T) {
	v := compile(t, readFile)
	for _, c := range []struct{ name, args, want string }{
		{"defaults", `{"path":"a"}`, `{"limit":10,"path":"a"}`},
		{"sorted, no spaces", "{ \"path\" : \"<a>\",\n\"limit\": 3 }", `{"limit":3,"path":"<a>"}`},
		{"nested default", `{"path":"a","options":{}}`, `{"limit":10,"options":{"deep":false},"path":"a"}`},
		{"numbers as written", `{"path":"a","limit":1e2}`, `{"limit":1e2,"path":"a"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, errs := v.Validate(json.RawMessage(c.args))
			if errs != nil || string(got) != c.want {
				t.Fatalf("got %s %v, want %s", got, errs, c.want)
			}
		})
	}
}

func TestValidateReportsEveryError(t *testing.T) {
	v := compile(t, readFile)
	for _, c := range []struct {
		name, args string
		want       []string // prefixes, in order
	}{
		{"all at once", `{"limit":0,"options":{"deep":1,"a/b":2},"when":"soon","x":1}`, []string{
			"/limit: minimum: got 0, want 1",
			"/options/a~1b: is not an argument of this tool",
			"/options/deep: got number, want boolean",
			"/path: is required",
			"/when: 'soon' is not valid date-time",
			"/x: is not an argument of this tool",
		}},
		{"absent", ``, []string{"/path: is required"}},
		{"null", `null`, []string{"/path: is required"}},
		{"text that is no JSON", `"call it with a"`, []string{`(root): got the string "call it with a", want a JSON object`}},
		{"array", `[1]`, []string{"(root): got array, want object"}},
		{"broken", `{"path":`, []string{"(root): the arguments are not JSON"}},
		{"two values", `{"path":"a"} {}`, []string{"(root): the arguments are more than one JSON value"}},
		{
			"a number of a billion digits", `{"path":"a","limit":1e999999999}`,
			[]string{"(root): the number at /limit is out of range"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, errs := v.Validate(json.RawMessage(c.args))
			if got != nil || !slices.EqualFunc(errs, c.want, strings.HasPrefix) {
				t.Fatalf("got %s and errors\n%s\nwant\n%s", got, strings.Join(errs, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestManyErrorsAreCounted(t *testing.T) {
	v := compile(t, `{"type":"object","properties":{"l":{"type":"array","items":{"type":"string"}}}}`)
	_, errs := v.Validate(json.RawMessage(`{"l":[` + strings.TrimSuffix(strings.Repeat("1,", 1000), ",") + `]}`))
	if len(errs) != 201 || errs[200] != "and 800 more errors" {
		t.Fatalf("got %d errors, the last is %q", len(errs), errs[len(errs)-1])
	}
}

func TestABareMapOfPropertiesIsWrapped(t *testing.T) {
	v := compile(t,
		`{"code":{"type":"string","required":true},"type":{"type":"string"},"dependencies":{"type":"array","items":{"type":"string"}}}`)
	var schema map[string]any
	if err := json.Unmarshal(v.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	if schema["type"] != "object" || fmt.Sprint(schema["required"]) != "[code]" {
		t.Fatalf("got %s", v.Schema())
	}
	if _, errs := v.Validate(json.RawMessage(`{"code":"1","type":"x","dependencies":["a"]}`)); errs != nil {
		t.Fatal(errs)
	}
	_, errs := v.Validate(json.RawMessage(`{"dependencies":[1],"y":1}`))
	want := []string{
		"/code: is required", "/dependencies/0: got number, want string", "/y: is not an argument of this tool",
	}
	if !slices.Equal(errs, want) {
		t.Fatalf("got %q", errs)
	}
}

func TestOneArgumentNamedLikeAKeyword(t *testing.T) {
	for _, name := range []string{"type", "title", "required", "properties", "items", "default"} {
		v := compile(t, fmt.Sprintf(`{%q:{"type":"string"}}`, name))
		if _, errs := v.Validate(json.RawMessage(fmt.Sprintf(`{%q:1}`, name))); len(errs) != 1 ||
			!strings.HasPrefix(errs[0], "/"+name+": got number") {
			t.Errorf("%s: got %q", name, errs)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	bomb := `{"$defs":{"a0":{"type":"string"}`
	for i := range 40 {
		bomb += fmt.Sprintf(`,"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i+1, i, i)
	}
	bomb += `},"type":"object","properties":{"x":{"$ref":"#/$defs/a40"}}}`
	for _, c := range []struct{ name, args, want string }{
		{
			"remote ref", `{"type":"object","properties":{"a":{"$ref":"https://example.com/s.json"}}}`,
			"lies outside the schema",
		},
		{"file ref", `{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}`, "lies outside the schema"},
		{"relative ref", `{"type":"object","properties":{"a":{"$ref":"other.json"}}}`, "outside the schema"},
		{"remote meta-schema", `{"$schema":"https://example.com/meta","type":"object"}`, "lies outside the schema"},
		{"no object", `{"type":"array"}`, `want "object"`},
		{"list", `[]`, "must be a JSON object"},
		{"no JSON", `{`, "not JSON"},
		{"bad keyword", `{"type":"object","properties":{"a":{"type":"strnig"}}}`, "/properties/a/type"},
		{"bad pattern", `{"type":"object","properties":{"a":{"pattern":"("}}}`, "("},
		{"default that does not fit", `{"type":"object","properties":{"a":{"type":"string","default":1}}}`, `default of "a"`},
		{"reference bomb", bomb, "unrolls to more than"},
		{"number bomb", `{"type":"object","properties":{"a":{"maximum":1e999999999}}}`, "out of range"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := toolschema.Compile(tool.Spec{Name: "t:x", Args: json.RawMessage(c.args)})
			if !errors.Is(err, toolschema.ErrSchema) || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "t:x") {
				t.Fatalf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestAToolWithoutArguments(t *testing.T) {
	v := compile(t, ``)
	if got, errs := v.Validate(nil); errs != nil || string(got) != "{}" {
		t.Fatalf("got %s %v", got, errs)
	}
	if _, errs := v.Validate(json.RawMessage(`{"a":1}`)); len(errs) != 1 {
		t.Fatalf("got %v", errs)
	}
}

func TestDefaultsAreNotSharedBetweenCalls(t *testing.T) {
	v := compile(t, `{"type":"object","allOf":[
		{"properties":{"o":{"default":{}}}},
		{"properties":{"o":{"properties":{"x":{"default":[1]}}}}}]}`)
	done := make(chan string)
	for range 8 {
		go func() {
			got, _ := v.Validate(nil)
			done <- string(got)
		}()
	}
	for range 8 {
		if got := <-done; got != `{"o":{"x":[1]}}` {
			t.Errorf("got %s", got)
		}
	}
}

func TestARecursiveSchemaValidatesAndARefLoopEnds(t *testing.T) {
	v := compile(t,
		`{"type":"object","properties":{"child":{"$ref":"#"},"n":{"type":"integer","default":1}},"additionalProperties":false}`)
	got, errs := v.Validate(json.RawMessage(`{"child":{"child":{}}}`))
	if errs != nil || string(got) != `{"child":{"child":{"n":1},"n":1},"n":1}` {
		t.Fatalf("got %s %v", got, errs)
	}
	loop := compile(t, `{"type":"object","properties":{"a":{"$ref":"#/properties/b"},"b":{"$ref":"#/properties/a"}}}`)
	if _, errs := loop.Validate(json.RawMessage(`{"a":1}`)); len(errs) == 0 {
		t.Fatal("a reference loop says nothing about a value, and must be an error")
	}
}

func BenchmarkValidate(b *testing.B) {
	v, err := toolschema.Compile(tool.Spec{Name: "t", Args: json.RawMessage(readFile)})
	if err != nil {
		b.Fatal(err)
	}
	args := json.RawMessage(`{"path":"notes/today.md","limit":5}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, errs := v.Validate(args); errs != nil {
			b.Fatal(errs)
		}
	}
}
