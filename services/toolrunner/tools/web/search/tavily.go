package search

import (
	"context"
	"net/http"
)

// tavily asks the Tavily API: POST /search
// (https://docs.tavily.com/documentation/api-reference/endpoint/search).
type tavily struct{ api }

type tavilyQuery struct {
	Query      string    `json:"query"`
	MaxResults int       `json:"max_results"`
	TimeRange  Freshness `json:"time_range,omitempty"`
}

type tavilyAnswer struct {
	Results []struct {
		Title     string `json:"title"`
		URL       string `json:"url"`
		Content   string `json:"content"`
		Published string `json:"published_date"`
	} `json:"results"`
}

// Search implements Searcher.
func (s tavily) Search(ctx context.Context, q Query) (Answer, error) {
	var a tavilyAnswer
	h := http.Header{"Authorization": {"Bearer " + s.key}}
	if err := s.post(ctx, "search", tavilyQuery{q.Text, q.Count, q.Freshness}, h, &a); err != nil {
		return Answer{}, err
	}
	var out Answer
	for _, r := range a.Results {
		out.found("tavily", r.Title, r.URL, r.Content, r.Published)
	}
	return out, nil
}
