package contract

import (
	"encoding/json"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/tool"
)

var (
	timeType  = reflect.TypeFor[time.Time]()
	bytesType = reflect.TypeFor[[]byte]()
	rawType   = reflect.TypeFor[json.RawMessage]()
)

// field is a JSON field of a struct.
type field struct {
	name     string
	path     string // package.Struct.Field
	typ      reflect.Type
	index    []int
	optional bool // omitted when empty
}

// fields lists what encoding/json reads and writes, embedded structs flattened.
func fields(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("json"), ",")
		if f.Anonymous && tag[0] == "" {
			for _, inner := range fields(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				out = append(out, inner)
			}
			continue
		}
		if !f.IsExported() || tag[0] == "-" {
			continue
		}
		name := tag[0]
		if name == "" {
			name = f.Name
		}
		out = append(out, field{
			name: name, path: typeName(t) + "." + f.Name, typ: f.Type, index: []int{i},
			optional: slices.Contains(tag, "omitempty") || slices.Contains(tag, "omitzero"),
		})
	}
	return out
}

// typeName is "package.Name".
func typeName(t reflect.Type) string { return path.Base(t.PkgPath()) + "." + t.Name() }

// comparer holds Go types to schemas, and notes which it has seen.
type comparer struct {
	*testing.T
	c     *contractFiles
	enums map[string][]string // constants by "package.Type"
	seen  map[string]bool     // structs
}

func newComparer(t *testing.T) *comparer {
	k := &comparer{T: t, c: files(t), enums: map[string][]string{}, seen: map[string]bool{}}
	for _, pkg := range append([]string{
		"bus", "subject", "../services/core/registrar", "../services/internal/registry", "../services/internal/coreapi",
		"../services/internal/providerapi", "../services/internal/audit",
	}, contractPackages...) {
		for typ, values := range parse(t, pkg).consts {
			if typ != "" {
				k.enums[path.Base(pkg)+"."+typ] = values
			}
		}
	}
	return k
}

func (k *comparer) compare(at string, typ reflect.Type, n node, open bool) {
	n = k.c.follow(k, n)
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ == rawType, typ.Kind() == reflect.Interface:
		return // any JSON; what it may be is for the schema alone to say
	case typ == bytesType:
		if n.m["type"] != "string" || n.m["contentEncoding"] != "base64" {
			k.Errorf("%s: bytes are a string of contentEncoding base64, the schema says %v %v", at, n.m["type"],
				n.m["contentEncoding"])
		}
		return
	case typ == timeType:
		if n.m["type"] != "string" || n.m["format"] != "date-time" {
			k.Errorf("%s: a time is a string of format date-time, the schema says %v %v", at, n.m["type"], n.m["format"])
		}
		return
	}
	want := map[reflect.Kind]string{
		reflect.String: "string", reflect.Bool: "boolean", reflect.Slice: "array", reflect.Map: "object",
		reflect.Struct: "object", reflect.Float32: "number", reflect.Float64: "number",
		reflect.Int: "integer", reflect.Int32: "integer", reflect.Int64: "integer", reflect.Uint64: "integer",
	}[typ.Kind()]
	if want == "" || !slices.Contains(n.strings("type"), want) {
		k.Errorf("%s: Go has %s (%q), the schema has %v", at, typ, want, n.m["type"])
		return
	}
	switch typ.Kind() {
	case reflect.String:
		k.compareString(at, typ, n, open)
	case reflect.Uint64:
		if low, ok := n.int("minimum"); !ok || low < 0 {
			k.Errorf("%s: Go has an unsigned number, the schema's minimum is %v", at, n.m["minimum"])
		}
	case reflect.Slice:
		items, ok := n.child("items")
		if !ok {
			k.Errorf("%s: the schema says nothing of the items", at)
			return
		}
		k.compare(at+"[]", typ.Elem(), items, false)
	case reflect.Struct:
		k.compareStruct(at, typ, n)
	}
}

func (k *comparer) compareString(at string, typ reflect.Type, n node, open bool) {
	values, closed := k.enums[typeName(typ)]
	if _, isOpen := openEnum[typeName(typ)]; isOpen || open {
		closed = false
	}
	have := n.strings("enum")
	if !closed {
		if typ.PkgPath() != "" && have != nil {
			k.Errorf("%s: the schema closes %s to %v, Go has no such list", at, typ, have)
		}
		return
	}
	if a, b := sorted(values), sorted(have); !slices.Equal(a, b) {
		k.Errorf("%s: Go's constants of %s are %v, the schema's enum is %v", at, typ, a, b)
	}
}

func (k *comparer) compareStruct(at string, typ reflect.Type, n node) {
	k.seen[typeName(typ)] = true
	props, _ := n.child("properties")
	required := n.strings("required")
	names := map[string]bool{}
	for _, f := range fields(typ) {
		names[f.name] = true
		p, ok := props.child(f.name)
		if !ok {
			k.Errorf("%s: Go's %s has the field %q, the schema (%s) has not", at, typ, f.name, n.doc)
			continue
		}
		if must := slices.Contains(required, f.name); must == f.optional {
			k.Errorf("%s.%s: Go always writes it: %t, the schema requires it: %t", at, f.name, !f.optional, must)
		}
		_, open := openEnum[f.path]
		k.compare(at+"."+f.name, f.typ, p, open)
	}
	for name := range props.m {
		if _, excused := wireOnly[typeName(typ)+"."+name]; !names[name] && !excused && !isPlace(typ, name) {
			k.Errorf("%s: the schema (%s) has the property %q, Go's %s has not", at, n.doc, name, typ)
		}
	}
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

func TestGoTypesAndSchemasAreTheSame(t *testing.T) {
	k := newComparer(t)
	for _, name := range k.c.names() {
		typ, ok := goType(name)
		why, excused := noGoType[name]
		switch {
		case ok && excused:
			t.Errorf("%s has a Go type, and is excused from having one: %s", name, why)
		case ok:
			k.compare(name, typ, k.c.node(t, name), false)
		case !excused:
			t.Errorf("schemas/%s.json states no Go type: add it to goTypes or noGoType in types_test.go", name)
		}
	}
	for name := range goTypes {
		k.c.node(t, name)
	}
	for name := range noGoType {
		k.c.node(t, name)
	}
	for _, pkg := range contractPackages {
		for _, s := range parse(t, pkg).structs {
			name := path.Base(pkg) + "." + s
			why, excused := noSchema[name]
			if k.seen[name] == excused {
				t.Errorf("%s: compared with a schema: %t, excused: %q", name, k.seen[name], why)
			}
		}
	}
}

func TestToolScenariosAreTheSame(t *testing.T) {
	c := files(t)
	tags, ok := c.node(t, "tool/spec").child("properties", "scenario_tags", "items")
	if have := tags.strings("enum"); !ok || !slices.Equal(have, tool.Scenarios()) {
		t.Errorf("tool.Scenarios() is %v, the schema has %v", tool.Scenarios(), have)
	}
	limit, _ := c.node(t, "tool/spec").child("properties", "timeout_ms")
	if ms, _ := limit.int("maximum"); ms != tool.MaxTimeout.Milliseconds() {
		t.Errorf("tool.MaxTimeout is %v, the schema's maximum is %d ms", tool.MaxTimeout, ms)
	}
}
