package proposal

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// Field is a field of a call's arguments, exactly as sent.
type Field struct {
	Name string
	Raw  json.RawMessage
	Text *string // if the value is a string
}

// Fields returns an object's fields in their order. It reports false if the arguments
// are not an object, or if some readers could take two names for the same: they must
// then be shown unchanged.
func Fields(args json.RawMessage) ([]Field, bool) {
	d := json.NewDecoder(bytes.NewReader(args))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	var out []Field
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, false
		}
		f := Field{Name: name}
		if d.Decode(&f.Raw) != nil ||
			slices.ContainsFunc(out, func(o Field) bool { return strings.EqualFold(o.Name, name) }) {
			return nil, false
		}
		var text string
		if f.Raw[0] == '"' && json.Unmarshal(f.Raw, &text) == nil {
			f.Text = &text
		}
		out = append(out, f)
	}
	_, err := d.Token()
	if err != nil {
		return nil, false
	}
	_, err = d.Token()
	return out, err == io.EOF
}

// Object writes fields exactly as they were sent.
func Object(fs []Field) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range fs {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(f.Name) // a string
		b.Write(name)
		b.WriteByte(':')
		b.Write(f.Raw)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// Without returns the fields that have other names.
func Without(fs []Field, names ...string) []Field {
	return slices.DeleteFunc(slices.Clone(fs), func(f Field) bool { return slices.Contains(names, f.Name) })
}

// Text returns the text of a field whose value is a string.
func Text(fs []Field, name string) (string, bool) {
	i := slices.IndexFunc(fs, func(f Field) bool { return f.Name == name && f.Text != nil })
	if i < 0 {
		return "", false
	}
	return *fs[i].Text, true
}
