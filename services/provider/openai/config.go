package openai

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/openai/openai-go/v3"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/retry"
)

// defaultBaseURL is OpenAI's own API.
const defaultBaseURL = "https://api.openai.com/v1"

// DefaultModel is the model for OpenAI's own API when none is named.
const DefaultModel = sdk.ChatModelGPT5_4Mini

// Key is an API key. It always prints as a placeholder.
type Key string

const hiddenKey = "[key]"

// String hides the key.
func (k Key) String() string {
	if k == "" {
		return ""
	}
	return hiddenKey
}

// GoString hides the key from %#v.
func (k Key) GoString() string { return k.String() }

// MarshalText hides the key from JSON and YAML.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// LogValue hides the key from logs.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// Prices are US dollars per million tokens. All zero: no cost is computed.
type Prices struct {
	Input       float64
	CachedInput float64 // input that the API had in its cache; 0: as Input
	Output      float64
}

// Config of an adapter. Zero fields mean the defaults.
type Config struct {
	// among the adapters of a process
	Name         string `default:"openai"`
	BaseURL      string // default DefaultBaseURL; the path usually ends in /v1
	APIKey       Key    // empty: none is sent
	Organization string // OpenAI's, optional
	Project      string // OpenAI's, optional
	Model        string // default DefaultModel at OpenAI, required elsewhere
	Prices       Prices
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
	wrong := checkURL(c.BaseURL)
	if wrong != nil {
		errs = append(errs, wrong)
	}
	if c.Model == "" && wrong == nil {
		errs = append(errs,
			fmt.Errorf("model is missing: the server at %s has no default; set --model or OPENAI_MODEL", hostOf(c.BaseURL)))
	}
	if c.Prices.Input < 0 || c.Prices.CachedInput < 0 || c.Prices.Output < 0 {
		errs = append(errs, fmt.Errorf("prices are %+v, want US dollars per million tokens, none below 0", c.Prices))
	}
	if strings.ContainsFunc(string(c.APIKey), func(r rune) bool { return r <= ' ' || r > '~' }) {
		errs = append(errs,
			errors.New("api_key contains a space or a character that is not allowed in a header: was it copied completely?"))
	}
	return errors.Join(errs...)
}

func checkURL(base string) error {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return errors.New("base_url is not a URL, want for example https://api.openai.com/v1")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("base_url %q is not an http or https URL, want for example https://api.openai.com/v1", base)
	case u.User != nil:
		return errors.New("base_url contains a user or a password: set OPENAI_API_KEY instead")
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("base_url %q has a query or a fragment, want only the path", u.Redacted())
	}
	return nil
}

func hostOf(base string) string {
	if u, err := url.Parse(base); err == nil {
		return u.Host
	}
	return "that address"
}

// defaultClient has no overall timeout: an answer may take long, and the
// watchdog ends one that went silent.
func defaultClient() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        64,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
	}}
}
