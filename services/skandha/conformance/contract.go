package conformance

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"skandha.dev/pkg/hook"
)

// bundle is the part of the folder schemas that applies to plugins: a package can
// embed nothing outside of its module. A test keeps both in sync.
//
//go:embed contract.json
var bundle []byte

// contract is the bundle, ready for use.
type contract struct {
	Schemas  map[string]json.RawMessage   `json:"schemas"`  // by path, e.g. "hooks/reply.json"
	Examples map[string][]json.RawMessage `json:"examples"` // valid ones, by schema, e.g. "hooks/before_act"

	mu       sync.Mutex // a compiler is not for concurrent use
	compiler *jsonschema.Compiler
}

const contractBase = "https://skandha.dev/schemas/"

var theContract = sync.OnceValues(func() (*contract, error) {
	c := &contract{compiler: jsonschema.NewCompiler()}
	if err := json.Unmarshal(bundle, c); err != nil {
		return nil, fmt.Errorf("reading the contract: %w", err)
	}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	c.compiler.UseLoader(jsonschema.SchemeURLLoader{}) // fetch nothing
	for path, raw := range c.Schemas {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err == nil {
			err = c.compiler.AddResource(contractBase+path, doc)
		}
		if err != nil {
			return nil, fmt.Errorf("reading schemas/%s: %w", path, err)
		}
	}
	return c, nil
})

// problems lists what is wrong with a document by a schema, each by its path.
func (c *contract) problems(schema string, doc []byte) []string {
	c.mu.Lock()
	s, err := c.compiler.Compile(contractBase + schema)
	c.mu.Unlock()
	if err != nil {
		return []string{fmt.Sprintf("schemas/%s: %v", schema, err)}
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return []string{"it is not JSON: " + err.Error()}
	}
	err = s.Validate(v)
	if err == nil {
		return nil
	}
	var failure *jsonschema.ValidationError
	if !errors.As(err, &failure) {
		return []string{err.Error()}
	}
	var out []string
	leaves(failure, &out)
	slices.Sort(out)
	return slices.Compact(out)
}

func leaves(e *jsonschema.ValidationError, out *[]string) {
	for _, c := range e.Causes {
		leaves(c, out)
	}
	if len(e.Causes) == 0 {
		at := "/" + strings.Join(e.InstanceLocation, "/")
		*out = append(*out, at+": "+e.ErrorKind.LocalizedString(message.NewPrinter(language.English)))
	}
}

// questions returns envelopes of a hook point, one for each example of its payload,
// without an id, a plugin and a deadline.
func (c *contract) questions(p hook.Point) ([]hook.Envelope, error) {
	var base *hook.Envelope
	for _, raw := range c.Examples["hooks/envelope"] {
		var e hook.Envelope
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, err
		}
		if e.Point == p {
			base = &e
		}
	}
	if base == nil {
		return nil, fmt.Errorf("no example of an envelope of %s", p)
	}
	out := []hook.Envelope{*base}
	for _, data := range c.Examples["hooks/"+string(p)] {
		e := *base
		e.Data = data
		if !sameJSON(data, base.Data) {
			out = append(out, e)
		}
	}
	return out, nil
}

// sameJSON compares values, ignoring spaces and the order of keys.
func sameJSON(a, b []byte) bool {
	x, errX := jsonschema.UnmarshalJSON(bytes.NewReader(a))
	y, errY := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if errX != nil || errY != nil {
		return bytes.Equal(a, b)
	}
	return reflect.DeepEqual(x, y)
}

// mustJSON encodes a value that always encodes.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
