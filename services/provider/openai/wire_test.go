package openai_test

import (
	"encoding/json"
	"image/color"
	"strings"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/openai"
	"skandha.dev/services/test/openaitest"
	"skandha.dev/services/test/providertest"
)

// The result of a call is text in chat completions. Its pictures follow the whole block.
func TestPicturesOfResultsFollowThem(t *testing.T) {
	s := openaitest.New(t)
	pixel := providertest.Picture(t, "plot.png", color.White)
	calls := []contract.ToolCall{{ID: "a", Tool: "x", Args: json.RawMessage(`{}`)}, {ID: "b", Tool: "y", Args: json.RawMessage(`{}`)}}
	first, second := resultOf(calls[0], "1"), resultOf(calls[1], "2")
	first.Files, second.Files = []contract.File{pixel}, []contract.File{pixel}
	talk := []contract.Message{
		says("go"),
		{Role: contract.RoleAssistant, ToolCalls: calls},
		first, second,
		{Role: contract.RoleAssistant, Text: "fine"},
		says("thanks"),
	}
	if _, err := client(t, s).Generate(t.Context(), request(t, talk...), func(string, string) {}); err != nil {
		t.Fatal(err)
	}
	var roles []string
	sent := s.Seen()[0].Messages
	for _, m := range sent {
		roles = append(roles, m.Role)
	}
	if got := strings.Join(roles, " "); got != "user assistant tool tool user assistant user" {
		t.Fatalf("the messages are of %s", got)
	}
	parts := sent[4].Content.Parts
	if len(parts) != 4 || !strings.Contains(parts[0].Text, "plot.png") || !strings.Contains(parts[0].Text, "x (call a)") ||
		!strings.Contains(parts[2].Text, "y (call b)") ||
		!strings.HasPrefix(string(parts[1].ImageURL), `{"url":"data:image/png;base64,`) {
		t.Errorf("the pictures are sent as %+v", parts)
	}
}

// Text needs no list of parts, which not every server knows.
func TestTextFilesAreText(t *testing.T) {
	for _, api := range []openai.API{openai.Chat, openai.Responses} {
		s := openaitest.New(t)
		m := says("look")
		m.Files = []contract.File{{Ref: "a/s/n.csv", MediaType: "text/csv", Data: []byte("a,b")}, {Ref: "a/s/gone.png", MediaType: "image/png", Bytes: 5}}
		if _, err := client(t, s, speaking(api)).Generate(t.Context(), request(t, m), func(string, string) {}); err != nil {
			t.Fatal(err)
		}
		want := "look\n\n[file n.csv, text/csv, 3 bytes]\na,b\n\n" +
			"[file gone.png, image/png, 5 bytes: its content is missing, because it is no longer stored, too large or empty]"
		var got string
		if api == openai.Chat {
			got = s.Seen()[0].Messages[0].Content.Text
		} else {
			var item struct{ Content string }
			if err := json.Unmarshal(s.SeenResponses()[0].Input[0], &item); err != nil {
				t.Fatal(err)
			}
			got = item.Content
		}
		if got != want {
			t.Errorf("%s: sent %q, want %q", api, got, want)
		}
	}
}

// The API refuses a strict schema that breaks its rules, so such a schema is only a wish.
func TestSchemasAreStrictIfTheyCanBe(t *testing.T) {
	const closed = `"additionalProperties":false`
	deep := strings.Repeat(`{"type":"array","items":`, 20) + `{"type":"string"}` + strings.Repeat("}", 20)
	for schema, want := range map[string]bool{
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],` + closed + `}`:                                                         true,
		`{"type":"object","properties":{},"required":[],` + closed + `}`:                                                                                 true,
		`{"type":"object","properties":{"a":{"type":["string","null"],"enum":["x",null]}},"required":["a"],` + closed + `}`:                              true,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"required":["a"],` + closed + `,"$defs":{"x":{"type":"string","pattern":"^x$"}}}`:      true,
		`{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"integer"}}]}},"required":["a"],` + closed + `}`: true,

		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`:                                       false,
		`{"type":"object","properties":{"a":{"type":"string"}},` + closed + `}`:                                         false,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["b"],` + closed + `}`:                        false,
		`{"type":"object","properties":{"a":{}},"required":["a"],` + closed + `}`:                                       false,
		`{"type":"object","properties":{"a":true},"required":["a"],` + closed + `}`:                                     false,
		`{"type":"object","properties":{"a":{"type":"array"}},"required":["a"],` + closed + `}`:                         false,
		`{"type":"object","properties":{"a":{"type":"string","default":"x"}},"required":["a"],` + closed + `}`:          false,
		`{"type":"object","properties":{"a":{"type":"string","format":"uri"}},"required":["a"],` + closed + `}`:         false,
		`{"type":"object","properties":{"a":{"$ref":"https://x.invalid/s"}},"required":["a"],` + closed + `}`:           false,
		`{"type":"object","properties":{"a":{"type":"object","properties":{}}},"required":["a"],` + closed + `}`:        false,
		`{"type":"object","properties":{"a":` + deep + `},"required":["a"],` + closed + `}`:                             false,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],` + closed + `,"oneOf":[{"type":"x"}]}`: false,
		`{"type":"array","items":{"type":"string"}}`:                                                                    false,
		`{"type":"object"}`: false,
		`{}`:                false,
	} {
		for _, api := range []openai.API{openai.Chat, openai.Responses} {
			s := openaitest.New(t)
			req := request(t, says("answer in json"))
			req.Schema = json.RawMessage(schema)
			resp, err := client(t, s, speaking(api)).Generate(t.Context(), req, func(string, string) {})
			if err != nil || resp.TextContent != schema {
				t.Fatalf("%s: %s became %q, %v", api, schema, resp.TextContent, err)
			}
			var strict *bool
			if api == openai.Chat {
				strict = s.Seen()[0].ResponseFormat.JSONSchema.Strict
			} else {
				strict = s.SeenResponses()[0].Text.Format.Strict
			}
			if strict == nil || *strict != want {
				t.Errorf("%s: strict is %v for %s, want %v", api, strict, schema, want)
			}
		}
	}
}
