package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Decode reads one JSON value in which an unknown field is an error, and so is anything that
// follows. The error is explained.
func Decode(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return errors.New(Explain(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return nil
}

// Explain says in the sender's terms, by fields and kinds of values and without Go types,
// what an error of this package or of encoding/json is about: "limit: got string, want a
// whole number".
func Explain(err error) string {
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return fmt.Sprintf("%s: got %s, want %s", wrong.Field, wrong.Value, kind(wrong.Type))
	case errors.As(err, &wrong):
		return fmt.Sprintf("got %s, want %s", wrong.Value, kind(wrong.Type))
	case errors.As(err, &syntax):
		return fmt.Sprintf("not JSON: %s (at byte %d)", syntax, syntax.Offset)
	case errors.Is(err, io.EOF):
		return "it is empty"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "not JSON: unexpected end"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

func kind(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number that is not negative"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	}
	return "an object"
}
