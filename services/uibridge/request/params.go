package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/strictjson"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/uibridge/contract"
)

// Param is a parameter's name, and a pointer for its value, which is not changed if the
// parameter is missing.
type Param struct {
	Name string
	Into any
	Must bool // it must not be missing or null
}

// Decode reads parameters: a JSON object, an array of values in the order of params, or
// nothing. The error is a [contract.Error] whose Field is the parameter.
func Decode(raw json.RawMessage, params ...Param) error {
	values, err := split(raw, params)
	if err != nil {
		return err
	}
	for i, p := range params {
		v := values[i]
		if len(v) == 0 || string(v) == "null" {
			if p.Must {
				return contract.Invalid(p.Name, "missing; send "+kind(p.Into))
			}
			continue
		}
		if err := strict(v, p.Into); err != nil {
			return contract.Invalid(field(p.Name, err), "want "+kind(p.Into)+detail(err))
		}
	}
	return nil
}

// split returns the value of each parameter, nil if it has none.
func split(raw json.RawMessage, params []Param) ([]json.RawMessage, error) {
	values := make([]json.RawMessage, len(params))
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0:
		return values, nil
	case raw[0] == '[':
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, broken(err)
		}
		if len(list) > len(params) {
			return nil, contract.Invalid("params", fmt.Sprintf(
				"got %d values; send at most %d: %s", len(list), len(params), names(params)))
		}
		copy(values, list)
	default:
		// Decoded into a map, because names are case-sensitive here.
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, broken(err)
		}
		if err := strictjson.Names(raw, &struct{}{}); err != nil { // a duplicate name
			return nil, contract.Invalid("params", err.Error())
		}
		for name, v := range object {
			i := slices.IndexFunc(params, func(p Param) bool { return p.Name == name })
			if i < 0 {
				return nil, contract.Invalid(clip(name), fmt.Sprintf(
					"unknown parameter %.64q; available: %s", name, names(params)))
			}
			values[i] = v
		}
	}
	return values, nil
}

// Encoded checks that the body is one JSON value with nothing after it, or empty. The error
// says what is wrong with it.
func Encoded(body []byte) (json.RawMessage, error) {
	if body = bytes.TrimSpace(body); len(body) > 0 && !json.Valid(body) {
		var v any
		return nil, broken(json.Unmarshal(body, &v))
	}
	return body, nil
}

func broken(err error) error {
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return contract.Invalid("params", "want a JSON object, not "+withArticle(t.Value))
	}
	return contract.Invalid("params", "want a JSON object: "+err.Error())
}

// withArticle returns "an array" for the kind of JSON value "array".
func withArticle(kind string) string {
	if strings.HasPrefix(kind, "a") || strings.HasPrefix(kind, "o") {
		return "an " + kind
	}
	return "a " + kind
}

// strict decodes a valid JSON value and refuses unknown fields.
func strict(v json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(v))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

const unknownField = "json: unknown field "

// field returns the path of the wrong field.
func field(name string, err error) string {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) && t.Field != "" {
		return name + "." + t.Field
	}
	if f, ok := strings.CutPrefix(err.Error(), unknownField); ok {
		return name + "." + clip(strings.Trim(f, `"`))
	}
	return name
}

func detail(err error) string {
	var t *json.UnmarshalTypeError
	switch {
	case errors.As(err, &t):
		return ", not " + withArticle(t.Value)
	case strings.HasPrefix(err.Error(), unknownField):
		return " without this field"
	}
	return ": " + err.Error()
}

// kind describes the values that fit into a pointer.
func kind(into any) string {
	switch into.(type) {
	case *string, **string:
		return "a string"
	case *bool, **bool:
		return "true or false"
	case *int:
		return "a whole number"
	case *uint64:
		return "a non-negative integer"
	case *[]string:
		return "an array of strings"
	case *[]provider.File:
		return "an array of {ref, media_type, bytes, name?}"
	}
	return "an object"
}

func names(params []Param) string {
	if len(params) == 0 {
		return "none"
	}
	out := make([]string, len(params))
	for i, p := range params {
		out[i] = p.Name
	}
	return strings.Join(out, ", ")
}

// clip shortens a name that is sent back to its caller. It never returns "".
func clip(s string) string {
	if s == "" {
		return "params"
	}
	return text.Cut(s, 64)
}
