// Package strictjson decodes JSON objects of other processes as their schemas define them:
// names are case-sensitive and unique. encoding/json accepts names in any case, and uses the
// last of two equal names, so its result may differ from what another program has decoded,
// checked or shown.
package strictjson

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// Unmarshal calls [Names] and then [json.Unmarshal].
func Unmarshal(data []byte, v any) error {
	if err := Names(data, v); err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// Names checks the names in the outermost object of data. v is a pointer to the struct that
// data will be decoded into. A duplicate name is an error, and so is one that differs from a
// field's name only in case. Data that is not a JSON object is not an error here: decoding
// it fails.
func Names(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil //nolint:nilerr // decoding returns a better error
	}
	fields := fieldsOf(reflect.TypeOf(v).Elem())
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return nil //nolint:nilerr // decoding returns a better error
		}
		name, _ := t.(string)
		if seen[name] {
			return fmt.Errorf("duplicate field %.80q", name)
		}
		seen[name] = true
		for _, field := range fields {
			if field != name && strings.EqualFold(field, name) { // as encoding/json compares
				return fmt.Errorf("unknown field %q: names are case-sensitive, want %q", name, field)
			}
		}
	}
	return nil
}

var known sync.Map // reflect.Type -> []string

// fieldsOf returns the names of a struct's fields.
func fieldsOf(t reflect.Type) []string {
	if names, ok := known.Load(t); ok {
		return names.([]string)
	}
	var names []string
	if t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.IsExported() && name != "-" && (name != "" || !f.Anonymous) {
				names = append(names, cmp.Or(name, f.Name))
			}
		}
	}
	known.Store(t, names)
	return names
}
