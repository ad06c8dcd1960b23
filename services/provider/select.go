package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"skandha.dev/services/provider/anthropic"
	"skandha.dev/services/provider/gemini"
	"skandha.dev/services/provider/httpapi"
	"skandha.dev/services/provider/offline"
	"skandha.dev/services/provider/openai"
)

// Select chooses the adapters, in order of preference, and returns one line with the
// choice and the reason. The configuration comes first; then keys and addresses in
// the environment (OPENAI_API_KEY, OPENAI_BASE_URL, ANTHROPIC_API_KEY, GEMINI_API_KEY, in this
// order; OPENAI_API is chat or responses, the API to use there), then a local server that
// speaks the OpenAI API, such as Ollama; otherwise the offline rules, which always work.
// Getenv is [os.Getenv] outside of tests.
func Select(ctx context.Context, cfg Config, getenv func(string) string) ([]Adapter, string, error) {
	if err := cfg.Validate(); err != nil {
		return nil, "", fmt.Errorf("configuring the provider: %w", err)
	}
	s := selector{cfg: cfg.withDefaults(), env: func(name string) string { return strings.TrimSpace(getenv(name)) }}
	named, why, err := s.named()
	if err != nil {
		return nil, "", err
	}
	if named == nil {
		a, reason, err := s.find(ctx)
		if err != nil {
			return nil, "", err
		}
		return []Adapter{a}, reason, nil
	}
	var adapters []Adapter
	var reasons []string
	for _, name := range named {
		a, err := s.make(ctx, name)
		if err != nil {
			return nil, "", fmt.Errorf("provider %s, because %s: %w", name, why, err)
		}
		adapters = append(adapters, a)
		reasons = append(reasons, describe(a))
	}
	return adapters, strings.Join(reasons, ", then ") + ": " + why, nil
}

type selector struct {
	cfg Config
	env func(string) string
}

func describe(a Adapter) string {
	i := a.Info()
	if i.Name == NameOffline {
		return "offline rules"
	}
	return fmt.Sprintf("%s (%s, %s)", i.Name, i.Model, i.Note)
}

// named returns the providers that the configuration, or SKANDHA_PROVIDER, names.
func (s *selector) named() (providers []string, why string, err error) {
	if list, _ := parseNames(s.cfg.Provider); list != nil { // validated
		return list, "it is configured", nil
	}
	list, err := parseNames(s.env("SKANDHA_PROVIDER"))
	if err != nil {
		return nil, "", fmt.Errorf("SKANDHA_PROVIDER: %w", err)
	}
	switch {
	case list != nil:
		return list, "SKANDHA_PROVIDER is set", nil
	case s.cfg.OfflineRules != "":
		return []string{NameOffline}, "rules are configured", nil
	case s.cfg.BaseURL != "":
		return []string{NameOpenAI}, "a base URL is configured", nil
	}
	return nil, "", nil
}

// find chooses when nothing is configured.
func (s *selector) find(ctx context.Context) (Adapter, string, error) {
	for _, v := range []struct{ name, provider string }{
		{"OPENAI_API_KEY", NameOpenAI},
		{"OPENAI_BASE_URL", NameOpenAI},
		{"ANTHROPIC_API_KEY", NameAnthropic},
		{"GEMINI_API_KEY", NameGemini},
		{"GOOGLE_API_KEY", NameGemini},
	} {
		if s.env(v.name) == "" {
			continue
		}
		a, err := s.make(ctx, v.provider)
		if err != nil {
			return nil, "", fmt.Errorf("provider %s, because %s is set: %w", v.provider, v.name, err)
		}
		return a, describe(a) + ": " + v.name + " is set", nil
	}
	absent := "none of OPENAI_API_KEY, OPENAI_BASE_URL, ANTHROPIC_API_KEY and GEMINI_API_KEY is set"
	if s.cfg.LocalURL != NoLocal {
		a, err := s.make(ctx, NameLocal)
		if err == nil {
			return a, describe(a) + ": " + absent + ", and a local server answers", nil
		}
		absent += ", and no local server was found (" + err.Error() + ")"
	}
	a, err := s.make(ctx, NameOffline)
	if err != nil {
		return nil, "", err
	}
	return a, describe(a) + ": " + absent, nil
}

func (s *selector) make(ctx context.Context, name string) (Adapter, error) {
	switch name {
	case NameOffline:
		if s.cfg.OfflineRules != "" {
			return offline.Load(s.cfg.OfflineRules)
		}
		return offline.New(nil)
	case NameLocal:
		return s.local(ctx)
	case NameAnthropic:
		return s.anthropic()
	case NameGemini:
		return s.gemini()
	default:
		return s.openai(ctx)
	}
}

