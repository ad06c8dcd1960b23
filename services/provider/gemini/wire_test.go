package gemini_test

import (
	"encoding/json"
	"image/color"
	"net/http"
	"strings"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/gemini"
	"skandha.dev/services/test/geminitest"
	"skandha.dev/services/test/providertest"
)

// sent is the parts of the entries of the latest request, as JSON.
func sent(t *testing.T, s *geminitest.Server) []string {
	t.Helper()
	seen := s.Seen()
	var out []string
	for _, c := range seen[len(seen)-1].Contents {
		b, err := json.Marshal(c.Parts)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b))
	}
	return out
}

func TestMediaOnTheWire(t *testing.T) {
	s := geminitest.New(t)
	m := says("look")
	m.Files = []contract.File{
		providertest.Picture(t, "p.png", color.White),
		{Ref: "a/s/v.wav", MediaType: "audio/wav", Data: []byte("RIFF")},
		{Ref: "a/s/a.gif", MediaType: "image/gif", Data: []byte("GIF89a")},
	}
	ask(t, client(t, s), request(t, m))
	got := sent(t, s)[0]
	for _, want := range []string{
		`{"inlineData":{"mimeType":"image/png","data":"iVBOR`, `{"inlineData":{"mimeType":"audio/wav","data":"UklGRg=="}}`,
		`a.gif, image/gif, 6 bytes: this model's API does not accept such a file`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("sent %s, want %s", got, want)
		}
	}
}

// The results of parallel calls stay together; their files follow.
func TestFilesOfResultsFollowThem(t *testing.T) {
	s := geminitest.New(t)
	a := client(t, s)
	s.Next(replay(`{"functionCall":{"name":"a","args":{},"id":"1"},"thoughtSignature":"c2ln"}`, `{"functionCall":{"name":"b","args":{}}}`),
		replay(`{"text":"done"}`))
	resp := ask(t, a, request(t, says("go")))
	pixel := []contract.File{providertest.Picture(t, "p.png", color.White)}
	first, second := result(resp.ToolCalls[0], "1"), result(resp.ToolCalls[1], "2")
	first.Files, second.Files = pixel, pixel
	ask(t, a, request(t, says("go"), contract.Message{
		Role: contract.RoleAssistant, ToolCalls: resp.ToolCalls, ProviderState: resp.ProviderState,
	}, first, second))
	var kinds []string
	for _, raw := range s.Seen()[1].Contents[2].Parts {
		for kind := range map[string]any{"functionResponse": 0, "inlineData": 0, "text": 0} {
			if strings.HasPrefix(string(raw), `{"`+kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	if got := strings.Join(kinds, " "); got != "functionResponse functionResponse text inlineData text inlineData" {
		t.Errorf("the parts are %s", got)
	}
}

// Models before Gemini 3 refuse a schema beside tools.
func TestASchemaBesideToolsIsAnInstruction(t *testing.T) {
	s := geminitest.New(t)
	a := client(t, s)
	const schema = `{"type":"object","properties":{"z":{"maximum":1.50}}}`
	req := request(t, says("answer in json"))
	req.System, req.Schema = "Be brief.", json.RawMessage(schema)
	ask(t, a, req)
	if got := s.Seen()[0]; got.GenerationConfig.MimeType != "" || len(got.GenerationConfig.Schema) > 0 ||
		!strings.Contains(string(got.SystemInstruction.Parts[0]), `"Be brief.\n\nYour final answer must be JSON`) {
		t.Errorf("beside tools, sent %+v, %s", got.GenerationConfig, got.SystemInstruction.Parts)
	}
	req.Tools = nil
	ask(t, a, req)
	if got := s.Seen()[1]; got.GenerationConfig.MimeType != "application/json" ||
		string(got.GenerationConfig.Schema) != schema || !strings.Contains(string(got.SystemInstruction.Parts[0]), `"Be brief."`) {
		t.Errorf("without tools, sent %+v, %s", got.GenerationConfig, got.SystemInstruction.Parts)
	}
}

// A model without schemas of answers is asked in words instead, from then on at once.
func TestAModelThatRefusesASchemaIsAskedInWords(t *testing.T) {
	for _, why := range []string{
		`Invalid JSON payload received. Unknown name "responseJsonSchema" at 'generation_config': Cannot find field.`,
		`* GenerateContentRequest.generation_config.response_schema.properties: should be non-empty for OBJECT type`,
		"Json mode is not supported for this model", "response mime type 'application/json' is not supported",
	} {
		s := geminitest.New(t)
		a := client(t, s)
		s.Next(func(w http.ResponseWriter, _ *http.Request) {
			geminitest.Refuse(w, http.StatusBadRequest, "INVALID_ARGUMENT", why, "")
		})
		req := request(t, says("hello"))
		req.System, req.Schema, req.Tools = "Be brief.", json.RawMessage(`{"type":"object"}`), nil
		for n := range 2 {
			ask(t, a, req)
			if len(s.Seen()) != n+2 {
				t.Fatalf("%s: %d requests, want %d", why, len(s.Seen()), n+2)
			}
			r := s.Seen()[n+1]
			if r.GenerationConfig.MimeType != "" || len(r.GenerationConfig.Schema) > 0 ||
				!strings.Contains(string(r.SystemInstruction.Parts[0]), `{\"type\":\"object\"}`) {
				t.Errorf("%s: then sent %+v, %s", why, r.GenerationConfig, r.SystemInstruction.Parts)
			}
		}
	}
	// Another refusal is the caller's to know.
	s := geminitest.New(t)
	s.Next(func(w http.ResponseWriter, _ *http.Request) {
		geminitest.Refuse(w, http.StatusBadRequest, "INVALID_ARGUMENT", "temperature is too high", "")
	})
	req := request(t, says("hello"))
	req.Schema, req.Tools = json.RawMessage(`{"type":"object"}`), nil
	if _, err := client(t, s).Generate(t.Context(), req, func(string, string) {}); err == nil || len(s.Seen()) != 1 {
		t.Errorf("got %v after %d requests", err, len(s.Seen()))
	}
}

func TestAnArgumentThatAHookHasHiddenStaysHidden(t *testing.T) {
	s := geminitest.New(t)
	a := client(t, s, func(c *gemini.Config) { c.Model = "m" })
	s.Next(replay(`{"functionCall":{"name":"a","args":{"key":"secret"},"id":"1"},"thoughtSignature":"c2ln"}`))
	resp := ask(t, a, request(t, says("go")))
	resp.ToolCalls[0].Args = json.RawMessage(`{"key":"[hidden]"}`)
	ask(t, a, request(t, says("go"), contract.Message{
		Role: contract.RoleAssistant, ToolCalls: resp.ToolCalls, ProviderState: resp.ProviderState,
	}, result(resp.ToolCalls[0], "1")))
	if got := strings.Join(sent(t, s), "\n"); strings.Contains(got, "secret") || !strings.Contains(got, "[hidden]") {
		t.Errorf("sent %s", got)
	}
}
