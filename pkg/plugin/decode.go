package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// DecodeManifest decodes a manifest from JSON and checks it. Unknown fields, duplicate
// fields and values of the wrong type are errors, as is everything that [Manifest.Check]
// finds. The error is a [Problems] that lists all of them; the returned manifest then holds
// what could be decoded.
func DecodeManifest(data []byte) (Manifest, error) {
	var m Manifest
	if len(data) > MaxManifest {
		return m, Problems{{Message: fmt.Sprintf("the manifest has %d bytes, at most %d", len(data), MaxManifest)}}
	}
	found := shape(data)
	var mismatch *json.UnmarshalTypeError // shape has found it already, with its path
	if err := json.Unmarshal(data, &m); err != nil && !errors.As(err, &mismatch) {
		return Manifest{}, Problems{{Message: "is not JSON: " + err.Error()}}
	}
	if more, ok := errors.AsType[Problems](m.Check()); ok {
		for _, p := range more {
			if !found.At(p.Path) {
				found = append(found, p)
			}
		}
	}
	if len(found) > 0 {
		return m, found
	}
	return m, nil
}

// shape compares the text of a manifest with its Go type. It reads tokens, because
// json.Unmarshal does not report paths, accepts names in any case, and uses the last of two
// fields with the same name.
func shape(data []byte) Problems {
	if !utf8.Valid(data) {
		return Problems{{Message: "is not UTF-8"}}
	}
	if !json.Valid(data) {
		return nil // the decoder reports where
	}
	s := &shaper{d: json.NewDecoder(bytes.NewReader(data))}
	s.d.UseNumber()
	s.value("", reflect.TypeFor[Manifest]())
	return s.found
}

type shaper struct {
	d     *json.Decoder
	found Problems
}

func (s *shaper) add(path, format string, args ...any) {
	s.found = append(s.found, Problem{path, fmt.Sprintf(format, args...)})
}

// next returns the next token of text that is known to be JSON.
func (s *shaper) next() json.Token {
	t, err := s.d.Token()
	if err != nil && !errors.Is(err, io.EOF) {
		panic(err)
	}
	return t
}

// value reads one value, and reports it if it does not have the type.
func (s *shaper) value(path string, typ reflect.Type) {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ == reflect.TypeFor[json.RawMessage]() {
		s.skip(s.next())
		return
	}
	t := s.next()
	switch got := t.(type) {
	case json.Delim:
		if got == '{' && typ.Kind() == reflect.Struct {
			s.object(path, typ)
			return
		}
		if got == '[' && typ.Kind() == reflect.Slice {
			for i := 0; s.d.More(); i++ {
				s.value(fmt.Sprintf("%s[%d]", path, i), typ.Elem())
			}
			s.next()
			return
		}
	case string:
		if typ.Kind() == reflect.String {
			return
		}
	case bool:
		if typ.Kind() == reflect.Bool {
			return
		}
	case json.Number:
		if s.number(path, got, typ) {
			return
		}
	}
	s.add(path, "is %s, want %s", kindOfToken(t), kindOfType(typ))
	s.skip(t)
}

// number reports whether the type is a number. It adds a problem if n does not fit.
func (s *shaper) number(path string, n json.Number, typ reflect.Type) bool {
	bits := 64
	switch typ.Kind() {
	case reflect.Float64:
		return true
	case reflect.Int32:
		bits = 32
	case reflect.Int64, reflect.Int:
	default:
		return false
	}
	switch v, err := strconv.ParseInt(n.String(), 10, bits); {
	case err != nil && bits == 32:
		s.add(path, "is %s, want a whole number from %d to %d", clip(n.String()), math.MinInt32, math.MaxInt32)
	case err != nil:
		s.add(path, "is %s, want a whole number", clip(n.String()))
	case v == 0 && bits == 64: // a duration, whose zero value means that it is absent
		s.add(path, "is 0, want at least 1; leave it out for the default")
	}
	return true
}

func (s *shaper) object(path string, typ reflect.Type) {
	fields, names := map[string]reflect.Type{}, []string{}
	var required []string
	for f := range typ.Fields() {
		if !f.IsExported() {
			continue
		}
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = f.Type
		names = append(names, name)
		if !strings.Contains(rest, "omit") {
			required = append(required, name)
		}
	}
	seen := map[string]bool{}
	for s.d.More() {
		name, _ := s.next().(string) // names in JSON are strings
		at := clip(below(path, name))
		field, known := fields[name]
		switch {
		case !known:
			s.add(at, "is not a field; want one of %s", strings.Join(names, ", "))
			s.skip(s.next())
		case seen[name]:
			s.add(at, "is a duplicate")
			s.skip(s.next())
		default:
			s.value(at, field)
		}
		seen[name] = true
	}
	s.next()
	for _, name := range required {
		if !seen[name] {
			s.add(below(path, name), "is missing")
		}
	}
}

func below(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// skip reads the rest of the value that began with the token.
func (s *shaper) skip(t json.Token) {
	for depth := 0; ; t = s.next() {
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return
		}
	}
}

func kindOfToken(t json.Token) string {
	switch t := t.(type) {
	case json.Delim:
		if t == '{' {
			return "an object"
		}
		return "a list"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case json.Number:
		return "a number"
	}
	return "null"
}

func kindOfType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	}
	return "a number"
}
