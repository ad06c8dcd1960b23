package search

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/toolrunner/tools"
	"skandha.dev/services/toolrunner/tools/web/source"
)

// The bounds of a search.
const (
	timeout    = 20 * time.Second
	maxCount   = 20
	maxSnippet = 600 // of one result, in bytes
)

// Searcher asks one search engine.
type Searcher interface {
	// Name is the engine's name in the configuration.
	Name() string
	// Search returns at most q.Count sources, the best first. An answer without sources is no error.
	Search(ctx context.Context, q Query) (Answer, error)
}

// Query is what to search for.
type Query struct {
	Text      string
	Count     int       // 1 to 20
	Freshness Freshness // empty: any age
}

// Freshness is the greatest age of a page.
type Freshness string

// The ages that every engine can ask for.
const (
	Day   Freshness = "day"
	Week  Freshness = "week"
	Month Freshness = "month"
	Year  Freshness = "year"
)

// Answer is what an engine found.
type Answer struct {
	Sources []source.Source
	Note    string // what the model should know, such as engines that did not answer
}

type args struct {
	Query     string    `json:"query"`
	Count     int       `json:"count"`
	Freshness Freshness `json:"freshness"`
}

// data is a result's data.
type data struct {
	Query   string          `json:"query"`
	Sources []source.Source `json:"sources"`
	Note    string          `json:"note,omitempty"`
}

// Tool returns the tool web:search.
func Tool(s Searcher) tools.Tool {
	return tools.New(tool.Spec{
		Name: "web:search",
		Description: "Searches the web and answers numbered sources, each with title, url, a snippet of its text and, " +
			"if known, the date of publication. Snippets are short and may mislead: read a page before you rely on it. " +
			"Cite each source that your answer uses as a link [n](url), with its number and url.",
		Args: json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{
			"query":{"type":"string","minLength":1,"maxLength":400},
			"count":{"type":"integer","minimum":1,"maximum":%d,"default":5,"description":"how many sources"},
			"freshness":{"enum":["day","week","month","year"],"description":"only pages of the last day, week, month or year"}},
			"required":["query"],"additionalProperties":false}`, maxCount)),
		Idempotent: true, Risk: tool.RiskLow, Permissions: []string{"network.search"}, Scope: []string{"query"},
		ScenarioTags: []string{"information_retrieval"}, TimeoutMS: (timeout + 10*time.Second).Milliseconds(),
	}, func(ctx context.Context, _ tools.Call, a args) tool.Result {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		found, err := s.Search(ctx, Query{Text: a.Query, Count: a.Count, Freshness: a.Freshness})
		if err != nil {
			return tools.Fail(fmt.Errorf("searching with %s: %w", s.Name(), err))
		}
		return tool.OK(fitted(a, found))
	})
}

// fitted returns the answer as data that a result holds uncut.
func fitted(a args, found Answer) data {
	d := data{Query: a.Query, Sources: numbered(found.Sources, a.Count), Note: text.Cut(found.Note, maxSnippet)}
	if len(d.Sources) == 0 {
		d.Note = joined("nothing was found; try other words", d.Note)
	}
	for limit := maxSnippet; ; limit /= 2 {
		for i := range d.Sources {
			d.Sources[i].Snippet = text.Cut(d.Sources[i].Snippet, limit)
		}
		if b, err := json.Marshal(d); err != nil || len(b) <= result.MaxData {
			return d
		}
		if limit < 50 { // addresses and titles fill it
			d.Sources = d.Sources[:len(d.Sources)-1]
		}
	}
}

// numbered returns the first sources, each page once.
func numbered(in []source.Source, count int) []source.Source {
	out := []source.Source{}
	seen := map[string]bool{}
	for _, s := range in {
		if seen[s.URL] || len(out) == count {
			continue
		}
		seen[s.URL] = true
		s.N = len(out) + 1
		out = append(out, s)
	}
	return out
}

func joined(a, b string) string {
	if b == "" {
		return a
	}
	return a + "; " + b
}

// found adds a source with what an engine says of it, unless it is no page that can be shown.
func (a *Answer) found(engine, title, address, snippet, published string) {
	s, ok := source.New(title, address)
	if !ok {
		return
	}
	s.Snippet, s.Published, s.Engine = source.Line(snippet, maxSnippet), source.Date(published), source.Line(engine, 40)
	a.Sources = append(a.Sources, s)
}
