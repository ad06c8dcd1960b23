package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp/syntax"
	"slices"
	"strings"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/toolschema"
)

// samples returns arguments that match the tool's schema: the required ones, and all of them.
// The error is the reason why none could be made.
func samples(spec tool.Spec) ([]json.RawMessage, error) {
	v, err := toolschema.Compile(spec)
	if err != nil {
		return nil, err
	}
	var root map[string]any
	d := json.NewDecoder(bytes.NewReader(v.Schema()))
	d.UseNumber()
	if err := d.Decode(&root); err != nil {
		return nil, err
	}
	var out []json.RawMessage
	var why error
	for _, full := range []bool{false, true} {
		s := sampler{root: root, full: full}
		value, err := s.value(root, 0)
		if err != nil {
			why = err
			continue
		}
		args := mustJSON(value)
		// As given, without the defaults that Validate fills in: core does that.
		filled, bad := v.Validate(args)
		switch {
		case len(bad) > 0:
			why = fmt.Errorf("%s does not match the schema: %s", quote(args), strings.Join(bad, "; "))
		case len(out) == 0 || !sameJSON(out[0], filled):
			out = append(out, filled)
		}
	}
	if len(out) == 0 {
		return nil, why
	}
	return out, nil
}

// sampler makes a value that should match a schema. It knows the usual keywords; the caller
// checks whether the value matches.
type sampler struct {
	root map[string]any
	full bool
}

const maxSampleDepth = 12

func (s sampler) value(of any, depth int) (any, error) {
	m, isSchema := of.(map[string]any)
	if depth > maxSampleDepth {
		return nil, errors.New("the schema is too deep, or refers to itself")
	}
	if !isSchema { // true
		return "example", nil
	}
	if ref, ok := m["$ref"].(string); ok {
		to, err := s.follow(ref)
		if err != nil {
			return nil, err
		}
		return s.value(to, depth+1)
	}
	if v, ok := chosen(m); ok {
		return v, nil
	}
	m = s.merged(m)
	return s.typed(m, depth)
}

// chosen returns a value that the schema itself names.
func chosen(m map[string]any) (any, bool) {
	if v, ok := m["const"]; ok {
		return v, true
	}
	for _, k := range []string{"enum", "examples"} {
		if l, ok := m[k].([]any); ok && len(l) > 0 {
			return l[0], true
		}
	}
	v, ok := m["default"]
	return v, ok
}

// merged adds the requirements of allOf and of the first alternative of anyOf and oneOf.
func (s sampler) merged(m map[string]any) map[string]any {
	var parts []any
	all, _ := m["allOf"].([]any)
	parts = append(parts, all...)
	for _, k := range []string{"anyOf", "oneOf"} {
		if l, ok := m[k].([]any); ok && len(l) > 0 {
			parts = append(parts, l[0])
		}
	}
	if len(parts) == 0 {
		return m
	}
	m = maps.Clone(m)
	for _, p := range parts {
		part, ok := p.(map[string]any)
		if ref, isRef := part["$ref"].(string); isRef {
			to, err := s.follow(ref)
			if part, ok = to.(map[string]any); err != nil {
				ok = false
			}
		}
		if ok {
			merge(m, part)
		}
	}
	return m
}

func merge(m, part map[string]any) {
	for k, v := range part {
		switch had := m[k].(type) {
		case map[string]any:
			if more, ok := v.(map[string]any); ok && k == "properties" {
				joined := maps.Clone(had)
				maps.Copy(joined, more)
				m[k] = joined
			}
		case []any:
			if more, ok := v.([]any); ok && k == "required" {
				m[k] = slices.Concat(had, more)
			}
		case nil:
			m[k] = v
		}
	}
}

func (s sampler) follow(ref string) (any, error) {
	path, local := strings.CutPrefix(ref, "#")
	if !local {
		return nil, fmt.Errorf("$ref %q points outside of the schema", ref)
	}
	var at any = s.root
	for _, k := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		if k == "" {
			continue
		}
		m, ok := at.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("$ref %q is not in the schema", ref)
		}
		at = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(k)]
	}
	return at, nil
}

