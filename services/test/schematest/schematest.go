// Package schematest validates the UI bridge's messages against schemas/ui, for tests of
// the bridge's packages.
package schematest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas is the path of schemas/ and what it refers to, for tests in the bridge's
// packages: a link inside the module, so that the go command notices changes.
const schemas = "../../test/contract/schemas"

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

// Check validates a body against schemas/ui/<name>.json. The error says what is wrong with
// the body, or that the schema does not exist. Check is safe for concurrent use.
func Check(name string, body []byte) error {
	s, err := compile(name)
	if err != nil {
		return fmt.Errorf("reading schemas/ui/%s.json: %w", name, err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err == nil {
		err = s.Validate(v)
	}
	if err != nil {
		return fmt.Errorf("schemas/ui/%s.json does not allow %s: %w", name, body, err)
	}
	return nil
}

var compiled sync.Map // *jsonschema.Schema by name

func compile(name string) (*jsonschema.Schema, error) {
	if s, ok := compiled.Load(name); ok {
		return s.(*jsonschema.Schema), nil
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(schemaFiles(schemas))
	s, err := c.Compile(schemaIDs + "ui/" + name + ".json")
	if err == nil {
		compiled.Store(name, s)
	}
	return s, err
}