// base returns the settings that the adapters of APIs have in common.
func (s *selector) base() openai.Config {
	c := openai.Config{
		Model: s.cfg.Model, Limits: s.cfg.Limits, Stall: s.cfg.Stall, Retry: s.cfg.Retry,
	}
	if c.Model == "" {
		c.Model = s.env("OPENAI_MODEL")
	}
	return c
}

var errNoKey = errors.New("OPENAI_API_KEY is not set: set it, or name a server that requires no key with " +
	"--base-url or OPENAI_BASE_URL")

func (s *selector) openai(ctx context.Context) (Adapter, error) {
	c := s.base()
	c.APIKey, c.API = httpapi.Key(s.env("OPENAI_API_KEY")), openai.API(strings.ToLower(s.env("OPENAI_API")))
	c.Organization, c.Project = s.env("OPENAI_ORG_ID"), s.env("OPENAI_PROJECT_ID")
	if c.BaseURL = s.cfg.BaseURL; c.BaseURL == "" {
		c.BaseURL = s.env("OPENAI_BASE_URL")
	}
	if c.BaseURL == "" && c.APIKey == "" {
		return nil, errNoKey
	}
	if c.BaseURL != "" && c.Model == "" && c.Validate() != nil {
		// A self-hosted server usually has one model: ask which. If that fails,
		// the adapter's error says what to set.
		if models, err := s.models(ctx, c.BaseURL, c.APIKey); err == nil {
			c.Model = pickModel(models)
		}
	}
	return openai.New(c)
}

func (s *selector) anthropic() (Adapter, error) {
	c := anthropic.Config{
		APIKey: httpapi.Key(s.env("ANTHROPIC_API_KEY")),
		Model:  s.env("ANTHROPIC_MODEL"), BaseURL: s.env("ANTHROPIC_BASE_URL"),
		Limits: s.cfg.Limits, Stall: s.cfg.Stall, Retry: s.cfg.Retry,
	}
	if tokens := s.env("ANTHROPIC_THINKING_TOKENS"); tokens != "" {
		var err error
		if c.ThinkingTokens, err = strconv.Atoi(tokens); err != nil {
			return nil, fmt.Errorf("ANTHROPIC_THINKING_TOKENS is %q, want a number of tokens", tokens)
		}
	}
	if s.only(NameAnthropic) {
		c.Model, c.BaseURL = cmp.Or(s.cfg.Model, c.Model), cmp.Or(s.cfg.BaseURL, c.BaseURL)
	}
	return anthropic.New(c)
}

func (s *selector) gemini() (Adapter, error) {
	c := gemini.Config{
		APIKey: httpapi.Key(cmp.Or(s.env("GEMINI_API_KEY"), s.env("GOOGLE_API_KEY"))),
		Model:  s.env("GEMINI_MODEL"), BaseURL: s.env("GOOGLE_GEMINI_BASE_URL"),
		Limits: s.cfg.Limits, Stall: s.cfg.Stall, Retry: s.cfg.Retry,
	}
	if s.only(NameGemini) {
		c.Model, c.BaseURL = cmp.Or(s.cfg.Model, c.Model), cmp.Or(s.cfg.BaseURL, c.BaseURL)
	}
	return gemini.New(c)
}

// only reports whether a provider is the only one that is named.
func (s *selector) only(name string) bool {
	named, _, err := s.named()
	return err == nil && slices.Equal(named, []string{name})
}

func (s *selector) local(ctx context.Context) (Adapter, error) {
	if s.cfg.LocalURL == NoLocal {
		return nil, fmt.Errorf("local_url is %s: set it to the server's address", NoLocal)
	}
	models, err := s.models(ctx, s.cfg.LocalURL, "")
	if err != nil {
		return nil, err
	}
	c := s.base()
	c.Name, c.BaseURL = NameLocal, s.cfg.LocalURL
	if c.Model == "" || !slices.Contains(models, c.Model) && s.cfg.Model == "" {
		c.Model = pickModel(models)
	}
	if c.Model == "" {
		return nil, fmt.Errorf("the server at %s has no model for conversations", hostOf(s.cfg.LocalURL))
	}
	return openai.New(c)
}

// pickModel returns the first model that is not for embeddings or reranking.
func pickModel(models []string) string {
	for _, m := range models {
		if name := strings.ToLower(m); !strings.Contains(name, "embed") && !strings.Contains(name, "rerank") {
			return m
		}
	}
	return ""
}

// models asks a server for its models, with a short timeout.
func (s *selector) models(ctx context.Context, base string, key httpapi.Key) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ProbeTimeout)
	defer cancel()
	models, err := openai.Models(ctx, nil, base, key)
	if err != nil {
		return nil, fmt.Errorf("asking the server at %s for its models: %w", hostOf(base), err)
	}
	return models, nil
}

func hostOf(base string) string {
	if u, err := url.Parse(base); err == nil {
		return u.Host
	}
	return "that address"
}
