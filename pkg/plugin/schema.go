package plugin

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	rawType      = reflect.TypeFor[json.RawMessage]()
	numberType   = reflect.TypeFor[json.Number]()
	jsonReader   = reflect.TypeFor[json.Unmarshaler]()
	textReader   = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// schema is a JSON Schema (2020-12) under construction.
type schema = map[string]any

// schemaFor returns the object schema of the arguments that decode into A.
func schemaFor[A any]() (json.RawMessage, error) {
	t := reflect.TypeFor[A]()
	if t == rawType || t.Kind() == reflect.Interface {
		return json.RawMessage(`{"type":"object"}`), nil
	}
	s, err := (&reflector{}).typ(t, "")
	if err != nil {
		return nil, err
	}
	if s["type"] != "object" {
		return nil, fmt.Errorf("%v is not an object; use a struct, a map or json.RawMessage", t)
	}
	return json.Marshal(s)
}

// reflector derives schemas. It is inside of the structs in the list: if one of them occurs
// again, the type is recursive.
type reflector struct{ inside []reflect.Type }

// typ returns the schema of a type; at is the path of the field, for errors.
func (r *reflector) typ(t reflect.Type, at string) (schema, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == timeType:
		return schema{"type": "string", "format": "date-time"}, nil
	case t == durationType:
		return nil, fault(at,
			"a time.Duration is a number of nanoseconds, which a model cannot know; use an int and put the unit into its name")
	case t == rawType:
		return schema{}, nil
	case t == numberType:
		return schema{"type": "number"}, nil
	case reflect.PointerTo(t).Implements(jsonReader):
		return schema{}, nil
	case reflect.PointerTo(t).Implements(textReader):
		return schema{"type": "string"}, nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return schema{"type": "boolean"}, nil
	case reflect.String:
		return schema{"type": "string"}, nil
	case reflect.Float32, reflect.Float64:
		return schema{"type": "number"}, nil
	case reflect.Slice, reflect.Array:
		return r.list(t, at)
	case reflect.Map:
		return r.dictionary(t, at)
	case reflect.Struct:
		return r.object(t, at)
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return schema{}, nil
		}
	}
	switch zero := reflect.Zero(t); {
	case zero.CanInt():
		return integer(t.Bits(), true), nil
	case zero.CanUint() && t.Kind() != reflect.Uintptr:
		return integer(t.Bits(), false), nil
	}
	return nil, fault(at, "a %v cannot be read from JSON", t)
}

func fault(at, format string, args ...any) error {
	if at != "" {
		format = "field " + strings.ReplaceAll(at, "%", "%%") + ": " + format
	}
	return fmt.Errorf(format, args...)
}

// integer returns the schema of an integer, with bounds unless the type has 64 bits. An
// unsigned type has a minimum of 0.
func integer(bits int, signed bool) schema {
	s := schema{"type": "integer"}
	switch {
	case !signed:
		s["minimum"] = 0
		if bits < 64 {
			s["maximum"] = int64(1)<<bits - 1
		}
	case bits < 64:
		s["minimum"], s["maximum"] = -(int64(1) << (bits - 1)), int64(1)<<(bits-1)-1
	}
	return s
}

func (r *reflector) list(t reflect.Type, at string) (schema, error) {
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		return schema{"type": "string", "contentEncoding": "base64"}, nil
	}
	items, err := r.typ(t.Elem(), at+"[]")
	if err != nil {
		return nil, err
	}
	s := schema{"type": "array", "items": items}
	if t.Kind() == reflect.Array {
		s["minItems"], s["maxItems"] = t.Len(), t.Len()
	}
	return s, nil
}

func (r *reflector) dictionary(t reflect.Type, at string) (schema, error) {
	k := t.Key()
	if k.Kind() != reflect.String && !k.Implements(textReader) && !reflect.PointerTo(k).Implements(textReader) {
		return nil, fault(at, "map keys are %v, want strings", k)
	}
	values, err := r.typ(t.Elem(), at+"{}")
	if err != nil {
		return nil, err
	}
	if len(values) == 0 {
		return schema{"type": "object"}, nil
	}
	return schema{"type": "object", "additionalProperties": values}, nil
}