func (s sampler) typed(m map[string]any, depth int) (any, error) {
	kind, _ := m["type"].(string)
	if l, ok := m["type"].([]any); ok && len(l) > 0 {
		kind, _ = l[0].(string)
	}
	if kind == "" {
		switch {
		case m["properties"] != nil || m["required"] != nil:
			kind = "object"
		case m["items"] != nil:
			kind = "array"
		case m["minimum"] != nil || m["maximum"] != nil:
			kind = "number"
		}
	}
	switch kind {
	case "null":
		return nil, nil //nolint:nilnil // the JSON value
	case "boolean":
		return s.full, nil
	case "integer", "number":
		return s.number(m), nil
	case "array":
		return s.array(m, depth)
	case "object":
		return s.object(m, depth)
	}
	return s.text(m)
}

func number(m map[string]any, k string) (float64, bool) {
	n, ok := m[k].(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	return f, err == nil
}

func (s sampler) number(m map[string]any) any {
	low, hasLow := number(m, "minimum")
	if x, ok := number(m, "exclusiveMinimum"); ok && (!hasLow || x >= low) {
		low, hasLow = math.Floor(x)+1, true
	}
	high, hasHigh := number(m, "maximum")
	if x, ok := number(m, "exclusiveMaximum"); ok && (!hasHigh || x <= high) {
		high, hasHigh = math.Ceil(x)-1, true
	}
	v := 1.0
	if hasLow && v < low {
		v = math.Ceil(low)
	}
	if hasHigh && v > high {
		v = math.Floor(high)
		if hasLow && v < low {
			v = (low + high) / 2
		}
	}
	if step, ok := number(m, "multipleOf"); ok && step > 0 {
		v = math.Ceil(v/step) * step
	}
	return v
}

func (s sampler) array(m map[string]any, depth int) (any, error) {
	least, _ := number(m, "minItems")
	if s.full && least < 1 && m["items"] != nil {
		least = 1
	}
	prefix, _ := m["prefixItems"].([]any)
	out := []any{}
	for i := range int(min(least, 1000)) {
		of := m["items"]
		if i < len(prefix) {
			of = prefix[i]
		}
		v, err := s.value(of, depth+1)
		if err != nil {
			return nil, err
		}
		if text, ok := v.(string); ok && m["uniqueItems"] == true && i > 0 {
			v = fmt.Sprint(text, i)
		}
		out = append(out, v)
	}
	return out, nil
}

func (s sampler) object(m map[string]any, depth int) (any, error) {
	properties, _ := m["properties"].(map[string]any)
	wanted := map[string]bool{}
	if s.full && depth < 4 {
		for k, of := range properties {
			wanted[k] = of != false
		}
	}
	required, _ := m["required"].([]any)
	for _, k := range required {
		if name, ok := k.(string); ok {
			wanted[name] = true
		}
	}
	out := map[string]any{}
	for _, k := range slices.Sorted(maps.Keys(wanted)) {
		if !wanted[k] {
			continue
		}
		v, err := s.value(properties[k], depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k, err)
		}
		out[k] = v
	}
	return out, nil
}

var formats = map[string]string{
	"date-time": "2026-01-02T03:04:05Z", "date": "2026-01-02", "time": "03:04:05Z", "duration": "PT1M",
	"email":    "someone@example.com",
	"hostname": "example.com", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "uri": "https://example.com/",
	"uri-reference": "/a",
	"uuid":          "123e4567-e89b-12d3-a456-426614174000", "json-pointer": "/a", "regex": "a",
	"iri": "https://example.com/",
}

func (s sampler) text(m map[string]any) (any, error) {
	if f, ok := m["format"].(string); ok && formats[f] != "" {
		return formats[f], nil
	}
	if p, ok := m["pattern"].(string); ok {
		re, err := syntax.Parse(p, syntax.Perl)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", p, err)
		}
		return match(re.Simplify()), nil
	}
	text := "example"
	if most, ok := number(m, "maxLength"); ok && most < float64(len(text)) {
		text = text[:int(most)]
	}
	if least, ok := number(m, "minLength"); ok && least > float64(len(text)) && least < 1<<16 {
		text += strings.Repeat("a", int(least)-len(text))
	}
	return text, nil
}

// match returns a short text that the expression matches.
func match(re *syntax.Regexp) string {
	var b strings.Builder
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		if len(re.Rune) > 0 {
			b.WriteRune(re.Rune[0])
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('a')
	case syntax.OpCapture, syntax.OpPlus:
		b.WriteString(match(re.Sub[0]))
	case syntax.OpRepeat:
		b.WriteString(strings.Repeat(match(re.Sub[0]), re.Min))
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			b.WriteString(match(sub))
		}
	case syntax.OpAlternate:
		b.WriteString(match(re.Sub[0]))
	}
	return b.String()
}
