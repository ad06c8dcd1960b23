package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
)

// example is one file below schemas/examples.
type example struct {
	schema string // its directory
	name   string // its file, without ".json": for an invalid one the reason
	body   []byte
}

func (e example) String() string { return e.schema + "/" + e.name }

var kebab = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func examples(t *testing.T, of string) []example {
	t.Helper()
	dir := filepath.Join(root, "examples", of)
	var out []example
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name, isJSON := strings.CutSuffix(filepath.Base(path), ".json")
		if !isJSON || !kebab.MatchString(name) {
			t.Errorf("%s: want a name like missing-text.json", path)
		}
		body, err := os.ReadFile(path)
		out = append(out, example{filepath.ToSlash(filepath.Dir(rel)), name, body})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func decode(t testing.TB, b []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return v
}

// single are the schemas that allow one value alone.
var single = map[string]bool{
	"events/ui.ready.v1": true, "ui/methods/detach": true,
	"ui/methods/listTools": true, "ui/methods/listPlugins": true, "ui/methods/getHooks": true,
	"ui/methods/getStatus": true, "ui/methods/listProviders": true, "ui/methods/listListeners": true,
	"ui/methods/listIdentities": true,
}

func TestEverySchemaHasExamples(t *testing.T) {
	count := map[string][2]int{}
	for i, of := range []string{"valid", "invalid"} {
		for _, e := range examples(t, of) {
			n := count[e.schema]
			n[i]++
			count[e.schema] = n
		}
	}
	c := files(t)
	for _, name := range append(c.names(), "events/stream.delta.v1.message", "events/stream.output.v1.message",
		"events/sense.input.v1.message",
		"events/sense.confirmation.v1.message", "events/sense.cancel.v1.message", "events/sense.command.v1.message",
		"events/sense.timer.v1.message") {
		n := count[name]
		delete(count, name)
		if name != "ids" && (n[0] < 2 && !single[name] || n[1] < 3) {
			t.Errorf("%s has %d valid and %d invalid examples, want 2 and 3", name, n[0], n[1])
		}
	}
	for name := range count {
		t.Errorf("examples/*/%s are examples of no schema", name)
	}
}

func TestValidExamplesSurviveGo(t *testing.T) {
	c := files(t)
	for _, e := range examples(t, "valid") {
		t.Run(e.String(), func(t *testing.T) {
			schema := c.schema(t, e.schema)
			if err := schema.Validate(decode(t, e.body)); err != nil {
				t.Fatal(err)
			}
			again, open := roundTrip(t, e)
			if again == nil {
				return
			}
			if err := schema.Validate(decode(t, again)); err != nil {
				t.Errorf("as Go writes it: %s\n%v", again, err)
			}
			if lost := difference(decode(t, e.body), decode(t, again), open); lost != "" {
				t.Errorf("Go loses or changes %s:\n%s\nbecomes\n%s", lost, e.body, again)
			}
		})
	}
}

// roundTrip decodes an example as the code does and encodes it again. With open,
// properties that Go does not know are ignored and lost. Nil: no Go type.
func roundTrip(t *testing.T, e example) (again []byte, open bool) {
	t.Helper()
	if name, ok := strings.CutSuffix(e.schema, ".message"); ok {
		if !strings.HasPrefix(name, "events/sense.") {
			return reencode(t, e.body, &event.Event{}, true), false
		}
		p := payload(t, name)
		if err := event.DecodeCause(e.body, p); err != nil {
			t.Fatal(err)
		}
		return nil, true // the payload's own examples are compared
	}
	if e.schema == "events/commit" {
		commit, err := event.DecodeCommit(subject.Ref{Agent: "demo", Session: "s1"}, e.body)
		if err != nil {
			t.Fatal(err)
		}
		b, err := commit.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return b, false
	}
	if e.schema == "events/event" || e.schema == "events/envelope" {
		ev, err := event.Decode(e.body)
		if err != nil {
			t.Fatal(err)
		}
		return ev.AppendJSON(nil), e.schema == "events/envelope"
	}
	if strings.HasPrefix(e.schema, "ui/on") || e.schema == "ui/about" {
		return renote(t, e), false
	}
	typ, ok := goType(e.schema)
	if !ok || e.schema == "executor/request" && bytes.Contains(e.body, []byte(`"lines"`)) {
		return nil, false // for the latter see wire_test.go
	}
	open = strings.HasPrefix(e.schema, "events/sense.") && e.schema != "events/sense.perceived.v1" ||
		strings.HasSuffix(e.schema, "_query")
	v := reflect.New(typ)
	b := reencode(t, e.body, v.Interface(), !open)
	if in, ok := v.Interface().(*event.Input); ok {
		if err := in.Check(); err != nil {
			t.Error(err)
		}
	}
	if _, ok := v.Interface().(*plugin.Manifest); ok {
		if _, err := plugin.DecodeManifest(e.body); err != nil {
			t.Error(err)
		}
	}
	if g, ok := v.Interface().(*guide.Guide); ok {
		if err := g.Check(); err != nil {
			t.Error(err)
		}
	}
	return b, open
}

func reencode(t *testing.T, body []byte, v any, strict bool) []byte {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// payload makes the Go value for a cause's schema.
func payload(t *testing.T, name string) event.Payload {
	t.Helper()
	typ, ok := goType(name)
	if !ok {
		t.Fatalf("%s has no Go type", name)
	}
	return reflect.New(typ).Interface().(event.Payload)
}

// difference names the first place where two JSON values differ. With subset, b
// may lack properties of the outermost object of a.
func difference(a, b any, subset bool) string {
	am, ok := a.(map[string]any)
	bm, ok2 := b.(map[string]any)
	if ok && ok2 {
		for k := range bm {
			if _, has := am[k]; !has {
				return k
			}
		}
		for k, x := range am {
			y, has := bm[k]
			if !has && subset {
				continue
			}
			if d := difference(x, y, false); d != "" || !has {
				return k + "/" + d
			}
		}
		return ""
	}
	al, ok := a.([]any)
	bl, ok2 := b.([]any)
	if ok && ok2 && len(al) == len(bl) {
		for i := range al {
			if d := difference(al[i], bl[i], false); d != "" {
				return d
			}
		}
		return ""
	}
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return "a value"
}

func TestInvalidExamplesAreRefused(t *testing.T) {
	c := files(t)
	for _, e := range examples(t, "invalid") {
		t.Run(e.String(), func(t *testing.T) {
			err := c.schema(t, e.schema).Validate(decode(t, e.body))
			var v *jsonschema.ValidationError
			if !errors.As(err, &v) {
				t.Fatalf("the schema says %v", err)
			}
			if goChecks(e, v) && goAccepts(t, e) {
				t.Errorf("Go accepts it: %s", e.body)
			}
		})
	}
}

// goChecks reports whether Go claims to find what is wrong with the example.
func goChecks(e example, v *jsonschema.ValidationError) bool {
	switch e.schema {
	case "events/sense.input.v1":
		return true // Input.Check
	case "events/commit":
		return e.name != "two-headers" && !strings.HasPrefix(e.name, "with-a-") && e.name != "event-data-of-another-type" &&
			e.name != "header-without-digest" && e.name != "unknown-attribute" // left to the fold
	case "manifest.v1":
		return true // DecodeManifest
	case "guide/guide":
		// Guide.Check
		return slices.Contains([]string{
			"unknown-memory-policy", "temperature-above-two", "missing-system-prompt", "unknown-decision", "limit-below-zero",
			"tool-empty",
		}, e.name)
	case "events/envelope":
		return e.name != "unknown-type" && e.name != "turn-malformed" // Event.Check
	}
	if strings.HasSuffix(e.schema, ".message") {
		return strings.HasPrefix(e.schema, "events/sense.") // DecodeCause
	}
	return strings.HasPrefix(e.schema, "events/sense.") && e.schema != "events/sense.perceived.v1" && wrongType(v)
}

// wrongType reports whether a value has another type than the schema wants,
// which every typed decoder notices.
func wrongType(v *jsonschema.ValidationError) bool {
	if k, ok := v.ErrorKind.(*kind.Type); ok {
		return len(k.Want) > 0
	}
	for _, c := range v.Causes {
		if wrongType(c) {
			return true
		}
	}
	return false
}

func goAccepts(t *testing.T, e example) bool {
	t.Helper()
	switch e.schema {
	case "manifest.v1":
		_, err := plugin.DecodeManifest(e.body)
		return err == nil
	case "events/commit":
		_, err := event.DecodeCommit(subject.Ref{Agent: "demo", Session: "s1"}, e.body)
		return err == nil
	case "events/envelope":
		_, err := event.Decode(e.body)
		return err == nil
	case "guide/guide":
		var g guide.Guide
		return json.Unmarshal(e.body, &g) == nil && g.Check() == nil
	}
	p := payload(t, strings.TrimSuffix(e.schema, ".message"))
	if event.DecodeCause(e.body, p) != nil {
		return false
	}
	in, ok := p.(*event.Input)
	return !ok || in.Check() == nil
}

// The longest input is the same for both.
func TestTheLimitOfAnInputIsTheSame(t *testing.T) {
	schema := files(t).schema(t, "events/sense.input.v1.message")
	for size, ok := range map[int]bool{event.MaxTextBytes: true, event.MaxTextBytes + 1: false} {
		in := event.Input{Text: strings.Repeat("x", size)}
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(decode(t, b)); (err == nil) != ok {
			t.Errorf("%d bytes: the schema says %v", size, err)
		}
		if err := in.Check(); (err == nil) != ok {
			t.Errorf("%d bytes: Go says %v", size, err)
		}
	}
}
