package configfile

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"skandha.dev/services/internal/nearest"
	"skandha.dev/services/internal/text"
)

// decode decodes a node at a path, or nothing if anything is wrong. Its error is of type
// [Problems].
func decode(path string, n *yaml.Node, into any) error {
	if err := check(path, n, into).err(); err != nil {
		return err
	}
	if err := n.Decode(into); err != nil {
		return syntax(err).err()
	}
	return nil
}

// sound returns a file without the sections that have problems.
func sound(root *yaml.Node, into any) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode, Tag: root.Tag, Line: root.Line}
	for i := 0; root.Kind == yaml.MappingNode && i+1 < len(root.Content); i += 2 {
		one := yaml.Node{Kind: yaml.MappingNode, Tag: root.Tag, Line: root.Line, Content: root.Content[i : i+2]}
		if len(check("", &one, into)) == 0 {
			out.Content = append(out.Content, one.Content...)
		}
	}
	return out
}

func check(path string, n *yaml.Node, into any) Problems {
	c := checker{seen: map[visit]bool{}}
	c.value(place{path, n.Line}, n, reflect.TypeOf(into).Elem(), false)
	return c.problems
}

// checker compares a node with the type that it is decoded into. The library would
// name Go's types instead of paths, and check no keys below a node.
type checker struct {
	problems Problems
	seen     map[visit]bool
}

// visit is a node that was checked: an alias may lead to it often, or back to itself.
type visit struct {
	node *yaml.Node
	as   reflect.Type
}

// place is the position of a value.
type place struct {
	path string
	line int
}

func (p place) key(key string, line int) place {
	if p.path != "" {
		key = p.path + "." + key
	}
	return place{key, line}
}

func (c *checker) bad(at place, format string, args ...any) {
	if at.path == "" {
		at.path = "the file"
	}
	c.problems = append(c.problems, Problem{Line: at.line, Text: at.path + " " + fmt.Sprintf(format, args...)})
}

var (
	nodeType     = reflect.TypeFor[yaml.Node]()
	durationType = reflect.TypeFor[time.Duration]()
	custom       = reflect.TypeFor[yaml.Unmarshaler]()
)

// value checks the value at a place. With loose set, numbers are accepted as text.
func (c *checker) value(at place, n *yaml.Node, t reflect.Type, loose bool) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	v := visit{n, t}
	if c.seen[v] || t == nodeType || t.Kind() == reflect.Interface || n.Tag == "!!null" {
		return
	}
	c.seen[v] = true
	switch kind := t.Kind(); {
	case reflect.PointerTo(t).Implements(custom):
		if err := n.Decode(reflect.New(t).Interface()); err != nil {
			c.bad(at, "%v", err)
		}
	case kind == reflect.Struct:
		c.fields(at, n, t)
	case kind == reflect.Map:
		c.pairs(at, n, func(at place, _ string, v *yaml.Node) { c.value(at, v, t.Elem(), t.Elem().Kind() == reflect.String) })
	case kind == reflect.Slice && n.Kind != yaml.SequenceNode:
		c.bad(at, "is %s, want a list", kindOf(n))
	case kind == reflect.Slice:
		for i, e := range n.Content {
			c.value(place{fmt.Sprintf("%s[%d]", at.path, i), e.Line}, e, t.Elem(), false)
		}
	case n.Kind != yaml.ScalarNode:
		c.bad(at, "is %s, want %s", kindOf(n), wanted(t))
	case kind == reflect.String && !loose && slices.Contains([]string{"!!int", "!!float", "!!bool"}, n.Tag):
		c.bad(at, "is %s, want text: put it in quotes", kindOf(n)) // without the value, which may be a secret
	case n.Decode(reflect.New(t).Interface()) != nil || isWhole(t) && fraction(n):
		c.bad(at, "is %s, want %s", quoted(n), wanted(t))
	}
}

// fraction reports whether a number has a fractional part, which the
// library would cut off.
func fraction(n *yaml.Node) bool {
	f, err := strconv.ParseFloat(n.Value, 64)
	return n.Tag == "!!float" && (err != nil || f != math.Trunc(f))
}

func isWhole(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 }

// fields checks a mapping that is decoded into a struct.
func (c *checker) fields(at place, n *yaml.Node, t reflect.Type) {
	known := map[string]reflect.Type{}
	fieldsOf(t, known)
	c.pairs(at, n, func(here place, key string, v *yaml.Node) {
		switch field, ok := known[key]; {
		case ok:
			c.value(here, v, field, false)
		case key == "<<":
			c.merged(place{at.path, here.line}, v, t)
		default:
			text := unknown(here.path, slices.Sorted(maps.Keys(known)), key)
			c.problems = append(c.problems, Problem{Line: here.line, Text: text})
		}
	})
}

// merged checks what the merge key adds: one or several mappings.
func (c *checker) merged(at place, v *yaml.Node, t reflect.Type) {
	if v.Kind != yaml.SequenceNode {
		c.value(at, v, t, false)
		return
	}
	for _, e := range v.Content {
		c.value(at, e, t, false)
	}
}

// pairs calls do for the keys of a mapping.
func (c *checker) pairs(at place, n *yaml.Node, do func(at place, key string, v *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		c.bad(at, "is %s, want keys and values", kindOf(n))
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		here := at.key(key.Value, n.Content[i].Line)
		switch line := first[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			c.bad(place{at.path, n.Content[i].Line}, "has a key that is %s, want text", kindOf(key))
			continue
		case line != 0:
			c.problems = append(c.problems,
				Problem{Line: here.line, Text: fmt.Sprintf("%s: duplicate key, first on line %d", here.path, line)})
			continue
		}
		first[key.Value] = here.line
		do(here, key.Value, n.Content[i+1])
	}
}

// fieldsOf adds the keys of a struct and their types, as the library names them.
func fieldsOf(t reflect.Type, known map[string]reflect.Type) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case strings.Contains(options, "inline"):
			fieldsOf(f.Type, known)
		case name == "":
			known[strings.ToLower(f.Name)] = f.Type
		default:
			known[name] = f.Type
		}
	}
}

func unknown(path string, known []string, key string) string {
	if near := nearest.Word(key, known); near != "" {
		return path + ": unknown key, did you mean " + near + "?"
	}
	return path + ": unknown key, want one of " + strings.Join(known, ", ")
}

// wanted describes how a scalar of a type is written.
func wanted(t reflect.Type) string {
	switch k := t.Kind(); {
	case t == durationType:
		return "a duration such as 15m or 30s"
	case k == reflect.Bool:
		return "true or false"
	case isWhole(t):
		return "a whole number"
	case k == reflect.Float32 || k == reflect.Float64:
		return "a number"
	}
	return "text"
}

// kindOf describes a node without its value.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys and values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!int" || n.Tag == "!!float":
		return "a number"
	case n.Tag == "!!bool":
		return "true or false"
	}
	return "text"
}

// maxQuoted bounds a value in an error, in bytes.
const maxQuoted = 60

// quoted returns a scalar as written in the file.
func quoted(n *yaml.Node) string {
	v := text.Cut(n.Value, maxQuoted)
	if n.Tag == "!!str" {
		return strconv.Quote(v)
	}
	return v
}
