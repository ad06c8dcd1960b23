package strictjson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"skandha.dev/pkg/strictjson"
)

func TestExplain(t *testing.T) {
	for body, want := range map[string]string{
		`"x"`:                   "got string, want an object",
		`[]`:                    "got array, want an object",
		`{"limit":"ten"}`:       "limit: got string, want a whole number",
		`{"limit":1.5}`:         "limit: got number 1.5, want a whole number",
		`{"size":-1}`:           "size: got number -1, want a whole number that is not negative",
		`{"in":{"names":7}}`:    "in.names: got number, want an array",
		`{"in":{"names":[{}]}}`: "in.names: got object, want a string",
		`{"all":1}`:             "all: got number, want true or false",
		`{"more":1}`:            `unknown field "more"`,
		`{"limit":`:             "not JSON: unexpected end",
		`{"limit":x}`:           "not JSON: invalid character 'x' looking for beginning of value (at byte 10)",
		``:                      "it is empty",
	} {
		var into struct {
			Limit int     `json:"limit"`
			Size  *uint64 `json:"size"`
			All   bool    `json:"all"`
			In    struct {
				Names []string `json:"names"`
			} `json:"in"`
		}
		d := json.NewDecoder(strings.NewReader(body))
		d.DisallowUnknownFields()
		err := d.Decode(&into)
		if err == nil {
			t.Fatalf("%s is fine", body)
		}
		if got := strictjson.Explain(err); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}
