package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

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

// Validate reports a key that cannot be sent in a header.
func (k Key) Validate() error {
	if strings.ContainsFunc(string(k), func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("api_key contains a space or a character that is not allowed in a header: was it copied completely?")
	}
	return nil
}

// CheckURL reports why a base URL cannot be used; example is a right one, and env the
// variable that the key belongs into. The error does not quote the URL, which may contain a
// password or a key.
func CheckURL(base, example, env string) error {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return fmt.Errorf("base_url is not a URL, want for example %s", example)
	case u.User != nil:
		return fmt.Errorf("base_url contains a user or a password: set %s instead", env)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("base_url is not an http or https URL, want for example %s", example)
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("base_url has a query or a fragment, want only the path; a key belongs into %s", env)
	}
	return nil
}

// Host returns the host of a base URL, for messages.
func Host(base string) string {
	if u, err := url.Parse(base); err == nil {
		return u.Host
	}
	return "that address"
}

// Client returns a client like c, or the default one if c is nil, that follows no redirect:
// it would send the key elsewhere.
func Client(c *http.Client) *http.Client {
	if c == nil {
		c = defaultClient()
	}
	client := *c
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client
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
