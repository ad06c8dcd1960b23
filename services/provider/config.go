package provider

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/offline"
	"skandha.dev/services/provider/retry"
)

// Adapter asks one language model.
type Adapter = adapter.Adapter

// Limits bound one answer.
type Limits = adapter.Limits

// NoLocal as Config.LocalURL: look for no local server.
const NoLocal = "none"

// The providers that Config.Provider may name.
const (
	NameOffline   = offline.Name
	NameOpenAI    = "openai"
	NameAnthropic = "anthropic"
	NameGemini    = "gemini"
	NameLocal     = "local"
)

// NameOllama is a provider of embeddings alone: Ollama's own API.
const NameOllama = "ollama"

func names() []string { return []string{NameOffline, NameOpenAI, NameAnthropic, NameGemini, NameLocal} }

// Config of the service. With the zero value, [Select] finds a provider by itself.
type Config struct {
	// Provider names the providers to use: offline, openai, anthropic, gemini or local (a
	// server on this machine); several are separated by commas, in order of preference.
	// Empty: SKANDHA_PROVIDER, or what Select finds.
	Provider string
	// Model and BaseURL are for the OpenAI-compatible API, and for Anthropic's or Gemini's if
	// that is the only provider that is named. By default the environment's count:
	// OPENAI_MODEL and OPENAI_BASE_URL, ANTHROPIC_MODEL and ANTHROPIC_BASE_URL, or
	// GEMINI_MODEL and GOOGLE_GEMINI_BASE_URL.
	Model   string
	BaseURL string

	// Embedder computes embeddings: <provider>/<model>, of openai, gemini, local or ollama; or
	// none. Empty: SKANDHA_EMBEDDER, or that of the configuration file; else none.
	Embedder string

	// Transcriber turns speech into text, and Speaker text into speech: <provider>/<model> of openai
	// or local; command, whose program is in Settings; or none. Empty: SKANDHA_TRANSCRIBER and
	// SKANDHA_SPEAKER, or those of the configuration file; else none.
	Transcriber string
	Speaker     string

	OfflineRules string // a rule file for the offline provider; default: the built-in rules

	// where to look for a local server; NoLocal: nowhere
	LocalURL string `default:"http://127.0.0.1:11434/v1"`
	// time limit of the local server's answer
	ProbeTimeout time.Duration `default:"300ms" min:"0"`

	Settings // of the configuration file

	Stall  time.Duration `min:"0"` // silence after which an answer is abandoned; default 3 min
	Retry  retry.Config
	Limits Limits

	// NoPlugins leaves out the plugins that are providers, which are otherwise offered
	// after the adapters.
	NoPlugins bool
	// PluginGrace is how long to wait for the answer of a plugin whose replicas have
	// all left; default 5 s.
	PluginGrace time.Duration `default:"5s" min:"0"`

	// concurrent requests
	Slots int `default:"16" min:"1" max:"4096"`
	// at most one message of deltas per this long
	FlushEvery time.Duration `default:"25ms" min:"0"`
	// grace period for running requests on shutdown; default the engine's, 30 s
	DrainTimeout time.Duration `min:"0"`
}

func (c Config) withDefaults() Config { return bounds.Filled(c) }

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{bounds.Check("", c), c.Settings.Check()}
	chosen, err := parseNames(c.Provider)
	errs = append(errs, err)
	if _, _, err := parseEmbedder(c.Embedder); err != nil {
		errs = append(errs, fmt.Errorf("embedder %w", err))
	}
	for _, v := range []struct {
		kind
		value string
	}{{transcriber, c.Transcriber}, {speaker, c.Speaker}} {
		if _, _, err := v.parse(v.value); err != nil {
			errs = append(errs, fmt.Errorf("%s %w", v.name, err))
		}
	}
	if len(chosen) == 1 && chosen[0] == NameOffline && c.BaseURL != "" {
		errs = append(errs, errors.New("base_url is set, but provider is offline, which uses no API; remove one of them"))
	}
	if u, err := url.Parse(c.LocalURL); c.LocalURL != NoLocal &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		errs = append(errs, fmt.Errorf("local_url is %q, want for example %s, or %s",
			telemetry.Redact(c.LocalURL), Config{}.withDefaults().LocalURL, NoLocal))
	}
	return errors.Join(errs...)
}

// parseNames reads a list of providers; nil if it is empty.
func parseNames(list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return nil, nil
	}
	var out []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("provider %q is unknown, want one of %s, or several of them separated by commas", name,
				strings.Join(names(), ", "))
		}
		if slices.Contains(out, name) {
			return nil, fmt.Errorf("provider %q is named twice", name)
		}
		out = append(out, name)
	}
	return out, nil
}
