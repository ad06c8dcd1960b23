package doortest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas is where schemas/ui and what it refers to lie, for tests in the packages of
// the bridge: a link inside of the module, so that the go command sees that they change.
const schemas = "../../internal/contract/schemas"

// schemaFiles loads schemas by their ids, and nothing else.
type schemaFiles string

// Load implements [jsonschema.URLLoader].
func (dir schemaFiles) Load(url string) (any, error) {
	b, err := os.ReadFile(filepath.Join(string(dir), filepath.FromSlash(strings.TrimPrefix(url, schemaIDs))))
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(b))
}

const schemaIDs = "https://skandha.dev/schemas/"

// Schema checks bodies against schemas/ui/<name>.json: what it returns fails the test
// with one that is not valid.
func Schema(t testing.TB, name string) func(body []byte) {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(schemaFiles(schemas))
	s, err := c.Compile(schemaIDs + "ui/" + name + ".json")
	Fatal(t, err)
	return func(body []byte) {
		t.Helper()
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err == nil {
			err = s.Validate(v)
		}
		if err != nil {
			t.Errorf("schemas/ui/%s.json does not allow %s: %v", name, body, err)
		}
	}
}
