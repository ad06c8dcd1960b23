package gemini

import (
	"errors"
	"net/http"
	"time"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
	"skandha.dev/services/provider/retry"
)

// Config of an adapter. Zero fields mean the defaults.
type Config struct {
	// among the adapters of a process
	Name string `default:"gemini"`
	// without the API's version
	BaseURL string      `default:"https://generativelanguage.googleapis.com"`
	APIKey  httpapi.Key // required
	// the latest fast model
	Model  string `default:"gemini-flash-latest"`
	Limits adapter.Limits
	// silence after which an answer is abandoned; reasoning models think long
	Stall      time.Duration `default:"3m" min:"0"`
	Retry      retry.Config
	HTTPClient *http.Client // optional; redirects are never followed
}

// WithDefaults replaces zero fields.
func (c Config) WithDefaults() Config { return bounds.Filled(c) }

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.WithDefaults()
	errs := []error{
		bounds.Check("", c), c.APIKey.Validate(),
		httpapi.CheckURL(c.BaseURL, Config{}.WithDefaults().BaseURL, "GEMINI_API_KEY"),
	}
	if c.APIKey == "" {
		errs = append(errs, errors.New("api_key is missing: set GEMINI_API_KEY"))
	}
	return errors.Join(errs...)
}
