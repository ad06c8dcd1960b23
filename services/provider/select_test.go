package provider_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/provider"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/openaitest"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// patient probes as long as a busy machine may need.
func patient(c provider.Config) provider.Config {
	c.ProbeTimeout = natstest.Patience
	if c.LocalURL == "" {
		c.LocalURL = provider.NoLocal
	}
	return c
}

func TestSelect(t *testing.T) {
	server := openaitest.New(t).URL
	const key, base = "OPENAI_API_KEY", "OPENAI_BASE_URL"
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("results: {default: {success: s, failure: f}}\nmissing: m\nfallback: f\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		cfg    provider.Config
		env    func(string) string
		want   string // name/model of each adapter
		reason string
	}{
		{"nothing there", provider.Config{}, env(), "offline/rules", "none of OPENAI_API_KEY, OPENAI_BASE_URL, ANTHROPIC_API_KEY and GEMINI_API_KEY is set"},
		{"a key", provider.Config{}, env(key, "sk-1"), "openai/gpt-5.4-mini", "OPENAI_API_KEY is set"},
		{"a key with a line break", provider.Config{}, env(key, " sk-1\n"), "openai/gpt-5.4-mini", "OPENAI_API_KEY is set"},
		{"a key and a model", provider.Config{}, env(key, "sk-1", "OPENAI_MODEL", "m1"), "openai/m1", "api.openai.com"},
		{"a key speaks responses", provider.Config{}, env(key, "sk-1"), "openai/gpt-5.4-mini", "responses at api.openai.com"},
		{"chat by choice", provider.Config{}, env(key, "sk-1", "OPENAI_API", "Chat"), "openai/gpt-5.4-mini", "chat completions at api"},
		{
			"responses by choice",
			provider.Config{},
			env(base, "http://h:1/v1", "OPENAI_MODEL", "m", "OPENAI_API", "responses"), "openai/m", "responses at h:1",
		},
		{
			"the configured model counts more",
			provider.Config{Model: "m2"},
			env(key, "sk-1", "OPENAI_MODEL", "m1"),
			"openai/m2", "",
		},
		{
			"a key for Anthropic",
			provider.Config{},
			env("ANTHROPIC_API_KEY", "k", "ANTHROPIC_THINKING_TOKENS", "2048"),
			"anthropic/claude-haiku-5-5", "ANTHROPIC_API_KEY is set",
		},
		{
			"Anthropic before Gemini, with a model",
			provider.Config{},
			env("GEMINI_API_KEY", "k", "ANTHROPIC_API_KEY", "k", "ANTHROPIC_MODEL", "m"), "anthropic/m", "api.anthropic.com",
		},
		{"OpenAI before Anthropic", provider.Config{}, env("ANTHROPIC_API_KEY", "k", key, "sk-1"), "openai/gpt-5.4-mini", ""},
		{
			"Anthropic elsewhere",
			provider.Config{Provider: "anthropic", BaseURL: "http://h:1", Model: "m2"},
			env("ANTHROPIC_API_KEY", "k", "ANTHROPIC_MODEL", "m", "ANTHROPIC_BASE_URL", "http://g:2"), "anthropic/m2", "h:1",
		},
		{
			"Anthropic beside another",
			provider.Config{Provider: "anthropic,openai", BaseURL: "http://h:1/v1", Model: "m2"},
			env("ANTHROPIC_API_KEY", "k", "ANTHROPIC_BASE_URL", "http://g:2"),
			"anthropic/claude-haiku-5-5 openai/m2", "g:2",
		},
		{"a key for Gemini", provider.Config{}, env("GEMINI_API_KEY", "k"), "gemini/gemini-flash-latest", "GEMINI_API_KEY is set"},
		{
			"a key for Gemini under its other name, and a model",
			provider.Config{},
			env("GOOGLE_API_KEY", "k", "GEMINI_MODEL", "m"), "gemini/m", "GOOGLE_API_KEY is set",
		},
		{
			"Gemini elsewhere",
			provider.Config{Provider: "gemini", BaseURL: "http://h:1", Model: "m2"},
			env("GEMINI_API_KEY", "k", "GEMINI_MODEL", "m"), "gemini/m2", "h:1",
		},
		{
			"Gemini beside another",
			provider.Config{Provider: "gemini,openai", BaseURL: "http://h:1/v1", Model: "m2"},
			env("GEMINI_API_KEY", "k", "GOOGLE_GEMINI_BASE_URL", "http://g:2"),
			"gemini/gemini-flash-latest openai/m2", "g:2",
		},
		{"an address", provider.Config{}, env(base, server, "OPENAI_MODEL", "m"), "openai/m", "OPENAI_BASE_URL is set"},
		{
			"an address, its server knows its model",
			provider.Config{},
			env(base, server), "openai/" + openaitest.Model,
			"OPENAI_BASE_URL is set",
		},
		{
			"a configured address",
			provider.Config{BaseURL: server},
			env(), "openai/" + openaitest.Model,
			"a base URL is configured",
		},
		{
			"a configured address counts more",
			provider.Config{BaseURL: "http://h:1/v1", Model: "m"},
			env(base, server),
			"openai/m", "h:1",
		},
		{"a local server", provider.Config{LocalURL: server}, env(), "local/" + openaitest.Model, "a local server answers"},
		{
			"a local server without the environment's model",
			provider.Config{LocalURL: server},
			env("OPENAI_MODEL", "gpt-x"),
			"local/" + openaitest.Model, "",
		},
		{
			"a key counts more than a local server",
			provider.Config{LocalURL: server},
			env(key, "sk-1"), "openai/gpt-5.4-mini",
			"",
		},
		{
			"offline in spite of a key",
			provider.Config{Provider: "offline"},
			env(key, "sk-1"), "offline/rules",
			"it is configured",
		},
		{
			"offline by environment",
			provider.Config{},
			env(key, "sk-1", "SKANDHA_PROVIDER", "Offline"), "offline/rules",
			"SKANDHA_PROVIDER is set",
		},
		{
			"configuration counts more",
			provider.Config{Provider: "openai"},
			env(key, "sk-1", "SKANDHA_PROVIDER", "offline"),
			"openai/gpt-5.4-mini", "",
		},
		{
			"rules in spite of a key",
			provider.Config{OfflineRules: rules},
			env(key, "sk-1"), "offline/rules",
			"rules are configured",
		},
		{
			"two",
			provider.Config{Provider: "openai, offline"},
			env(key, "sk-1"), "openai/gpt-5.4-mini offline/rules",
			"then offline",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			adapters, reason, err := provider.Select(t.Context(), patient(c.cfg), c.env)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range adapters {
				got = append(got, a.Info().Name+"/"+a.Info().Model)
			}
			if s := strings.Join(got, " "); s != c.want || !strings.Contains(reason, c.reason) {
				t.Errorf("selected %s (%s), want %s (%s)", s, reason, c.want, c.reason)
			}
			if strings.Contains(reason, "\n") || strings.Contains(reason, "sk-1") {
				t.Errorf("the reason %q is no line, or gives away the key", reason)
			}
		})
	}
}

func TestSelectRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  provider.Config
		env  func(string) string
		want string
	}{
		{
			"an unknown provider",
			provider.Config{Provider: "openia"},
			env(),
			`"openia" is unknown, want one of offline, openai, anthropic, gemini, local`,
		},
		{"an unknown provider in the environment", provider.Config{}, env("SKANDHA_PROVIDER", "gpt"), "SKANDHA_PROVIDER"},
		{"one twice", provider.Config{Provider: "offline,offline"}, env(), "twice"},
		{"an unknown API", provider.Config{}, env("OPENAI_API_KEY", "sk-1", "OPENAI_API", "soap"), `api is "soap", want chat or responses; set OPENAI_API`},
		{"openai without a key", provider.Config{Provider: "openai"}, env(), "OPENAI_API_KEY"},
		{"anthropic without a key", provider.Config{Provider: "anthropic"}, env(), "ANTHROPIC_API_KEY"},
		{
			"thinking that is no number",
			provider.Config{},
			env("ANTHROPIC_API_KEY", "k", "ANTHROPIC_THINKING_TOKENS", "much"), "ANTHROPIC_THINKING_TOKENS",
		},
		{
			"thinking that is too short",
			provider.Config{},
			env("ANTHROPIC_API_KEY", "k", "ANTHROPIC_THINKING_TOKENS", "5"), "thinking_tokens is 5",
		},
		{"a server that does not say its model", provider.Config{BaseURL: "http://127.0.0.1:1/v1"}, env(), "OPENAI_MODEL"},
		{"a broken address", provider.Config{}, env("OPENAI_BASE_URL", "localhost", "OPENAI_MODEL", "m"), "base_url"},
		{
			"local, but nothing is there",
			provider.Config{Provider: "local", LocalURL: "http://127.0.0.1:1/v1"},
			env(),
			"asking the server at 127.0.0.1:1 for its models",
		},
		{"local, but not to be looked for", provider.Config{Provider: "local"}, env(), "local_url"},
		{"offline with an address", provider.Config{Provider: "offline", BaseURL: "http://h/v1"}, env(), "base_url"},
		{
			"rules that are not there",
			provider.Config{OfflineRules: filepath.Join(t.TempDir(), "none.yaml")},
			env(),
			"none.yaml",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if a, why, err := provider.Select(t.Context(), patient(c.cfg), c.env); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("selected %v (%s), error %v, want %q in it", a, why, err, c.want)
			}
		})
	}
}

func TestWhatIsNoLocalServerIsLeftAlone(t *testing.T) {
	for _, body := range []string{"<html>", `{"data":[]}`, `{"data":[{"id":"nomic-embed-text"}]}`} {
		ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				t.Error("a key went to a server that was merely found")
			}
			_, _ = w.Write([]byte(body))
		}))
		adapters, why, err := provider.Select(t.Context(), patient(provider.Config{LocalURL: ts.URL + "/v1"}), env())
		ts.Close()
		if err != nil || adapters[0].Info().Name != provider.NameOffline {
			t.Errorf("%s: selected %v (%s), %v", body, adapters, why, err)
		}
	}
}

// A local port that takes connections and says nothing must not hold up the start.
func TestProbeDoesNotWaitForever(t *testing.T) {
	ts := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer ts.Close()
	adapters, _, err := provider.Select(t.Context(),
		provider.Config{LocalURL: ts.URL, ProbeTimeout: 50 * time.Millisecond}, env())
	if err != nil || adapters[0].Info().Name != provider.NameOffline {
		t.Errorf("selected %v, %v", adapters, err)
	}
}

func TestConfigNamesTheField(t *testing.T) {
	for field, c := range map[string]provider.Config{
		"slots":             {Slots: -1},
		"flush_every":       {FlushEvery: -1},
		"drain_timeout":     {DrainTimeout: -1},
		"probe_timeout":     {ProbeTimeout: -1},
		"stall":             {Stall: -1},
		"local_url":         {LocalURL: "11434"},
		"limits.text_bytes": {Limits: provider.Limits{TextBytes: -1}},
		"retry.tries":       {},
	} {
		if field == "retry.tries" {
			c.Retry.Tries = -1
		}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: error is %v", field, err)
		}
	}
	if err := (provider.Config{}).Validate(); err != nil {
		t.Errorf("the zero configuration: %v", err)
	}
}
