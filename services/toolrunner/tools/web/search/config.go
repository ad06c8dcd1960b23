package search

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"skandha.dev/services/internal/secret"
)

// Config chooses a search engine.
type Config struct {
	Engine string // one of Engines; empty: none
	URL    string // base URL of its API; default: that of the service. SearXNG needs it.
	Key    string // as package secret reads it; default: env:BRAVE_API_KEY and so on
}

// engine is what is known about an engine.
type engine struct {
	url string // of the API; empty: there is no default
	key string // the default of Config.Key; empty: it takes no key
	new func(api) Searcher
}

var engines = map[string]engine{
	"searxng": {new: func(a api) Searcher { return searxng{a} }},
	"brave":   {"https://api.search.brave.com", "env:BRAVE_API_KEY", func(a api) Searcher { return brave{a} }},
	"tavily":  {"https://api.tavily.com", "env:TAVILY_API_KEY", func(a api) Searcher { return tavily{a} }},
	"exa":     {"https://api.exa.ai", "env:EXA_API_KEY", func(a api) Searcher { return exa{a} }},
}

// Engines returns the names of the engines, in order.
func Engines() []string { return slices.Sorted(maps.Keys(engines)) }

// Validate reports what is wrong without reading the key; each error names its setting.
func (c Config) Validate() error {
	e, known := engines[c.Engine]
	switch {
	case c.Engine == "" && (c.URL != "" || c.Key != ""):
		return fmt.Errorf("web_search is not set, but its URL or key is; set it to one of %s", strings.Join(Engines(), ", "))
	case c.Engine == "":
		return nil
	case !known:
		return fmt.Errorf("web_search is %q, want one of %s", c.Engine, strings.Join(Engines(), ", "))
	case e.url == "" && c.URL == "":
		return fmt.Errorf("web_search_url is not set; set it to the address of your %s, such as http://127.0.0.1:8888", c.Engine)
	case e.key == "" && c.Key != "":
		return fmt.Errorf("web_search_key is set, but %s takes no key", c.Engine)
	case c.URL == "":
		return nil
	}
	_, err := baseURL(c.URL)
	return err
}

func baseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("web_search_url is no http or https URL with a host, such as http://127.0.0.1:8888")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("web_search_url has a user, a query or a fragment; only scheme, host and path are used")
	}
	return u, nil
}

// New returns the engine; nil without one. It reads the key.
func New(c Config) (Searcher, error) {
	if err := c.Validate(); err != nil || c.Engine == "" {
		return nil, err
	}
	e := engines[c.Engine]
	a := api{name: c.Engine, http: client()}
	var err error
	if a.base, err = baseURL(cmp.Or(c.URL, e.url)); err != nil {
		return nil, err
	}
	if e.key != "" {
		if a.key, err = secret.Read(cmp.Or(c.Key, e.key)); err != nil {
			return nil, fmt.Errorf("web_search_key: %w; %s needs an API key", err, c.Engine)
		}
	}
	if strings.ContainsFunc(a.key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("web_search_key has a character that no key has, such as a space or a line break")
	}
	return e.new(a), nil
}

// KeyFile returns the file that the key is read from; empty if it is not in a file.
func (c Config) KeyFile() string {
	if path, is := strings.CutPrefix(c.Key, "file:"); is {
		return path
	}
	return ""
}

func client() *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10, MaxIdleConns: 4,
			TLSHandshakeTimeout: timeout, IdleConnTimeout: timeout,
		},
	}
}
