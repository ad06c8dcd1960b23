package plugin

import (
	"context"
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

type inner struct {
	City string `json:"city"`
	Zip  string `json:"zip,omitempty"`
}

type Paging struct {
	Limit int `json:"limit" default:"10"`
}

type level int8

type node struct {
	Children []node `json:"children"`
}

type left struct{ Right *right }

type right struct{ Left *left }

type ownJSON struct{ X int }

func (*ownJSON) UnmarshalJSON([]byte) error { return nil }

func schemaCase[A any](name, want string) (string, func() (json.RawMessage, error), string) {
	return name, schemaFor[A], want
}

func TestSchemaFollowsFromTheStruct(t *testing.T) {
	check := func(name string, of func() (json.RawMessage, error), want string) {
		t.Run(name, func(t *testing.T) {
			got, err := of()
			if err != nil {
				t.Fatal(err)
			}
			if !sameJSON(t, got, want) {
				t.Errorf("%s\nwant %s", got, want)
			}
		})
	}
	object := func(props string, required ...string) string {
		s := `{"type":"object","additionalProperties":false,"properties":{` + props + `}`
		if len(required) > 0 {
			s += `,"required":["` + strings.Join(required, `","`) + `"]`
		}
		return s + `}`
	}
	check(schemaCase[struct{}]("no arguments", object("")))
	check(schemaCase[json.RawMessage]("any arguments", `{"type":"object"}`))
	check(schemaCase[any]("any arguments, decoded", `{"type":"object"}`))
	check(schemaCase[map[string]any]("a map", `{"type":"object"}`))
	check(schemaCase[map[string]int32]("a map of numbers",
		`{"type":"object","additionalProperties":{"type":"integer","minimum":-2147483648,"maximum":2147483647}}`))
	check(schemaCase[*inner]("a pointer to a struct", object(`"city":{"type":"string"},"zip":{"type":"string"}`, "city")))
	check(schemaCase[struct {
		B bool
		S string
		F float64
		I int
		L level
		U uint
		W uint16
	}]("kinds", object(`"B":{"type":"boolean"},"S":{"type":"string"},"F":{"type":"number"},"I":{"type":"integer"},
		"L":{"type":"integer","minimum":-128,"maximum":127},"U":{"type":"integer","minimum":0},
		"W":{"type":"integer","minimum":0,"maximum":65535}`, "B", "S", "F", "I", "L", "U", "W")))
	check(schemaCase[struct {
		A []string         `json:"a"`
		B [2]float32       `json:"b"`
		C []byte           `json:"c"`
		D map[string][]int `json:"d"`
		E []inner          `json:"e"`
	}]("collections", object(`"a":{"type":"array","items":{"type":"string"}},
		"b":{"type":"array","items":{"type":"number"},"minItems":2,"maxItems":2},
		"c":{"type":"string","contentEncoding":"base64"},
		"d":{"type":"object","additionalProperties":{"type":"array","items":{"type":"integer"}}},
		"e":{"type":"array","items":`+object(`"city":{"type":"string"},"zip":{"type":"string"}`, "city")+`}`, "a", "b", "c",
		"d", "e")))
	check(schemaCase[struct {
		At  time.Time       `json:"at"`
		Raw json.RawMessage `json:"raw"`
		Any any             `json:"any"`
		N   json.Number     `json:"n"`
		IP  netip.Addr      `json:"ip"`
		Own ownJSON         `json:"own"`
	}]("types with a custom encoding",
		object(`"at":{"type":"string","format":"date-time"},"raw":{},"any":{},"n":{"type":"number"},
		"ip":{"type":"string"},"own":{}`, "at", "raw", "any", "n", "ip", "own")))
	check(schemaCase[struct {
		A string  `json:"a"`
		B string  `json:"b,omitempty"`
		C *string `json:"c"`
		D string  `json:"d" default:"x"`
		E string  `json:"e" required:"false"`
		F *string `json:"f,omitempty" required:"true"`
		G int     `json:"g,omitzero"`
		H string  `json:"-"`
		i string
	}]("what is required",
		object(`"a":{"type":"string"},"b":{"type":"string"},"c":{"type":"string"},"d":{"type":"string","default":"x"},
		"e":{"type":"string"},"f":{"type":"string"},"g":{"type":"integer"}`, "a", "f")))
	check(schemaCase[struct {
		A string   `json:"a" desc:"what, and \"why\"" enum:"one, two" default:"two" min:"1" max:"9"`
		B int      `json:"b" enum:"1,2" default:"1" min:"0" max:"2"`
		C []string `json:"c" enum:"x,y" default:"[\"x\"]" min:"1" max:"2"`
		D *bool    `json:"d" default:"true"`
		E float64  `json:"e" min:"-0.5"`
		F Paging   `json:"f" default:"{\"limit\":3}"`
	}]("tags",
		object(`"a":{"type":"string","description":"what, and \"why\"","enum":["one","two"],"default":"two","minLength":1,"maxLength":9},
		"b":{"type":"integer","enum":[1,2],"default":1,"minimum":0,"maximum":2},
		"c":{"type":"array","items":{"type":"string","enum":["x","y"]},"default":["x"],"minItems":1,"maxItems":2},
		"d":{"type":"boolean","default":true},"e":{"type":"number","minimum":-0.5},
		"f":`+strings.TrimSuffix(object(`"limit":{"type":"integer","default":10}`), "}")+`,"default":{"limit":3}}`, "e")))
	check(schemaCase[struct {
		Paging
		*inner
		Named Paging `json:"named"`
		City  int    `json:"city"`
	}]("embedding; the outer field hides the inner",
		object(`"limit":{"type":"integer","default":10},"zip":{"type":"string"},
		"named":`+object(`"limit":{"type":"integer","default":10}`)+`,"city":{"type":"integer"}`, "named", "city")))
	check(schemaCase[struct{ A, B inner }]("the same type twice is no recursion", object(
		`"A":`+object(`"city":{"type":"string"},"zip":{"type":"string"}`, "city")+`,"B":`+
			object(`"city":{"type":"string"},"zip":{"type":"string"}`, "city"), "A", "B")))
}

func TestWhatHasNoSchemaIsNamed(t *testing.T) {
	for want, of := range map[string]func() (json.RawMessage, error){
		"string is not an object":                             schemaFor[string],
		"time.Time is not an object":                          schemaFor[time.Time],
		"field children[]: plugin.node is recursive":          schemaFor[node],
		"field Right.Left: plugin.left is recursive":          schemaFor[left],
		"field F: a func() cannot be read from JSON":          schemaFor[struct{ F func() }],
		"field C: a chan int cannot be read from JSON":        schemaFor[struct{ C chan int }],
		"field A[].B: a complex128 cannot be read from JSON":  schemaFor[struct{ A []struct{ B complex128 } }],
		"field M{}: a uintptr cannot be read":                 schemaFor[struct{ M map[string]uintptr }],
		"field M: map keys are int, want strings":             schemaFor[struct{ M map[int]string }],
		"field W: a time.Duration is a number of nanoseconds": schemaFor[struct{ W time.Duration }],
		"field E: a context.Context cannot be read":           schemaFor[struct{ E context.Context }], //nolint:containedctx // refused
		"struct { plugin.one; plugin.twin } has two fields named \"X\"": schemaFor[struct {
			one
			twin
		}],
		`field n: the json option "string" is not supported`: schemaFor[struct {
			N int `json:"n,string"`
		}],
		`field n: default: "x" is not a valid int`: schemaFor[struct {
			N int `json:"n" default:"x"`
		}],
		`field n: default: "c" is not in the enum a,b`: schemaFor[struct {
			N string `json:"n" enum:"a,b" default:"c"`
		}],
		`field n: enum: "b" is not a valid int`: schemaFor[struct {
			N int `json:"n" enum:"1,b"`
		}],
		`field n: enum is only valid for strings and numbers`: schemaFor[struct {
			N bool `json:"n" enum:"true"`
		}],
		`field n: min: "low" is not a number`: schemaFor[struct {
			N int `json:"n" min:"low"`
		}],
		`field n: max is only valid for numbers, strings and slices`: schemaFor[struct {
			N bool `json:"n" max:"1"`
		}],
		`field n: required is "yes", want "true" or "false"`: schemaFor[struct {
			N bool `json:"n" required:"yes"`
		}],
	} {
		if s, err := of(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v (%s), want %q", err, s, want)
		}
	}
}

type one struct{ X int }

type twin struct{ X int }

func sameJSON(t *testing.T, a []byte, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return reflect.DeepEqual(x, y)
}
