package offline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"gopkg.in/yaml.v3"
)

type tmplFuncs = template.FuncMap

// tmpl is a template, or a constant text if it has no placeholders.
type tmpl struct {
	text string             // as written
	t    *template.Template // nil: constant
}

func newTmpl(name, text string, funcs tmplFuncs) (*tmpl, error) {
	if !strings.Contains(text, "{{") {
		return &tmpl{text: text}, nil
	}
	t, err := template.New(name).Funcs(funcs).Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, err
	}
	return &tmpl{text: text, t: t}, nil
}

// uses reports whether the template mentions a variable; nil means any template.
func (t *tmpl) uses(variable string) bool {
	return t == nil || t.t != nil && strings.Contains(t.text, variable)
}

func (t *tmpl) render(vars map[string]any) (string, error) {
	if t == nil {
		return "", nil
	}
	if t.t == nil {
		return t.text, nil
	}
	var b strings.Builder
	if err := t.t.Execute(&b, vars); err != nil {
		return "", err
	}
	return b.String(), nil
}

func newFuncs(tables map[string]map[string]string) tmplFuncs {
	return tmplFuncs{
		"lookup": func(table, key string) (string, error) {
			t, ok := tables[table]
			if !ok {
				return "", fmt.Errorf("unknown table %q", table)
			}
			if v, ok := t[strings.ToLower(strings.TrimSpace(key))]; ok {
				return v, nil
			}
			return key, nil
		},
		"pick":    pick,
		"show":    show,
		"fence":   fence,
		"formula": formula,
		"list":    func(v any) []any { l, _ := v.([]any); return l },
		"has":     func(v any, key string) bool { m, _ := v.(map[string]any); _, ok := m[key]; return ok },
		"get":     get,
		"trim":    strings.TrimSpace,
		"repeat":  repeat,
		"moment":  moment,
		"offered": func(tools []string, names ...string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(tools, n) })
		},
		"unquote": func(s string) string { return strings.Trim(strings.TrimSpace(s), "\"'`“”‘’") },
		"json": func(v any) (string, error) {
			b, err := json.Marshal(v)
			return string(b), err
		},
	}
}

// get returns a field; a missing field is an error, and the result is then phrased by
// the default.
func get(v any, key string) (any, error) {
	m, _ := v.(map[string]any)
	x, ok := m[key]
	if !ok {
		return nil, fmt.Errorf("unknown field %q", key)
	}
	return x, nil
}

// pick returns the first of the named fields that data has, or data itself, as text.
func pick(data any, fields ...string) string {
	if m, ok := data.(map[string]any); ok {
		for _, f := range fields {
			if v, ok := m[f]; ok {
				return show(v)
			}
		}
	}
	return show(data)
}

// show formats a value for people: text as it is, anything else as JSON.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}

// fence puts text into a Markdown code block that it cannot end.
func fence(text string) string {
	marks := "```"
	for strings.Contains(text, marks) {
		marks += "`"
	}
	return marks + "\n" + strings.TrimRight(text, "\n") + "\n" + marks
}

// moment formats an RFC 3339 time for people; anything else stays as it is.
func moment(s string) string {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return s
	}
	return t.Format("Monday, 2 January 2006, 15:04:05")
}

// maxRepeat bounds what the repeat function writes, in bytes.
const maxRepeat = 8 << 20

func repeat(s, times string) (string, error) {
	n, err := strconv.Atoi(times)
	if err != nil || n < 0 || n*len(s) > maxRepeat {
		return "", fmt.Errorf("repeat: want a number of times, got %q; the result is limited to %d bytes", times, maxRepeat)
	}
	return strings.Repeat(s, n), nil
}

var spoken = strings.NewReplacer(
	" plus ", " + ", " minus ", " - ", " times ", " * ", " multiplied by ", " * ", " divided by ", " / ",
	" over ", " / ", " to the power of ", " ^ ", " mod ", " % ", "×", "*", "÷", "/", "−", "-",
)

// formula replaces spoken arithmetic with operators.
func formula(s string) string { return spoken.Replace(strings.TrimSpace(s)) }

// value is a tree of JSON whose strings are templates.
type value struct {
	raw    []byte // a constant
	text   *tmpl
	keys   [][]byte // of an object, encoded, in the order of the file
	items  []*value
	object bool
}

func (c *compiler) value(where string, n *yaml.Node) *value {
	switch n.Kind {
	case yaml.MappingNode:
		v := &value{object: true}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			v.keys = append(v.keys, c.encode(where, key))
			v.items = append(v.items, c.value(where+"."+key, n.Content[i+1]))
		}
		return v
	case yaml.SequenceNode:
		v := &value{}
		for i, item := range n.Content {
			v.items = append(v.items, c.value(fmt.Sprintf("%s[%d]", where, i), item))
		}
		return v
	case yaml.ScalarNode:
		if n.Tag == "!!str" {
			if strings.Contains(n.Value, "{{") {
				return &value{text: c.template(where, n.Value)}
			}
			return &value{raw: c.encode(where, n.Value)}
		}
		var x any
		if err := n.Decode(&x); err != nil {
			c.fail(where, "%v", err)
		}
		return &value{raw: c.encode(where, x)}
	}
	c.fail(where, "want text, a number, a list or a mapping")
	return &value{raw: []byte("null")}
}

func (c *compiler) encode(where string, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		c.fail(where, "%v", err)
	}
	return b
}

var errNilValue = errors.New("a value is missing")

func (v *value) appendJSON(b []byte, vars map[string]any) ([]byte, error) {
	switch {
	case v == nil:
		return nil, errNilValue
	case v.raw != nil:
		return append(b, v.raw...), nil
	case v.text != nil:
		s, err := v.text.render(vars)
		if err != nil {
			return nil, err
		}
		enc, err := json.Marshal(s)
		return append(b, enc...), err
	}
	open, end := byte('['), byte(']')
	if v.object {
		open, end = '{', '}'
	}
	b = append(b, open)
	var err error
	for i, item := range v.items {
		if i > 0 {
			b = append(b, ',')
		}
		if v.object {
			b = append(append(b, v.keys[i]...), ':')
		}
		if b, err = item.appendJSON(b, vars); err != nil {
			return nil, err
		}
	}
	return append(b, end), nil
}
