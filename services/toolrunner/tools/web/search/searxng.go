package search

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"skandha.dev/services/toolrunner/tools/web/source"
)

// searxng asks a SearXNG server: GET /search?format=json
// (https://docs.searxng.org/dev/search_api.html). It does not take a number of results.
type searxng struct{ api }

type searxngAnswer struct {
	Results []struct {
		Title     string  `json:"title"`
		URL       string  `json:"url"`
		Content   string  `json:"content"`
		Engine    string  `json:"engine"`
		Published *string `json:"publishedDate"`
	} `json:"results"`
	Unresponsive [][]string `json:"unresponsive_engines"` // each a name and a reason
}

// Search implements Searcher.
func (s searxng) Search(ctx context.Context, q Query) (Answer, error) {
	v := url.Values{"q": {q.Text}, "format": {"json"}}
	if q.Freshness != "" {
		v.Set("time_range", string(q.Freshness))
	}
	var a searxngAnswer
	if err := s.get(ctx, "search", v, nil, &a); err != nil {
		return Answer{}, s.explained(err)
	}
	var out Answer
	for _, r := range a.Results {
		published := ""
		if r.Published != nil {
			published = *r.Published
		}
		out.found(r.Engine, r.Title, r.URL, r.Content, published)
	}
	if silent := a.silent(); silent != "" {
		out.Note = "engines of this SearXNG that did not answer: " + silent
	}
	return out, nil
}

func (a searxngAnswer) silent() string {
	var out []string
	for _, e := range a.Unresponsive {
		out = append(out, source.Line(strings.Join(e, ": "), 100))
	}
	return strings.Join(out, ", ")
}

// explained says what to change: by default SearXNG offers HTML only, and answers 403.
func (s searxng) explained(err error) error {
	if r, ok := errors.AsType[*statusError](err); ok && r.status == http.StatusForbidden {
		return fmt.Errorf("%w; SearXNG offers JSON only if its settings.yml lists it: "+
			"add json to search.formats (search: {formats: [html, json]}) and restart SearXNG", err)
	}
	return err
}
