package web

import (
	"errors"

	"skandha.dev/services/toolrunner/tools"
	"skandha.dev/services/toolrunner/tools/web/guard"
	"skandha.dev/services/toolrunner/tools/web/page"
	"skandha.dev/services/toolrunner/tools/web/search"
)

// Config says which search engine is asked and which pages are read, with the tags of
// github.com/alecthomas/kong. The zero value offers neither tool.
type Config struct {
	Search     string   `env:"SKANDHA_WEB_SEARCH" placeholder:"ENGINE" help:"Search engine of web:search: searxng, brave, tavily or exa. Default: none, and the tool is not offered."`
	SearchURL  string   `env:"SKANDHA_WEB_SEARCH_URL" placeholder:"URL" help:"Base URL of the search engine's API, e.g. http://127.0.0.1:8888. Needed for searxng; default for the others: that of the service."`
	SearchKey  string   `env:"SKANDHA_WEB_SEARCH_KEY" placeholder:"KEY" help:"Its API key: env:NAME, file:PATH or the key itself. Default: env:BRAVE_API_KEY, env:TAVILY_API_KEY or env:EXA_API_KEY."`
	Fetch      []string `env:"SKANDHA_WEB_FETCH" placeholder:"HOST" help:"Hosts whose pages web:fetch may read, e.g. docs.example.com or *.example.com; * is every public host. None: the tool is not offered."`
	FetchLocal []string `env:"SKANDHA_WEB_FETCH_LOCAL" placeholder:"HOST" help:"Hosts that it may also read at addresses of this machine and its network, e.g. wiki.lan:8080. Default: none."`
}

// Hosts are what http:request may reach. Without any, the tool is not offered.
type Hosts struct {
	Allow []string `env:"SKANDHA_HTTP_ALLOW" placeholder:"HOST" help:"Hosts that http:request may reach, e.g. api.example.com or *.example.com:8443. None: the tool is not offered."`
	Local []string `env:"SKANDHA_HTTP_LOCAL" placeholder:"HOST" help:"Hosts that it may also reach at addresses of this machine and its network, e.g. lamp.lan:8123. Default: none."`
}

func (h Hosts) parse() (hosts, locals guard.AllowList, err error) {
	hosts, err = guard.Parse("http_allow", h.Allow)
	locals, localErr := guard.Parse("http_local", h.Local)
	return hosts, locals, errors.Join(err, localErr)
}

// Validate reports what is wrong; each error names its setting.
func (h Hosts) Validate() error {
	_, _, err := h.parse()
	return err
}

// Tools returns http:request, if it may reach anything.
func (h Hosts) Tools() ([]tools.Tool, error) {
	hosts, locals, err := h.parse()
	if err != nil || hosts.Empty() && locals.Empty() {
		return nil, err
	}
	return []tools.Tool{Request(hosts, locals)}, nil
}

// The settings' names in errors.
const (
	fetchSetting      = "web_fetch"
	fetchLocalSetting = "web_fetch_local"
)

func (c Config) search() search.Config {
	return search.Config{Engine: c.Search, URL: c.SearchURL, Key: c.SearchKey}
}

// Engine returns the search engine; nil without one.
func (c Config) Engine() (search.Searcher, error) { return search.New(c.search()) }

// SecretFile returns the file that the key is read from; empty if there is none.
func (c Config) SecretFile() string { return c.search().KeyFile() }

func (c Config) pages() (page.Config, error) {
	hosts, err := guard.ParseAny(fetchSetting, c.Fetch)
	locals, localErr := guard.Parse(fetchLocalSetting, c.FetchLocal)
	return page.Config{Hosts: hosts, Locals: locals}, errors.Join(err, localErr)
}

// Validate reports what is wrong without reading the key; each error names its setting.
func (c Config) Validate() error {
	return errors.Join(c.search().Validate(), c.CheckHosts())
}

// CheckHosts reports what is wrong with the settings of web:fetch.
func (c Config) CheckHosts() error {
	_, err := c.pages()
	return err
}

// Tools returns the tools that are configured.
func (c Config) Tools() ([]tools.Tool, error) {
	engine, err := c.Engine()
	if err != nil {
		return nil, err
	}
	pages, err := c.pages()
	if err != nil {
		return nil, err
	}
	var out []tools.Tool
	if engine != nil {
		out = append(out, search.Tool(engine))
	}
	if !pages.Hosts.Empty() || !pages.Locals.Empty() {
		out = append(out, page.Tool(pages))
	}
	return out, nil
}
