package strictjson_test

import (
	"strings"
	"testing"

	"skandha.dev/pkg/strictjson"
)

type inner struct {
	Agent string `json:"agent"`
}

type answer struct {
	inner
	Approved bool           `json:"approved"`
	Hash     string         `json:"hash,omitempty"`
	Plain    int            // without a tag
	More     map[string]any `json:"more"`
	Hidden   int            `json:"-"`
}

func TestUnmarshal(t *testing.T) {
	for text, want := range map[string]string{
		`{"approved":true,"hash":"h","agent":"a","Plain":1}`:     "",
		`{"approved":true,"other":1,"more":{"x":1,"X":2,"x":3}}`: "",
		`{"approved":false,"Approved":true}`:                     `"Approved": names are case-sensitive, want "approved"`,
		`{"APPROVED":true}`:                                      `want "approved"`,
		`{"approved":false,"approved":true}`:                     `duplicate field "approved"`,
		`{"approved":false,"appro\u0076ed":true}`:                `duplicate field "approved"`,
		`{"Agent":"a"}`:                       `want "agent"`,
		`{"plain":1}`:                         `want "Plain"`,
		`{"haſh":"h"}`:                        `want "hash"`,
		`{"x":1,"x":2}`:                       `duplicate field "x"`,
		`{"approved":true`:                    "unexpected end",
		`[{"approved":true,"approved":true}]`: "cannot unmarshal array",
		`{"approved":"yes"}`:                  "cannot unmarshal string",
	} {
		var a answer
		err := strictjson.Unmarshal([]byte(text), &a)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if want == "" && !a.Approved {
			t.Errorf("%s: %+v", text, a)
		}
	}
}
