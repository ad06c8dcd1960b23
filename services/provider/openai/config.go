package openai

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
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

// API is the wire protocol that an adapter speaks.
type API string

// The protocols.
const (
	Chat      API = "chat"      // chat completions: OpenAI's, and that of every compatible server
	Responses API = "responses" // OpenAI's own, which keeps a model's reasoning between tool calls
)

// Config of an adapter. Zero fields mean the defaults.
type Config struct {
	// among the adapters of a process
	Name         string      `default:"openai"`
	BaseURL      string      // default DefaultBaseURL; the path usually ends in /v1
	API          API         // default Responses at OpenAI, Chat elsewhere
	APIKey       httpapi.Key // empty: none is sent
	Organization string      // OpenAI's, optional
	Project      string      // OpenAI's, optional
	Model        string      // default DefaultModel at OpenAI, required elsewhere
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
	if c.API == "" {
		c.API = Chat
		if ownHost(c.BaseURL) {
			c.API = Responses
		}
	}
	return c
}

// ownHost reports whether a base URL is one of OpenAI's own.
func ownHost(base string) bool {
	host := "." + strings.ToLower(httpapi.Host(base))
	return strings.HasSuffix(host, ".openai.com")
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
	if c.API != Chat && c.API != Responses {
		errs = append(errs, fmt.Errorf("api is %q, want %s or %s; set OPENAI_API", c.API, Chat, Responses))
	}
	return errors.Join(append(errs, c.APIKey.Validate())...)
}
