package embedding

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/provider/httpapi"
	"skandha.dev/services/provider/retry"
)

// Wire is the protocol of an API.
type Wire string

// The protocols.
const (
	OpenAI Wire = "openai" // POST <base>/embeddings, as every compatible server has it
	Gemini Wire = "gemini" // POST <base>/v1beta/models/<model>:batchEmbedContents
	Ollama Wire = "ollama" // POST <base>/api/embed
)

// Config of an embedder. Zero fields mean the defaults.
type Config struct {
	Wire         Wire        // required
	Name         string      // of the provider; required
	Model        string      // required
	BaseURL      string      // default the vendor's own, or Ollama's on this machine
	APIKey       httpapi.Key // required for Gemini; empty: none is sent
	Organization string      // OpenAI's, optional
	Project      string      // OpenAI's, optional
	// silence after which an answer is abandoned; a local server may load the model first
	Stall      time.Duration `default:"1m" min:"0"`
	Retry      retry.Config
	HTTPClient *http.Client // optional; redirects are never followed
}

// WithDefaults replaces zero fields.
func (c Config) WithDefaults() Config {
	c = bounds.Filled(c)
	if w, ok := wires[c.Wire]; ok && c.BaseURL == "" {
		c.BaseURL = w.base
	}
	return c
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.WithDefaults()
	w, ok := wires[c.Wire]
	if !ok {
		return fmt.Errorf("wire is %q, want %s, %s or %s", c.Wire, OpenAI, Gemini, Ollama)
	}
	errs := []error{bounds.Check("", c), httpapi.CheckURL(c.BaseURL, w.base, w.env), c.APIKey.Validate()}
	if c.Name == "" || c.Model == "" {
		errs = append(errs, errors.New("name or model is missing"))
	}
	if c.APIKey == "" && c.Wire == Gemini {
		errs = append(errs, fmt.Errorf("api_key is missing: set %s", w.env))
	}
	return errors.Join(errs...)
}
