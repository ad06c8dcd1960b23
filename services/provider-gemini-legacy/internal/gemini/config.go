package gemini

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The defaults of [Config].
const (
	DefaultModel   = "gemini-flash-latest"
	DefaultBaseURL = "https://generativelanguage.googleapis.com"
	DefaultStall   = 3 * time.Minute
)

// Config of a model. Zero fields mean the defaults.
type Config struct {
	APIKey  string // required
	Model   string // for requests that name none
	BaseURL string // without the API's version
	Stall   time.Duration
	// Transport sends the requests; default [http.DefaultTransport].
	Transport http.RoundTripper
}

// FromEnv reads the configuration from environment variables.
func FromEnv(env func(string) string) Config {
	return Config{
		APIKey:  cmp.Or(env("GEMINI_API_KEY"), env("GOOGLE_API_KEY")),
		Model:   env("GEMINI_MODEL"),
		BaseURL: env("GOOGLE_GEMINI_BASE_URL"),
	}
}

func (c Config) withDefaults() Config {
	c.Model, c.BaseURL = cmp.Or(c.Model, DefaultModel), cmp.Or(c.BaseURL, DefaultBaseURL)
	c.Stall = cmp.Or(c.Stall, DefaultStall)
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	if c.Transport == nil {
		c.Transport = http.DefaultTransport
	}
	return c
}

// Validate reports everything that is wrong; each error names the variable.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{checkKey(c.APIKey), checkBase(c.BaseURL)}
	if !isModel(c.Model) {
		errs = append(errs, fmt.Errorf("GEMINI_MODEL is %q, which is not a model's name; the default is %s", c.Model,
			DefaultModel))
	}
	return errors.Join(errs...)
}

func checkKey(key string) error {
	switch {
	case key == "":
		return errors.New("GEMINI_API_KEY is not set, and neither is GOOGLE_API_KEY; " +
			"set one of them to a key of the Gemini API")
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("GEMINI_API_KEY or GOOGLE_API_KEY contains a space or a character that no key has; " +
			"copy the key again")
	}
	return nil
}

// checkBase does not repeat a URL that may contain a password.
func checkBase(base string) error {
	u, err := url.Parse(base)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return fmt.Errorf("GOOGLE_GEMINI_BASE_URL is not an http or https URL; the default is %s", DefaultBaseURL)
	case u.User != nil:
		return errors.New("GOOGLE_GEMINI_BASE_URL contains a user or a password; set GEMINI_API_KEY instead")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("GOOGLE_GEMINI_BASE_URL has a query or a fragment; leave it out")
	}
	return nil
}

// isModel reports whether a name can be a part of the request's path.
func isModel(name string) bool {
	return !strings.Contains(name, "..") && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("?&#%\\:", r)
	})
}
