package search

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// exa asks the Exa API: POST /search (https://exa.ai/docs/reference/search). It takes a date
// instead of an age.
type exa struct{ api }

type exaQuery struct {
	Query      string      `json:"query"`
	NumResults int         `json:"numResults"`
	Since      string      `json:"startPublishedDate,omitempty"`
	Contents   exaContents `json:"contents"`
}

type exaContents struct {
	Highlights exaHighlights `json:"highlights"`
}

type exaHighlights struct {
	MaxCharacters int `json:"maxCharacters"`
}

type exaAnswer struct {
	Results []struct {
		Title      string   `json:"title"` // may be null
		URL        string   `json:"url"`
		Highlights []string `json:"highlights"`
		Published  string   `json:"publishedDate"`
	} `json:"results"`
}

// Search implements Searcher.
func (s exa) Search(ctx context.Context, q Query) (Answer, error) {
	ask := exaQuery{Query: q.Text, NumResults: q.Count, Contents: exaContents{exaHighlights{maxSnippet}}}
	if q.Freshness != "" {
		ask.Since = since(q.Freshness, time.Now()).UTC().Format(time.RFC3339)
	}
	var a exaAnswer
	if err := s.post(ctx, "search", ask, http.Header{"X-Api-Key": {s.key}}, &a); err != nil {
		return Answer{}, err
	}
	var out Answer
	for _, r := range a.Results {
		out.found("exa", r.Title, r.URL, strings.Join(r.Highlights, " … "), r.Published)
	}
	return out, nil
}

// since returns the date from which a page is fresh.
func since(f Freshness, now time.Time) time.Time {
	switch f {
	case Day:
		return now.AddDate(0, 0, -1)
	case Week:
		return now.AddDate(0, 0, -7)
	case Month:
		return now.AddDate(0, -1, 0)
	case Year:
		return now.AddDate(-1, 0, 0)
	}
	return time.Time{}
}
