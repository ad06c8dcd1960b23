package gemini_test

import (
	"encoding/json"
	"strings"
	"testing"

	"skandha.dev/pkg/provider"
	"skandha.dev/provider-gemini-legacy/internal/gemini"
)

func TestARequestOnTheWire(t *testing.T) {
	const schema = `{"type":"object","properties":{"z":{"anyOf":[{"const":1.0}]},"a":{"type":"string"}},"required":["z"]}`
	a, m := serve(t, writes(`[{"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}],
		"usageMetadata": {"promptTokenCount": 100, "toolUsePromptTokenCount": 5, "cachedContentTokenCount": 60,
		"candidatesTokenCount": 7, "thoughtsTokenCount": 20, "totalTokenCount": 132, "promptTokensDetails": [{"x": "y"}]}}]`))
	temperature := 0.7
	r := request(user("hello <world> & ä"))
	r.System, r.Model, r.MaxTokens, r.Temperature = "Be kind.", "other-model", 1<<40, &temperature
	r.Tools = []provider.ToolSpec{{Name: "math:evaluate", Args: json.RawMessage(schema)}, {Name: "3d:print"}}
	resp, err := ask(t, m, r)
	if err != nil {
		t.Fatal(err)
	}
	got := a.last()
	if got.url != "/v1beta/models/other-model:streamGenerateContent?%24alt=json" ||
		got.header.Get("X-Goog-Api-Key") != key {
		t.Errorf("it asked %s with the key %q", got.url, got.header.Get("X-Goog-Api-Key"))
	}
	if len(got.Tools) != 1 || len(got.Tools[0].Functions) != 2 {
		t.Fatalf("the tools are %+v", got.Tools)
	}
	if f := got.Tools[0].Functions; f[0].Name != "math--evaluate" || string(f[0].Parameters) != schema ||
		f[1].Name != "_3d--print" || f[1].Parameters != nil {
		t.Errorf("the functions are %+v", f)
	}
	var settings struct {
		Temperature     float64 `json:"temperature"`
		MaxOutputTokens int     `json:"maxOutputTokens"`
	}
	if err := json.Unmarshal(got.Settings, &settings); err != nil || settings.Temperature != 0.7 ||
		settings.MaxOutputTokens != 1<<31-1 {
		t.Errorf("the settings are %s", got.Settings)
	}
	var text struct{ Text string }
	if err := json.Unmarshal(got.Contents[0].Parts[0], &text); err != nil || text.Text != "hello <world> & ä" ||
		got.Contents[0].Role != "user" || !strings.Contains(string(got.System.Parts[0]), "Be kind.") {
		t.Errorf("the contents are %+v, the system prompt %s", got.Contents, got.System.Parts)
	}
	want := provider.Usage{InputTokens: 105, OutputTokens: 27, CachedTokens: 60, ReasoningTokens: 20, Unpriced: 1}
	if resp.Model != "other-model" || resp.Usage != want {
		t.Errorf("the answer is %+v", resp)
	}
}

func TestAnAnswerWithASchema(t *testing.T) {
	const schema = `{"type":"object","properties":{"z":{"const":1.0},"a":true}}`
	a, m := serve(t, answers("STOP", `{"text":"{}"}`))
	r := request(user("hello"))
	r.Schema = json.RawMessage(schema)
	resp, err := ask(t, m, r)
	if err != nil {
		t.Fatal(err)
	}
	var settings struct {
		Type   string          `json:"responseMimeType"`
		Schema json.RawMessage `json:"responseJsonSchema"`
	}
	if err := json.Unmarshal(a.last().Settings, &settings); err != nil || settings.Type != "application/json" ||
		string(settings.Schema) != schema {
		t.Errorf("the settings are %s, %v", a.last().Settings, err)
	}
	if resp.Usage != (provider.Usage{Uncounted: 1, Unpriced: 1}) {
		t.Errorf("without a report, the usage is %+v", resp.Usage)
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	_, m := serve(t, answers("STOP", `{"text":"hi"}`))
	other := request(user("hello"))
	other.Model = "../../v1/x?key"
	for name, r := range map[string]provider.Request{
		"no messages":       {},
		"broken messages":   {Messages: []json.RawMessage{json.RawMessage(`{"role":`)}},
		"an unknown role":   request(provider.Message{Role: "poet", Text: "x"}),
		"the model's turn":  request(user("x"), provider.Message{Role: provider.RoleAssistant, Text: "y"}),
		"a path as a model": other,
	} {
		_, err := ask(t, m, r)
		if e := fails(t, err); e.Code != provider.ErrBadRequest || e.Retryable {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// The API's other variables, and what else the SDK might read, change nothing.
func TestTheConfiguration(t *testing.T) {
	env := func(set map[string]string) gemini.Config {
		return gemini.FromEnv(func(k string) string { return set[k] })
	}
	if c := env(map[string]string{"GOOGLE_API_KEY": "g", "GEMINI_API_KEY": "k", "GEMINI_MODEL": "m"}); c.APIKey != "k" ||
		c.Model != "m" || c.Validate() != nil {
		t.Errorf("%+v: %v", c, c.Validate())
	}
	if c := env(map[string]string{"GOOGLE_API_KEY": "g"}); c.APIKey != "g" || c.Validate() != nil {
		t.Errorf("%+v: %v", c, c.Validate())
	}
	for _, c := range []struct {
		cfg   gemini.Config
		words string
	}{
		{gemini.Config{}, "GEMINI_API_KEY is not set"},
		{gemini.Config{APIKey: "two words"}, "contains a space"},
		{gemini.Config{APIKey: "k", BaseURL: "ftp://x"}, "GOOGLE_GEMINI_BASE_URL"},
		{gemini.Config{APIKey: "k", BaseURL: "https://u:hidden@x"}, "GEMINI_API_KEY instead"},
		{gemini.Config{APIKey: "k", BaseURL: "https://x?key=hidden"}, "a query"},
		{gemini.Config{APIKey: "k", Model: "a/../b"}, "GEMINI_MODEL"},
	} {
		_, err := gemini.New(c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), "hidden") ||
			strings.Contains(err.Error(), "two words") {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
}
