package toolschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/nesting"
	"skandha.dev/services/internal/text"
)

// The limits, in bytes.
const (
	maxArgs   = 256 << 10 // of a call's arguments
	maxSchema = 64 << 10  // of a tool's schema
)

// MaxDepth is how many levels deep arguments may nest. The validator writes the path of
// every value that does not fit, so that its cost grows with the depth times the size. A
// schema has two levels for each of the arguments: a keyword and a name.
const (
	MaxDepth       = 64
	maxSchemaDepth = 2 * MaxDepth
)

// ErrSchema is wrapped by every error about a tool's schema.
var ErrSchema = errors.New("tool schema")

// Validator checks the arguments of one tool. It is safe for concurrent use.
type Validator struct {
	schema *jsonschema.Schema
	doc    json.RawMessage
}

// Compile reads the spec's args: an object schema (draft 2020-12 unless $schema
// says otherwise, formats asserted) or a bare map of properties. Absent args
// mean a tool without arguments. Errors wrap [ErrSchema] and name the tool.
func Compile(spec tool.Spec) (*Validator, error) {
	v, err := compile(spec.Args)
	if err != nil {
		return nil, fmt.Errorf("%w of %q: %w", ErrSchema, spec.Name, err)
	}
	return v, nil
}

func compile(args json.RawMessage) (*Validator, error) {
	if len(args) > maxSchema {
		return nil, fmt.Errorf("args has %d bytes, at most %d are allowed", len(args), maxSchema)
	}
	if d := nesting.Depth(args); d > maxSchemaDepth {
		return nil, fmt.Errorf("args is nested %d levels deep, at most %d are allowed", d, maxSchemaDepth)
	}
	doc, err := objectSchema(args)
	if err != nil {
		return nil, err
	}
	if err := checkNumbers(doc); err != nil {
		return nil, err
	}
	text, err := encode(doc)
	if err != nil {
		return nil, fmt.Errorf("encoding the schema: %w", err)
	}
	const name = "tool:///args" // with a path, so that a relative $ref resolves to something else
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(nothingRemote{})
	if err := c.AddResource(name, doc); err != nil {
		return nil, err
	}
	s, err := c.Compile(name)
	if err != nil {
		return nil, err
	}
	if err := checkSize(s); err != nil {
		return nil, err
	}
	if err := checkDefaults(s); err != nil {
		return nil, err
	}
	return &Validator{s, text}, nil
}

// nothingRemote refuses to load anything outside of the schema.
type nothingRemote struct{}

func (nothingRemote) Load(url string) (any, error) {
	return nil, fmt.Errorf("%q lies outside the schema: use a $ref to its own $defs", url)
}

func checkDefaults(s *jsonschema.Schema) error {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		if d := defaultOf(p); d != nil {
			if err := p.Validate(*d); err != nil {
				return fmt.Errorf("the default of %q does not fit: %s", name, strings.Join(explain(err), "; "))
			}
		}
	}
	return nil
}

// Schema returns the object schema, as sent to models.
func (v *Validator) Schema() json.RawMessage { return v.doc }

// Validate checks the arguments. If they are valid, it returns them in canonical form
// (keys sorted, no spaces, numbers as they were written) with the defaults of
// absent properties filled in, and no errors. Otherwise it returns every error as
// "<JSON pointer>: <what is wrong>"; the whole value is called "(root)". Absent
// arguments and null mean {}.
func (v *Validator) Validate(args json.RawMessage) (json.RawMessage, []string) {
	value, err := decode(args)
	if err != nil {
		return nil, []string{root + ": " + err.Error()}
	}
	applyDefaults(v.schema, value, 0)
	if err := v.schema.Validate(value); err != nil {
		return nil, explain(err)
	}
	out, err := encode(value)
	if err != nil {
		return nil, []string{root + ": encoding the arguments: " + err.Error()}
	}
	return out, nil
}

func decode(args json.RawMessage) (any, error) {
	if len(args) > maxArgs {
		return nil, fmt.Errorf("the arguments have %d bytes, at most %d are allowed", len(args), maxArgs)
	}
	if d := nesting.Depth(args); d > MaxDepth {
		return nil, fmt.Errorf("the arguments are nested %d levels deep, at most %d are allowed", d, MaxDepth)
	}
	if t := bytes.TrimSpace(args); len(t) == 0 || string(t) == "null" {
		return map[string]any{}, nil
	}
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("the arguments are not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the arguments are more than one JSON value")
	}
	if s, ok := value.(string); ok {
		return nil, fmt.Errorf("got the string %q, want a JSON object", text.Cut(s, 200))
	}
	return value, checkNumbers(value)
}

// checkNumbers refuses numbers that would cost unbounded memory to compare:
// the validator computes with exact fractions, where 1e999999999 has a billion digits.
func checkNumbers(value any) error {
	path, found := outOfRange(value)
	if !found {
		return nil
	}
	slices.Reverse(path)
	return fmt.Errorf("the number at %s is out of range: at most 400 digits and 3 digits of exponent",
		pointerOr(pointer(path)))
}

// outOfRange finds a number that is out of range; its path begins at the inside.
func outOfRange(value any) (path []string, found bool) {
	switch x := value.(type) {
	case json.Number:
		f := strings.ToLower(string(x))
		_, exp, _ := strings.Cut(f, "e")
		exp = strings.TrimLeft(exp, "+-0")
		return nil, len(f) > 400 || len(exp) > 3
	case map[string]any:
		for k, e := range x {
			if path, found := outOfRange(e); found {
				return append(path, k), true
			}
		}
	case []any:
		for i, e := range x {
			if path, found := outOfRange(e); found {
				return append(path, strconv.Itoa(i)), true
			}
		}
	}
	return nil, false
}

func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