func (r *reflector) object(t reflect.Type, at string) (schema, error) {
	if slices.Contains(r.inside, t) {
		return nil, fault(at, "%v is recursive; set the tool's schema with plugin.Args", t)
	}
	r.inside = append(r.inside, t)
	defer func() { r.inside = r.inside[:len(r.inside)-1] }()
	fields, err := properties(t, at)
	if err != nil {
		return nil, err
	}
	props, required := schema{}, []string{}
	for _, f := range fields {
		p, err := r.property(f, below(at, f.name))
		if err != nil {
			return nil, err
		}
		props[f.name] = p
		if f.required() {
			required = append(required, f.name)
		}
	}
	s := schema{"type": "object", "properties": props, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s, nil
}

// property returns the schema of a field, including its tags.
func (r *reflector) property(f property, at string) (schema, error) {
	if slices.Contains(f.options, "string") {
		return nil, fault(at, `the json option "string" is not supported; declare the field as a string`)
	}
	switch f.Tag.Get("required") {
	case "", "true", "false":
	default:
		return nil, fault(at, `required is %q, want "true" or "false"`, f.Tag.Get("required"))
	}
	s, err := r.typ(f.Type, at)
	if err != nil {
		return nil, err
	}
	if d := f.Tag.Get("desc"); d != "" {
		s["description"] = d
	}
	for _, annotate := range []func(schema, property) error{enumeration, bounds, preset} {
		if err := annotate(s, f); err != nil {
			return nil, fault(at, "%w", err)
		}
	}
	return s, nil
}

// property is a field of a struct with its name in JSON.
type property struct {
	reflect.StructField
	name    string
	options []string // of the json tag
	depth   int      // of embedding
}

func (f property) required() bool {
	if tag, ok := f.Tag.Lookup("required"); ok {
		return tag == "true"
	}
	_, preset := f.Tag.Lookup("default")
	return !preset && f.Type.Kind() != reflect.Pointer && !slices.Contains(f.options, "omitempty") &&
		!slices.Contains(f.options, "omitzero")
}

// properties lists the fields that encoding/json decodes. Of two fields with the same name,
// the less deeply embedded one counts. Two at the same depth are an error here;
// encoding/json ignores them silently.
func properties(t reflect.Type, at string) ([]property, error) {
	var all []property
	collect(t, 0, nil, &all)
	var out []property
	for _, f := range all {
		rival := slices.ContainsFunc(all, func(g property) bool {
			return g.name == f.name && g.depth <= f.depth && !slices.Equal(g.Index, f.Index)
		})
		hidden := slices.ContainsFunc(all, func(g property) bool { return g.name == f.name && g.depth < f.depth })
		switch {
		case hidden:
		case rival:
			return nil, fault(at, "%v has two fields named %q", t, f.name)
		default:
			out = append(out, f)
		}
	}
	return out, nil
}

func collect(t reflect.Type, depth int, index []int, out *[]property) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("json"), ",")
		if f.Tag.Get("json") == "-" {
			continue
		}
		f.Index = append(slices.Clone(index), i)
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if f.Anonymous && tag[0] == "" && inner.Kind() == reflect.Struct {
			if depth < maxEmbedding { // if deeper, it embeds itself
				collect(inner, depth+1, f.Index, out)
			}
			continue
		}
		if !f.IsExported() {
			continue
		}
		name := tag[0]
		if name == "" {
			name = f.Name
		}
		*out = append(*out, property{f, name, tag[1:], depth})
	}
}

const maxEmbedding = 8

// base returns the type that a tag refers to: t without pointers.
func base(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// value parses one value of a tag: text for strings, JSON for other types.
func value(t reflect.Type, text string) (json.RawMessage, error) {
	raw := json.RawMessage(text)
	if t.Kind() == reflect.String || t == timeType {
		raw, _ = json.Marshal(text)
	}
	if err := json.Unmarshal(raw, reflect.New(t).Interface()); err != nil {
		return nil, fmt.Errorf("%q is not a valid %v: %w", text, t, err)
	}
	return raw, nil
}

func enumeration(s schema, f property) error {
	tag, ok := f.Tag.Lookup("enum")
	if !ok {
		return nil
	}
	t, at := base(f.Type), s
	if t.Kind() == reflect.Slice {
		t = base(t.Elem())
		at, _ = s["items"].(schema)
	}
	zero := reflect.Zero(t)
	if at == nil || t.Kind() != reflect.String && !zero.CanInt() && !zero.CanUint() && !zero.CanFloat() {
		return errors.New("enum is only valid for strings and numbers, and slices of them")
	}
	var values []json.RawMessage
	for text := range strings.SplitSeq(tag, ",") {
		v, err := value(t, strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("enum: %w", err)
		}
		values = append(values, v)
	}
	at["enum"] = values
	return nil
}

func bounds(s schema, f property) error {
	for _, tag := range []string{"min", "max"} {
		text, ok := f.Tag.Lookup(tag)
		if !ok {
			continue
		}
		keyword := map[any]string{
			"number": tag + "imum", "integer": tag + "imum", "string": tag + "Length", "array": tag + "Items",
		}[s["type"]]
		if keyword == "" {
			return fmt.Errorf("%s is only valid for numbers, strings and slices", tag)
		}
		var n json.Number
		if err := json.Unmarshal([]byte(text), &n); err != nil {
			return fmt.Errorf("%s: %q is not a number", tag, text)
		}
		s[keyword] = n
	}
	return nil
}

// preset sets the default, which must be in the enum if there is one.
func preset(s schema, f property) error {
	text, ok := f.Tag.Lookup("default")
	if !ok {
		return nil
	}
	v, err := value(base(f.Type), text)
	if err != nil {
		return fmt.Errorf("default: %w", err)
	}
	allowed, closed := s["enum"].([]json.RawMessage)
	if closed && !slices.ContainsFunc(allowed, func(a json.RawMessage) bool { return string(a) == string(v) }) {
		return fmt.Errorf("default: %s is not in the enum %s", v, f.Tag.Get("enum"))
	}
	s["default"] = v
	return nil
}
