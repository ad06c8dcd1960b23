package anthropic

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
	"skandha.dev/services/provider/retry"
)

// DefaultModel is the latest fast model.
const DefaultModel = sdk.ModelClaudeHaiku5_5

// defaultMaxTokens is the limit of an answer, besides its thinking.
const defaultMaxTokens = 16 << 10

// leastThinking is the smallest budget that the API accepts, in tokens.
const leastThinking = 1024

// Config of an adapter. Zero fields mean the defaults.
type Config struct {
	// among the adapters of a process
	Name string `default:"anthropic"`
	// without the API's version
	BaseURL string      `default:"https://api.anthropic.com"`
	APIKey  httpapi.Key // required
	Model   string      // default DefaultModel
	// limit of an answer, in tokens, when the request has none; thinking counts. Default
	// 16384, and ThinkingTokens on top of that
	MaxTokens int `min:"0"`
	// budget for thinking, in tokens; 0: the model's default, which is none up to Claude 4.8
	ThinkingTokens int `min:"0"`
	Limits         adapter.Limits
	// silence after which an answer is abandoned; reasoning models think long
	Stall      time.Duration `default:"3m" min:"0"`
	Retry      retry.Config
	HTTPClient *http.Client // optional; redirects are never followed
}

// WithDefaults replaces zero fields.
func (c Config) WithDefaults() Config {
	c = bounds.Filled(c)
	if c.Model == "" {
		c.Model = DefaultModel
	}
	if c.MaxTokens == 0 {
		c.MaxTokens = defaultMaxTokens + c.ThinkingTokens
	}
	return c
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.WithDefaults()
	errs := []error{
		bounds.Check("", c), c.APIKey.Validate(),
		httpapi.CheckURL(c.BaseURL, Config{}.WithDefaults().BaseURL, "ANTHROPIC_API_KEY"),
	}
	if c.APIKey == "" {
		errs = append(errs, errors.New("api_key is missing: set ANTHROPIC_API_KEY"))
	}
	if n := c.ThinkingTokens; n > 0 && (n < leastThinking || n >= c.MaxTokens) {
		errs = append(errs, fmt.Errorf("thinking_tokens is %d, want 0, or at least %d and less than max_tokens, %d", n,
			leastThinking, c.MaxTokens))
	}
	return errors.Join(errs...)
}
