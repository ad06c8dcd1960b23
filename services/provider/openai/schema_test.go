package openai_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"skandha.dev/services/provider/openai"
	"skandha.dev/services/test/openaitest"
)

// A server without schemas of answers is asked in words instead, from then on at once.
func TestAServerThatRefusesASchemaIsAskedInWords(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`
	for _, why := range []string{
		"This response_format type is unavailable now", "'json_schema' is not supported by this model",
		"Unknown parameter: 'text.format'",
	} {
		for _, api := range []openai.API{openai.Chat, openai.Responses} {
			s := openaitest.New(t)
			a := client(t, s, speaking(api))
			s.Next(func(w http.ResponseWriter, _ *http.Request) {
				openaitest.Refuse(w, http.StatusBadRequest, "invalid_request_error", "", why)
			})
			req := request(t, says("hello"))
			req.System, req.Schema = "Be brief.", json.RawMessage(schema)
			for range 2 {
				resp, err := a.Generate(t.Context(), req, func(string, string) {})
				if err != nil || resp.TextContent != "echo: hello" {
					t.Fatalf("%s: %s: got %+v, %v", api, why, resp, err)
				}
			}
			if n := len(s.Seen()) + len(s.SeenResponses()); n != 3 {
				t.Errorf("%s: %s: %d requests, want 3", api, why, n)
			}
			for _, r := range s.Seen()[min(1, len(s.Seen())):] {
				if text := r.Messages[0].Content.Text; r.ResponseFormat != nil || !strings.HasPrefix(text, "Be brief.\n\n") ||
					!strings.HasSuffix(text, schema) {
					t.Errorf("%s: the second request has the prompt %q, the format %+v", why, text, r.ResponseFormat)
				}
			}
		}
	}
	// Another refusal is the caller's to know.
	s := openaitest.New(t)
	s.Next(func(w http.ResponseWriter, _ *http.Request) {
		openaitest.Refuse(w, http.StatusBadRequest, "invalid_request_error", "", "temperature is too high")
	})
	req := request(t, says("hello"))
	req.Schema = json.RawMessage(schema)
	if _, err := client(t, s).Generate(t.Context(), req, func(string, string) {}); err == nil || len(s.Seen()) != 1 {
		t.Errorf("got %v after %d requests", err, len(s.Seen()))
	}
}
