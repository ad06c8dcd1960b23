package request_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

type values struct {
	text string
	flag bool
	n    uint64
	list []string
	deep struct{ A int }
}

func (v *values) params() []request.Param {
	return []request.Param{
		{Name: "text", Into: &v.text, Must: true},
		{Name: "flag", Into: &v.flag},
		{Name: "n", Into: &v.n},
		{Name: "list", Into: &v.list},
		{Name: "deep", Into: &v.deep},
	}
}

func TestParametersByNameAndByPlace(t *testing.T) {
	for _, raw := range []string{
		`{"text":"x","flag":true,"n":18446744073709551615,"list":["a"],"deep":{"A":1}}`,
		` ["x", true, 18446744073709551615, ["a"], {"A":1}] `,
	} {
		var v values
		if err := request.Decode(json.RawMessage(raw),
			v.params()...); err != nil || v.text != "x" || !v.flag || v.n != 1<<64-1 || len(v.list) != 1 || v.deep.A != 1 {
			t.Errorf("%s is read as %+v, %v", raw, v, err)
		}
	}
}

func TestTheFieldOfWhatIsWrongIsNamed(t *testing.T) {
	for raw, field := range map[string]string{
		``: "text", `{}`: "text", `[]`: "text", `[null]`: "text", `{"text":null}`: "text", `{"text":1}`: "text",
		`{"text":"x","TEXT":"y"}`: "TEXT",
		`["x",1]`:                 "flag", `["x",null,-1]`: "n", `["x",null,1.5]`: "n", `["x",null,1e30]`: "n",
		`["x",null,null,[1]]`:            "list",
		`["x",null,null,null,{"B":1}]`:   "deep.B",
		`["x",null,null,null,{"A":"b"}]`: "deep.A", `["x",null,null,null,{},0]`: "params", `"x"`: "params", `7`: "params",
		`{`: "params", `{"text":"x"}}`: "params",
	} {
		var v values
		var e *contract.Error
		if err := request.Decode(json.RawMessage(raw),
			v.params()...); !errors.As(err, &e) || e.Code != contract.CodeInvalid || e.Field != field || e.Message == "" {
			t.Errorf("%s is refused with %+v, want the field %s", raw, err, field)
		}
	}
}

func TestWhatFitsIsNamed(t *testing.T) {
	for want, into := range map[string]any{
		"a string": new(string), "true or false": new(bool), "a whole number": new(int),
		"a non-negative integer": new(uint64),
		"an array of strings":    new([]string), "an object": new(struct{}),
	} {
		var e *contract.Error
		raw := json.RawMessage(`{"x":7.5}`)
		if err := request.Decode(raw, request.Param{Name: "x", Into: into}); !errors.As(err, &e) ||
			!strings.Contains(e.Message, "want "+want) {
			t.Errorf("7.5 for %T is refused with %v, want %q", into, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"text":"x"}`, `["x",true,1,["a"],{"A":1}]`, `{"text":{"text":[]}}`, `null`, `[`, ` {"a":1,"a":2}`, "[\"\xff\"]",
		`{"":0}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var v values
		err := request.Decode(raw, v.params()...)
		var e *contract.Error
		switch {
		case err == nil && !json.Valid(raw):
			t.Fatal("what is no JSON was read")
		case err != nil && (!errors.As(err, &e) || e.Field == "" || len(e.Field) > 200):
			t.Fatalf("refused with %#v", err)
		}
	})
}

func TestWhereAnAttachmentIsTo(t *testing.T) {
	here := request.Origin{Ref: subject.Ref{Agent: "main", Session: "s"}}
	nowhere := request.Origin{Ref: subject.Ref{Agent: "main"}}
	for _, k := range []struct {
		raw   string
		o     request.Origin
		agent subject.Agent
		to    subject.Session // empty: a fresh one
	}{
		{``, here, "main", "s"},
		{`{"after":"3.0"}`, here, "main", "s"},
		{`{"agent":"main"}`, here, "main", "s"},
		{`{"session":"t"}`, here, "main", "t"},
		{`{"agent":"other","session":"t"}`, here, "other", "t"},
		{`{"agent":"other"}`, here, "other", ""},
		{``, nowhere, "main", ""},
	} {
		a, err := request.Attachment(json.RawMessage(k.raw), k.o)
		if err != nil || a.Ref.Agent != k.agent || k.to != "" && a.Ref.Session != k.to ||
			k.to == "" && (a.Ref.Session == "" || a.Ref.Session == "s") {
			t.Errorf("%s from %v attaches to %v, %v", k.raw, k.o.Ref, a.Ref, err)
		}
	}
	a, err := request.FromQuery(url.Values{"after": {"1.0"}, "html": {"1"}, "commits": {"0"}}, here, "after", "html",
		"commits")
	if err != nil || a.Ref != here.Ref || a.After != "1.0" || !a.HTML || a.Commits {
		t.Errorf("attaches to %+v, %v", a, err)
	}
}

func TestFreshSessionsAreIdsAndDiffer(t *testing.T) {
	a, b := request.Fresh(), request.Fresh()
	if a == b || !subject.Valid(a) || !subject.Valid(b) {
		t.Errorf("they are %s and %s", a, b)
	}
}
