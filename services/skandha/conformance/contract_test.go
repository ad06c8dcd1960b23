package conformance

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"

	"skandha.dev/pkg/hook"
)

var update = flag.Bool("update", false, "write contract.json anew from the folder schemas")

// theFolder reads what the bundle is made of. The link is there because the go
// command looks at no file outside of the module when it remembers a result.
func theFolder(t *testing.T) []byte {
	t.Helper()
	var b struct {
		Schemas  map[string]json.RawMessage   `json:"schemas"`
		Examples map[string][]json.RawMessage `json:"examples"`
	}
	b.Schemas, b.Examples = map[string]json.RawMessage{}, map[string][]json.RawMessage{}
	err := fs.WalkDir(os.DirFS("schemas"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".json" {
			return err
		}
		dir, _, _ := strings.Cut(name, "/")
		examples, isExample := strings.CutPrefix(name, "examples/valid/")
		used := dir == name || dir == "hooks" || dir == "tool" || dir == "plugin" || dir == "provider" || dir == "storage" ||
			dir == "guide" || dir == "memory" || name == "events/question.json"
		if isExample = isExample && strings.HasPrefix(examples, "hooks/"); !isExample && !used {
			return nil
		}
		raw, err := os.ReadFile(path.Join("schemas", name))
		if err != nil {
			return err
		}
		if isExample {
			schema := path.Dir(examples)
			b.Examples[schema] = append(b.Examples[schema], raw)
		} else {
			b.Schemas[name] = raw
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Schemas) < 30 || len(b.Examples) < 12 {
		t.Fatalf("the folder has %d schemas and examples of %d", len(b.Schemas), len(b.Examples))
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(b); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestTheBundleIsTheContract(t *testing.T) {
	want := theFolder(t)
	if *update {
		if err := os.WriteFile("contract.json", want, 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(bundle, want) {
		t.Error("contract.json differs from the folder schemas; run: " +
			"go test ./skandha/conformance -run TestTheBundle -update")
	}
}

func TestEveryPointHasValidQuestions(t *testing.T) {
	c, err := theContract()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range hook.Points() {
		list, err := c.questions(p)
		if err != nil || len(list) == 0 {
			t.Errorf("%s: %d questions, %v", p, len(list), err)
		}
		for _, e := range list {
			e.InvocationID, e.Plugin = "x", "p"
			if bad := c.problems("hooks/envelope.json", mustJSON(e)); len(bad) > 0 {
				t.Errorf("%s: %s: %v", p, e.Data, bad)
			}
		}
	}
}

func TestProblemsNameThePlace(t *testing.T) {
	c, err := theContract()
	if err != nil {
		t.Fatal(err)
	}
	for doc, want := range map[string]string{
		`{"verb":"continue"}`:        "",
		`{"verb":"maybe"}`:           "/verb: ",
		`{"verb":"deny"}`:            "missing property 'reason'",
		`{"verb":"continue","x":1}`:  "additional properties 'x'",
		`nothing`:                    "it is not JSON",
		`{"verb":"replace"}`:         "missing property 'data'",
		`{"verb":"stop","reason":1}`: "/reason: got number, want string",
	} {
		got := strings.Join(c.problems("hooks/reply.json", []byte(doc)), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", doc, got, want)
		}
	}
}
