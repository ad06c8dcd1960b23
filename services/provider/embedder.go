package provider

import (
	"cmp"
	"fmt"
	"strings"

	"skandha.dev/services/provider/embedding"
	"skandha.dev/services/provider/httpapi"
)

// NoEmbedder as Config.Embedder: none, whatever the configuration file says.
const NoEmbedder = "none"

// SelectEmbedder chooses what computes embeddings: nil unless one is named, because the texts
// are sent to it, and may cost money. It returns one line with the choice and the reason. Keys
// and addresses are in the environment, as for the models; Ollama's address is
// OLLAMA_BASE_URL or OLLAMA_HOST. Getenv is [os.Getenv] outside of tests.
func SelectEmbedder(cfg Config, getenv func(string) string) (*embedding.Embedder, string, error) {
	if err := cfg.Validate(); err != nil {
		return nil, "", fmt.Errorf("configuring the provider: %w", err)
	}
	s := selector{cfg: cfg.withDefaults(), env: func(name string) string { return strings.TrimSpace(getenv(name)) }}
	for _, from := range []struct{ value, why string }{
		{cfg.Embedder, "it is configured"},
		{s.env("SKANDHA_EMBEDDER"), "SKANDHA_EMBEDDER is set"},
		{cfg.Settings.Embedder, "the configuration file names it"},
	} {
		name, model, err := parseEmbedder(from.value)
		switch {
		case err != nil:
			return nil, "", fmt.Errorf("SKANDHA_EMBEDDER %w", err) // the others are validated
		case name == NoEmbedder:
			return nil, "none: " + from.why, nil
		case name != "":
			e, err := s.embedder(name, model)
			if err != nil {
				return nil, "", fmt.Errorf("embedder %s/%s, because %s: %w", name, model, from.why, err)
			}
			return e, fmt.Sprintf("%s/%s %s: %s", name, model, e.Info().Note, from.why), nil
		}
	}
	return nil, "none: searches are lexical. " + EmbedderHint, nil
}

// EmbedderHint says how to configure an embedder.
const EmbedderHint = "SKANDHA_EMBEDDER, or providers.embedder in the configuration file, turns on search by meaning: " +
	"ollama/nomic-embed-text is free and local, openai/text-embedding-3-small and gemini/gemini-embedding-001 need a key"

// parseEmbedder reads <provider>/<model>; both are empty if the text is. The error continues
// the name of the setting.
func parseEmbedder(text string) (name, model string, err error) {
	text = strings.TrimSpace(text)
	if text == "" || text == NoEmbedder {
		return text, "", nil
	}
	name, model, _ = strings.Cut(text, "/")
	switch name {
	case NameOpenAI, NameGemini, NameLocal, NameOllama:
		if model != "" {
			return name, model, nil
		}
	}
	return "", "", fmt.Errorf("is %q, want <provider>/<model> with one of %s, %s, %s and %s, or %s", text, NameOpenAI,
		NameGemini, NameLocal, NameOllama, NoEmbedder)
}

// embedder makes a provider's embedder.
func (s *selector) embedder(name, model string) (*embedding.Embedder, error) {
	c := embedding.Config{Wire: embedding.OpenAI, Name: name, Model: model, Retry: s.cfg.Retry}
	base := s.cfg.BaseURL // of the API that it is for
	if s.only(NameAnthropic) || s.only(NameGemini) != (name == NameGemini) {
		base = ""
	}
	switch name {
	case NameGemini:
		c.Wire, c.BaseURL = embedding.Gemini, cmp.Or(base, s.env("GOOGLE_GEMINI_BASE_URL"))
		c.APIKey = httpapi.Key(cmp.Or(s.env("GEMINI_API_KEY"), s.env("GOOGLE_API_KEY")))
	case NameOllama:
		c.Wire, c.BaseURL = embedding.Ollama, ollamaURL(cmp.Or(s.env("OLLAMA_BASE_URL"), s.env("OLLAMA_HOST")))
		c.APIKey = httpapi.Key(s.env("OLLAMA_API_KEY"))
	case NameLocal:
		if c.BaseURL = s.cfg.LocalURL; c.BaseURL == NoLocal {
			return nil, fmt.Errorf("local_url is %s: set it to the server's address", NoLocal)
		}
	default:
		c.BaseURL, c.APIKey = cmp.Or(base, s.env("OPENAI_BASE_URL")), httpapi.Key(s.env("OPENAI_API_KEY"))
		c.Organization, c.Project = s.env("OPENAI_ORG_ID"), s.env("OPENAI_PROJECT_ID")
		if c.BaseURL == "" && c.APIKey == "" {
			return nil, errNoKey
		}
	}
	return embedding.New(c)
}

// ollamaPort is the port of a host that OLLAMA_HOST gives without one.
const ollamaPort = ":11434"

// ollamaURL completes what Ollama's own programs accept as OLLAMA_HOST: a URL, or a host with
// or without a port. All addresses of the machine, on which the server listens, mean this one.
func ollamaURL(host string) string {
	if host == "" || strings.Contains(host, "://") {
		return host
	}
	host = strings.Replace(host, "0.0.0.0", "127.0.0.1", 1)
	if strings.HasPrefix(host, ":") {
		host = "127.0.0.1" + host
	}
	if !strings.Contains(host, ":") {
		host += ollamaPort
	}
	return "http://" + host
}
