package provider

import (
	"errors"
	"fmt"
	"strings"

	"skandha.dev/services/internal/configfile"
	"skandha.dev/services/provider/budget"
)

// Settings is the section providers of the configuration file.
type Settings struct {
	// Prices are US dollars per million tokens, by model or <provider>/<model>; * matches
	// any characters. The cost of other models is unknown.
	Prices budget.Prices `yaml:"prices"`
	Budget budget.Limit  `yaml:"budget"` // for all agents together; default none
	// MaxTokens is how many tokens an answer may have while a limit of costs applies, unless
	// the request says it. Default 8192.
	MaxTokens int `yaml:"max_tokens"`
	// Embedder computes embeddings: <provider>/<model>, of openai, gemini, local or ollama.
	// Default none.
	Embedder string `yaml:"embedder"`
	// Transcriber turns speech into text. Default none.
	Transcriber Voice `yaml:"transcriber"`
	// Speaker turns text into speech. Default none: the page uses the browser's.
	Speaker Voice `yaml:"speaker"`
}

// defaultMaxTokens is the default of Settings.MaxTokens.
const defaultMaxTokens = 8192

// ReadSettings reads and checks the section of a configuration file; the sections of other
// services are ignored. Without a file or a section it returns the defaults. The error lists
// all faults, with their lines.
func ReadSettings(path string) (Settings, error) {
	return configfile.Read(path, ParseSettings, Settings.Check)
}

// ParseSettings decodes the section from the file's content.
func ParseSettings(file []byte) (s Settings, err error) {
	_, err = configfile.Section(file, "providers", &s)
	return s, err
}

// Check reports all faults; each error begins with the path of its field.
func (s Settings) Check() error {
	var errs []error
	for _, part := range []struct {
		at  string
		err error
	}{
		{"prices", s.Prices.Check()},
		{"budget", s.Budget.Check()},
		{"transcriber", s.Transcriber.check(transcriber)},
		{"speaker", s.Speaker.check(speaker)},
	} {
		if part.err != nil {
			for line := range strings.Lines(part.err.Error()) {
				errs = append(errs, fmt.Errorf("providers.%s.%s", part.at, strings.TrimSuffix(line, "\n")))
			}
		}
	}
	if s.MaxTokens < 0 {
		errs = append(errs, fmt.Errorf("providers.max_tokens is %d, want 1 or more, or 0 for the default of %d", s.MaxTokens,
			defaultMaxTokens))
	}
	if _, _, err := parseEmbedder(s.Embedder); err != nil {
		errs = append(errs, fmt.Errorf("providers.embedder %w", err))
	}
	return errors.Join(errs...)
}
