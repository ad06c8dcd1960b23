package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"skandha.dev/services/toolrunner/tools/web/search"
)

// searchWait bounds asking a search engine whether it answers.
const searchWait = 5 * time.Second

// How the tools of the web are turned on.
const (
	searchHint = "set SKANDHA_WEB_SEARCH to searxng (with SKANDHA_WEB_SEARCH_URL), brave, tavily or exa; see Configuration, The web"
	fetchHint  = "set SKANDHA_WEB_FETCH to the hosts whose pages may be read, or to * for every public one"
)

var noSearch, noFetch = finding{what: "web:search: not offered", advice: searchHint},
	finding{what: "web:fetch: not offered", advice: fetchHint}

// offeredWeb reports which tools of the web are among those that a tool runner offers.
func offeredWeb(tools []string) []finding {
	offered := func(name string, missing finding) finding {
		if slices.Contains(tools, name) {
			return finding{ok: true, what: name + ": offered"}
		}
		return missing
	}
	return []finding{offered("web:search", noSearch), offered("web:fetch", noFetch)}
}

// configuredWeb reports which tools of the web an embedded system would offer. A SearXNG is
// asked, because it refuses to answer programs by default; the other engines charge for it.
func (g *globals) configuredWeb(ctx context.Context) []finding {
	engine, err := g.Web.Engine()
	searching := noSearch
	switch {
	case err != nil:
		searching = finding{need: true, what: "web:search", advice: err.Error()}
	case engine != nil:
		searching = finding{ok: true, what: "web:search: " + engine.Name()}
		if g.Web.Search == "searxng" {
			ctx, cancel := context.WithTimeout(ctx, searchWait)
			defer cancel()
			if _, err := engine.Search(ctx, search.Query{Text: "skandha", Count: 1}); err != nil {
				searching.ok, searching.advice = false, err.Error()
			}
		}
	}
	fetching := noFetch
	if hosts := slices.Concat(g.Web.Fetch, g.Web.FetchLocal); len(hosts) > 0 {
		fetching = finding{ok: true, what: "web:fetch: " + strings.Join(hosts, ", ")}
	}
	if err := g.Web.CheckHosts(); err != nil {
		fetching = finding{need: true, what: "web:fetch", advice: err.Error()}
	}
	return []finding{searching, fetching}
}
