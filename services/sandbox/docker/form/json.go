package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// maxDepth and maxValues bound a body, which takes many times its size when it is decoded. The driver's have a few
// hundred values.
const (
	maxDepth  = 16
	maxValues = 4096
)

// decode reads a whole body as maps, lists and values. Unlike encoding/json, it refuses duplicate names.
func decode(body []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	left := maxValues
	v, err := value(d, maxDepth, &left)
	if err != nil {
		return nil, fmt.Errorf("the body: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the body: something follows the JSON object")
	}
	return v, nil
}

func value(d *json.Decoder, depth int, left *int) (any, error) {
	if *left--; *left < 0 {
		return nil, fmt.Errorf("more than %d values", maxValues)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	open, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	if depth == 0 {
		return nil, errors.New("nested too deeply")
	}
	object, list := map[string]any{}, []any{}
	for d.More() {
		var name string
		if open == '{' {
			t, err := d.Token()
			if err != nil {
				return nil, err
			}
			name, _ = t.(string) // nothing else can be a name
			if _, twice := object[name]; twice {
				return nil, fmt.Errorf("duplicate name %q", name)
			}
		}
		v, err := value(d, depth-1, left)
		if err != nil {
			return nil, err
		}
		if open == '{' {
			object[name] = v
		} else {
			list = append(list, v)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if open == '{' {
		return object, nil
	}
	return list, nil
}

// same compares a body with the one that the driver makes, and returns that one.
func same(got any, want any) ([]byte, error) {
	made, err := json.Marshal(want)
	if err != nil {
		return nil, err
	}
	expected, err := decode(made)
	if err != nil {
		return nil, err
	}
	if at := differ("", got, expected); at != "" {
		return nil, fmt.Errorf("%s is not as the driver of this version makes it", at)
	}
	return made, nil
}

// differ returns the place of the first difference, or nothing.
func differ(at string, got, want any) string {
	switch want := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return name(at)
		}
		for _, k := range slices.Sorted(maps.Keys(g)) {
			if _, known := want[k]; !known {
				return name(at + "." + k)
			}
		}
		for _, k := range slices.Sorted(maps.Keys(want)) {
			v, there := g[k]
			if !there {
				return name(at + "." + k)
			}
			if d := differ(at+"."+k, v, want[k]); d != "" {
				return d
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(want) {
			return name(at)
		}
		for i := range want {
			if d := differ(fmt.Sprintf("%s[%d]", at, i), g[i], want[i]); d != "" {
				return d
			}
		}
		return ""
	}
	if got != want { // strings, numbers as they are written, booleans, null
		return name(at)
	}
	return ""
}

// name is a place, for people. It is bounded, as the client may have written it.
func name(at string) string {
	if at == "" {
		return "the body"
	}
	return fmt.Sprintf("%.200q", at[1:])
}
