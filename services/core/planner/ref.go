package planner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrReference is wrapped by every error about a ${step.field} that cannot be resolved.
var ErrReference = errors.New("unresolvable reference")

var reference = regexp.MustCompile(`\$\{([A-Za-z0-9_-]+)((?:\.[A-Za-z0-9_-]+)*)\}`)

// References returns the ids of the steps that [Resolve] would look up, without
// duplicates: arrays in order, objects in the order of their keys. It ignores ids for
// which known returns false: "${HOME}" in a shell command is text.
func References(args json.RawMessage, known func(id string) bool) []string {
	if !bytes.Contains(args, []byte("${")) {
		return nil
	}
	tree, err := decode(args)
	if err != nil {
		return nil
	}
	var ids []string
	eachText(tree, func(s string) {
		for _, m := range reference.FindAllStringSubmatch(s, -1) {
			if known(m[1]) && !slices.Contains(ids, m[1]) {
				ids = append(ids, m[1])
			}
		}
	})
	return ids
}

func eachText(v any, visit func(string)) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			eachText(v[k], visit)
		}
	case []any:
		for _, x := range v {
			eachText(x, visit)
		}
	case string:
		visit(v)
	}
}

// MaxResolved bounds the total size of the values of all references of one call, in
// bytes: a short text may refer to a long result many times.
const MaxResolved = 1 << 20

// Resolve replaces every reference in args with its value. A string that consists of
// one reference becomes the value with its type; a reference inside a longer string
// becomes text. value returns the data of a finished step, and false for an id that is
// not a step. References inside values are not resolved.
func Resolve(args json.RawMessage, value func(id string) (json.RawMessage, bool)) (json.RawMessage, error) {
	if !bytes.Contains(args, []byte("${")) {
		return args, nil
	}
	tree, err := decode(args)
	if err != nil {
		return nil, fmt.Errorf("arguments are not JSON: %w", err)
	}
	r := resolver{value: value, steps: map[string]any{}, left: MaxResolved}
	tree = r.walk(tree)
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	out, err := encode(tree)
	if err != nil {
		return nil, fmt.Errorf("encoding resolved arguments: %w", err)
	}
	return out, nil
}

type resolver struct {
	value func(id string) (json.RawMessage, bool)
	steps map[string]any // decoded data, by id
	left  int
	errs  []error
}

func (r *resolver) walk(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			v[k] = r.walk(v[k])
		}
	case []any:
		for i, x := range v {
			v[i] = r.walk(x)
		}
	case string:
		return r.text(v)
	}
	return v
}

func (r *resolver) text(s string) any {
	if m := reference.FindStringSubmatchIndex(s); m != nil && m[0] == 0 && m[1] == len(s) {
		v, ok := r.lookup(s[m[2]:m[3]], s[m[4]:m[5]], s)
		if !ok {
			return s
		}
		if _, fits := r.spend(v, s); !fits {
			return s
		}
		return v
	}
	return reference.ReplaceAllStringFunc(s, func(ref string) string {
		m := reference.FindStringSubmatch(ref)
		v, ok := r.lookup(m[1], m[2], ref)
		if !ok {
			return ref
		}
		text, _ := r.spend(v, ref)
		return text
	})
}

// spend returns the value as text, unless it exceeds the remaining size.
func (r *resolver) spend(v any, ref string) (text string, fits bool) {
	if r.left < 0 {
		return ref, false
	}
	text, isText := v.(string)
	if !isText {
		b, err := encode(v)
		if err != nil {
			r.errs = append(r.errs, fmt.Errorf("%w: %s: %w", ErrReference, ref, err))
			return ref, false
		}
		text = string(b)
	}
	if r.left -= len(text); r.left < 0 {
		r.errs = append(r.errs,
			fmt.Errorf("%w: %s: the values of all references together exceed %d bytes", ErrReference, ref, MaxResolved))
		return ref, false
	}
	return text, true
}

func (r *resolver) data(id, ref string) (any, bool) {
	if v, known := r.steps[id]; known {
		return v, true
	}
	data, known := r.value(id)
	if !known {
		return nil, false
	}
	v, err := decode(data)
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("%w: %s: step %q did not return JSON", ErrReference, ref, id))
		return nil, false
	}
	r.steps[id] = v
	return v, true
}

func (r *resolver) lookup(id, path, ref string) (any, bool) {
	v, known := r.data(id, ref)
	if !known {
		return nil, false
	}
	for _, field := range strings.Split(strings.TrimPrefix(path, "."), ".") {
		if field == "" {
			break
		}
		next, ok := step(v, field)
		if !ok {
			r.errs = append(r.errs, fmt.Errorf("%w: %s: the result of step %q has no %q", ErrReference, ref, id, field))
			return nil, false
		}
		v = next
	}
	return v, true
}

func step(v any, field string) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		x, ok := v[field]
		return x, ok
	case []any:
		i, err := strconv.Atoi(field)
		if err != nil || i < 0 || i >= len(v) {
			return nil, false
		}
		return v[i], true
	}
	return nil, false
}

// decode keeps numbers as they are written.
func decode(b []byte) (any, error) {
	if len(b) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return v, nil
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
