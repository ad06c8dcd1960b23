package toolschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// objectSchema reads a spec's args and gives an object schema. The
// specification's own examples write a bare map of properties instead, which is
// accepted and wrapped: exactly these arguments exist, and one is required if
// its property says "required": true.
func objectSchema(args json.RawMessage) (map[string]any, error) {
	if len(bytes.TrimSpace(args)) == 0 {
		return map[string]any{"type": "object", "additionalProperties": false}, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(args))
	if err != nil {
		return nil, fmt.Errorf("args is not JSON: %w", err)
	}
	m, ok := doc.(map[string]any)
	if !ok {
		return nil, errors.New("args must be a JSON object: an object schema, or a map of properties")
	}
	if !isSchema(m) && isPropertyMap(m) {
		return wrap(m), nil
	}
	switch t := m["type"].(type) {
	case nil:
		m["type"] = "object"
	case string:
		if t != "object" {
			return nil, fmt.Errorf(`args has "type": %q, want "object"`, t)
		}
	default:
		return nil, errors.New(`args must have "type": "object"`)
	}
	return m, nil
}

// isSchema tells a schema from a map of properties by the keywords whose values
// can be no property's schema, or that hold schemas where a property's schema
// would hold keywords.
func isSchema(m map[string]any) bool {
	for _, k := range []string{"type", "$schema", "$id", "$ref", "$comment", "title", "description"} {
		switch m[k].(type) {
		case string, []any:
			return true
		}
	}
	for _, k := range []string{"required", "allOf", "anyOf", "oneOf", "enum", "examples"} {
		if _, ok := m[k].([]any); ok {
			return true
		}
	}
	for _, k := range []string{"properties", "patternProperties", "$defs", "definitions"} {
		if p, ok := m[k].(map[string]any); ok && isPropertyMap(p) {
			return true
		}
	}
	return len(m) == 0
}

func isPropertyMap(m map[string]any) bool {
	for _, v := range m {
		if _, ok := v.(map[string]any); !ok {
			return false
		}
	}
	return true
}

func wrap(props map[string]any) map[string]any {
	var required []any
	for name, v := range props {
		p := v.(map[string]any)
		if must, ok := p["required"].(bool); ok {
			delete(p, "required")
			if must {
				required = append(required, name)
			}
		}
	}
	s := map[string]any{"type": "object", "properties": props, "additionalProperties": false}
	if len(required) > 0 {
		slices.SortFunc(required, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
		s["required"] = required
	}
	return s
}
