package search

import (
	"context"
	"html"
	"net/http"
	"net/url"
	"strconv"
)

// brave asks the Brave Search API: GET /res/v1/web/search
// (https://api-dashboard.search.brave.com/app/documentation/web-search).
type brave struct{ api }

type braveAnswer struct {
	Web struct {
		Results []struct {
			Title       string `json:"title"`
			URL         string `json:"url"`
			Description string `json:"description"`
			PageAge     string `json:"page_age"`
		} `json:"results"`
	} `json:"web"`
}

var braveFreshness = map[Freshness]string{Day: "pd", Week: "pw", Month: "pm", Year: "py"}

// Search implements Searcher.
func (s brave) Search(ctx context.Context, q Query) (Answer, error) {
	v := url.Values{
		"q": {q.Text}, "count": {strconv.Itoa(q.Count)}, "result_filter": {"web"}, "text_decorations": {"false"},
	}
	if f := braveFreshness[q.Freshness]; f != "" {
		v.Set("freshness", f)
	}
	var a braveAnswer
	h := http.Header{"X-Subscription-Token": {s.key}}
	if err := s.get(ctx, "res/v1/web/search", v, h, &a); err != nil {
		return Answer{}, err
	}
	var out Answer
	for _, r := range a.Web.Results { // its texts are HTML
		out.found("brave", html.UnescapeString(r.Title), r.URL, html.UnescapeString(r.Description), r.PageAge)
	}
	return out, nil
}
