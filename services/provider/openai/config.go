package openai

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	sdk "github.com/openai/openai-go/v3"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
	"skandha.dev/services/provider/retry"
)

// defaultBaseURL is OpenAI's own API.
const defaultBaseURL = "https://api.openai.com/v1"

// DefaultModel is the model for OpenAI's own API when none is named.
const DefaultModel = sdk.ChatModelGPT5_4Mini

// Config of an adapter. Zero fields mean the defaults.
type Config struct {
	// among the adapters of a process
	Name         string      `default:"openai"`
	BaseURL      string      // default DefaultBaseURL; the path usually ends in /v1
	APIKey       httpapi.Key // empty: none is sent
	Organization string      // OpenAI's, optional
	Project      string      // OpenAI's, optional
	Model        string      // default DefaultModel at OpenAI, required elsewhere
	Prices       httpapi.Prices
	Limits       adapter.Limits
	// silence after which an answer is abandoned; reasoning models think long
	Stall      time.Duration `default:"3m" min:"0"`
	Retry      retry.Config
	HTTPClient *http.Client // optional; redirects are never followed
}

// WithDefaults replaces zero fields.
func (c Config) WithDefaults() Config {
	c = bounds.Filled(c)
	if c.BaseURL == "" {
		c.BaseURL = defaultBaseURL
	}
	if c.Model == "" && c.BaseURL == defaultBaseURL {
		c.Model = DefaultModel
	}
	return c
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.WithDefaults()
	errs := []error{bounds.Check("", c)}
	wrong := httpapi.CheckURL(c.BaseURL, defaultBaseURL, "OPENAI_API_KEY")
	if wrong != nil {
		errs = append(errs, wrong)
	}
	if c.Model == "" && wrong == nil {
		errs = append(errs,
			fmt.Errorf("model is missing: the server at %s has no default; set --model or OPENAI_MODEL", httpapi.Host(c.BaseURL)))
	}
	return errors.Join(append(errs, c.Prices.Validate(), c.APIKey.Validate())...)
}
