package conformance

import (
	"encoding/json"
	"testing"

	"skandha.dev/pkg/tool"
)

func TestSamplesFitTheirSchemas(t *testing.T) {
	for args, want := range map[string]string{
		`{"type":"object"}`: `[{}]`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string"},"b":{"type":"integer"}}}`:                                   `[{"a":"example"},{"a":"example","b":1}]`,
		`{"city":{"type":"string","required":true}}`:                                                                                       `[{"city":"example"}]`,
		`{"type":"object","required":["n"],"properties":{"n":{"type":"integer","minimum":5,"maximum":9,"multipleOf":4}}}`:                  `[{"n":8}]`,
		`{"type":"object","required":["n"],"properties":{"n":{"type":"number","exclusiveMinimum":0,"maximum":0.5}}}`:                       ``,
		`{"type":"object","required":["d"],"properties":{"d":{"type":"string","format":"date"}}}`:                                          `[{"d":"2026-01-02"}]`,
		`{"type":"object","required":["p"],"properties":{"p":{"type":"string","pattern":"^[A-Z]{2}-(x|y)+$"}}}`:                            `[{"p":"AA-x"}]`,
		`{"type":"object","required":["l"],"properties":{"l":{"type":"array","minItems":2,"items":{"enum":["u","v"]}}}}`:                   `[{"l":["u","u"]}]`,
		`{"type":"object","required":["r"],"properties":{"r":{"$ref":"#/$defs/r"}},"$defs":{"r":{"anyOf":[{"type":"boolean"}]}}}`:          `[{"r":false},{"r":true}]`,
		`{"type":"object","allOf":[{"required":["a"],"properties":{"a":{"const":7}}}]}`:                                                    `[{"a":7}]`,
		`{"type":"object","required":["s"],"properties":{"s":{"type":"string","minLength":9,"maxLength":9}},"additionalProperties":false}`: `[{"s":"exampleaa"}]`,
		`{"type":"object","properties":{"x":{"type":"integer","default":3}}}`:                                                              `[{"x":3}]`,
		`{"type":"object","required":["x"],"properties":{"x":{"not":{}}}}`:                                                                 ``,
		`{"type":"object","required":["x"],"properties":{"x":{"$ref":"#"}}}`:                                                               ``,
	} {
		list, err := samples(tool.Spec{Name: "t", Args: json.RawMessage(args)})
		got := ""
		if err == nil {
			got = string(mustJSON(list))
		}
		if got != want {
			t.Errorf("%s: got %s, %v; want %s", args, got, err, want)
		}
	}
}
