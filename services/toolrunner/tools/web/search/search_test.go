package search

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/toolrunner/tools"
)

const key = "s3cret-key"

// engineAt returns an engine whose API a handler answers for.
func engineAt(t *testing.T, name string, h http.HandlerFunc) Searcher {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c := Config{Engine: name, URL: srv.URL + "/base"}
	if name != "searxng" {
		c.Key = key
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func answering(status int, header http.Header, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for k, v := range header {
			w.Header()[k] = v
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func recorded(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func run(t *testing.T, s Searcher, a args) (data, tool.Result) {
	t.Helper()
	raw, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	r := Tool(s).Run(t.Context(), tools.Call{Args: raw})
	var d data
	if r.Success {
		if err := json.Unmarshal(r.Data, &d); err != nil {
			t.Fatal(err)
		}
	}
	return d, r
}

// Each engine is asked as its documentation says, and its answer is read.
func TestTheWireOfEachEngine(t *testing.T) {
	for name, c := range map[string]struct {
		request string   // method, path, query or body, and the header with the key
		sources []string // n, title, url, date, engine, snippet
	}{
		"searxng": {
			"GET /base/search?format=json&q=go+modules&time_range=week",
			[]string{
				"1 Go Modules Reference|https://go.dev/ref/mod||google|Modules are how Go manages dependencies.",
				"2 使用 Go 模块|https://example.cn/模块|2025-03-04|bing|模块是相关 Go 包的集合。",
			},
		},
		"brave": {
			"GET /base/res/v1/web/search?count=2&freshness=pw&q=go+modules&result_filter=web&text_decorations=false " + key,
			[]string{
				"1 Modules & you|https://go.dev/ref/mod|2025-04-12|brave|It's how Go manages dependencies.",
				"2 example.com|https://example.com/untitled||brave|",
			},
		},
		"tavily": {
			`POST /base/search {"query":"go modules","max_results":2,"time_range":"week"} Bearer ` + key,
			[]string{"1 Go Modules|https://go.dev/ref/mod|2025-03-11|tavily|Modules are how Go manages dependencies."},
		},
		"exa": {
			`POST /base/search {"query":"go modules","numResults":2,"startPublishedDate":"…","contents":{"highlights":{"maxCharacters":600}}} ` + key,
			[]string{"1 Go Modules|https://go.dev/ref/mod|2023-11-16|exa|Modules are how Go manages dependencies. … A module has a version."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked string
			s := engineAt(t, name, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				parts := []string{r.Method, r.URL.RequestURI(), dateless(string(body))}
				for _, k := range []string{"X-Subscription-Token", "Authorization", "X-Api-Key"} {
					parts = append(parts, r.Header.Get(k))
				}
				asked = strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " ")
				_, _ = io.WriteString(w, recorded(t, name))
			})
			d, r := run(t, s, args{Query: "go modules", Count: 2, Freshness: Week})
			if asked != c.request {
				t.Errorf("asked\n%s\nwant\n%s", asked, c.request)
			}
			var got []string
			for _, s := range d.Sources {
				address, err := url.PathUnescape(s.URL)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%d %s|%s|%s|%s|%s", s.N, s.Title, address, s.Published, s.Engine, s.Snippet))
			}
			if !slices.Equal(got, c.sources) {
				t.Errorf("got\n%s\nwant\n%s (%v)", strings.Join(got, "\n"), strings.Join(c.sources, "\n"), r.Error)
			}
		})
	}
}

// dateless replaces the date of a request, which depends on the clock.
func dateless(body string) string {
	before, rest, found := strings.Cut(body, `"startPublishedDate":"`)
	if !found {
		return body
	}
	_, after, _ := strings.Cut(rest, `"`)
	return before + `"startPublishedDate":"…"` + after
}

// What an engine answers instead of results is explained, with what to do about it.
func TestFaultsAreExplained(t *testing.T) {
	const html = "<!DOCTYPE html><title>x</title>"
	wait := http.Header{"Retry-After": {"30"}}
	for name, c := range map[string]struct {
		engine string
		answer http.HandlerFunc
		want   []string
	}{
		"SearXNG without JSON": {
			"searxng", answering(403, nil, html),
			[]string{"status 403", "settings.yml", "search.formats", "formats: [html, json]"},
		},
		"SearXNG's limiter": {"searxng", answering(429, wait, "Too Many Requests"), []string{"rate", "30 seconds"}},
		"SearXNG of old":    {"searxng", answering(400, nil, `{"error":"Invalid value \"week\" for parameter time_range"}`), []string{"status 400", "time_range"}},
		"HTML":              {"searxng", answering(200, nil, html), []string{"HTML instead of JSON", "SKANDHA_WEB_SEARCH_URL"}},
		"a redirect": {
			"searxng", answering(301, http.Header{"Location": {"https://other.example/search?q=x"}}, ""),
			[]string{"redirects to https://other.example/search", "SKANDHA_WEB_SEARCH_URL"},
		},
		"no JSON":    {"searxng", answering(200, nil, "hello"), []string{"not the JSON of searxng"}},
		"other JSON": {"searxng", answering(200, nil, `{"results":{"a":1}}`), []string{"not the JSON of searxng"}},
		"Brave's bad key": {
			"brave",
			answering(422, nil, `{"type":"ErrorResponse","error":{"id":"1","status":422,"code":"SUBSCRIPTION_TOKEN_INVALID","detail":"The provided subscription token is invalid."}}`),
			[]string{"refuses the API key", "SKANDHA_WEB_SEARCH_KEY", "subscription token is invalid"},
		},
		"Brave's bad query": {
			"brave", answering(422, nil, `{"type":"ErrorResponse","error":{"code":"VALIDATION","detail":"Unable to validate request parameter(s)"}}`),
			[]string{"status 422", "VALIDATION", "Unable to validate"},
		},
		"Brave's limit": {
			"brave", answering(429, http.Header{"X-Ratelimit-Remaining": {"0, 1200"}, "X-Ratelimit-Reset": {"2, 1419704"}},
				`{"type":"ErrorResponse","error":{"code":"RATE_LIMITED","detail":"Request rate limit exceeded for plan."}}`),
			[]string{"rate", "2 seconds", "RATE_LIMITED"},
		},
		"Tavily's bad key": {
			"tavily", answering(401, nil, `{"detail":{"error":"Unauthorized: missing or invalid API key."}}`),
			[]string{"refuses the API key", "missing or invalid"},
		},
		"Tavily's plan": {
			"tavily", answering(432, nil, `{"detail":{"error":"This request exceeds your plan's set usage limit."}}`),
			[]string{"used up", "exceeds your plan"},
		},
		"Exa's credits": {
			"exa", answering(402, nil, `{"requestId":"1","error":"You have exceeded your credits","tag":"NO_MORE_CREDITS"}`),
			[]string{"used up", "NO_MORE_CREDITS"},
		},
		"a key in an error": {"exa", answering(500, nil, `{"error":"key `+key+` is odd"}`), []string{"status 500", "key *** is odd"}},
		"a huge answer": {
			"exa", func(w http.ResponseWriter, _ *http.Request) {
				for range maxAnswer/1000 + 2 {
					_, _ = io.WriteString(w, strings.Repeat(" ", 1000))
				}
			}, []string{"more than"},
		},
		"a deep answer": {"exa", answering(200, nil, strings.Repeat("[", 100_000)), []string{"nested"}},
		"half an answer": {
			"tavily", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, `{"results":[`)
			}, []string{"unexpected EOF"},
		},
		"no answer": {"tavily", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, []string{"asking 127.0.0.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, r := run(t, engineAt(t, c.engine, c.answer), args{Query: "a private question", Count: 3})
			if r.Success || r.Error.Code != tool.CodeFailed {
				t.Fatalf("got %+v", r)
			}
			for _, want := range append(c.want, "searching with "+c.engine) {
				if !strings.Contains(r.Error.Message, want) {
					t.Errorf("%q is missing in %q", want, r.Error.Message)
				}
			}
			if strings.Contains(r.Error.Message, key) || strings.Contains(r.Error.Message, "private") {
				t.Errorf("the error contains the key or the query: %q", r.Error.Message)
			}
		})
	}
}

// The key is sent to the configured host only.
func TestARedirectDoesNotGetTheKey(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was followed") }))
	t.Cleanup(other.Close)
	for _, name := range Engines() {
		_, r := run(t, engineAt(t, name, answering(307, http.Header{"Location": {other.URL}}, "")), args{Query: "q", Count: 1})
		if r.Success {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}

func TestAnEngineThatHangsIsGivenUp(t *testing.T) {
	gone := make(chan struct{})
	s := engineAt(t, "searxng", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done(); close(gone) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Search(ctx, Query{Text: "q", Count: 1}); err == nil || !strings.Contains(err.Error(), "did not answer in time") {
		t.Fatalf("got %v", err)
	}
	<-gone
}

func TestNothingFoundIsAnAnswer(t *testing.T) {
	s := engineAt(t, "searxng", answering(200, nil, `{"results":[],"unresponsive_engines":[["google","CAPTCHA"],["bing","timeout"]]}`))
	d, r := run(t, s, args{Query: "q", Count: 5})
	if !r.Success || len(d.Sources) != 0 || !strings.Contains(d.Note, "nothing was found") ||
		!strings.Contains(d.Note, "google: CAPTCHA, bing: timeout") || !strings.Contains(string(r.Data), `"sources":[]`) {
		t.Fatalf("got %s", r.Data)
	}
}

// Only links that can be shown become sources, each once, and no more than were asked for.
func TestSourcesAreSafeAndNumbered(t *testing.T) {
	s := engineAt(t, "exa", answering(200, nil, `{"results":[
		{"title":"a","url":"javascript:alert(1)"},{"title":null,"url":"https://a.example/x"},{"title":"b","url":"https://u:p@b.example/"},
		{"title":"again","url":"https://a.example/x"},{"title":"c","url":"file:///etc/passwd"},{"title":" d\n e ","url":"http://d.example"},
		{"title":"f","url":"https://f.example"},{"title":"g","url":"https://g.example"}]}`))
	d, _ := run(t, s, args{Query: "q", Count: 3})
	var got []string
	for _, s := range d.Sources {
		got = append(got, fmt.Sprint(s.N, " ", s.Title, " ", s.URL))
	}
	want := []string{"1 a.example https://a.example/x", "2 d e http://d.example", "3 f https://f.example"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestAnAnswerFitsAResult(t *testing.T) {
	for name, item := range map[string]string{
		"snippets": `{"title":"t","url":"https://a.example/%d","highlights":["` + strings.Repeat("<&語", 3000) + `"]}`,
		"links":    `{"title":"` + strings.Repeat("<", 3000) + `","url":"https://a.example/%d/` + strings.Repeat("&a", 900) + `"}`,
	} {
		var items []string
		for i := range 20 {
			items = append(items, fmt.Sprintf(item, i))
		}
		s := engineAt(t, "exa", answering(200, nil, `{"results":[`+strings.Join(items, ",")+`]}`))
		d, r := run(t, s, args{Query: strings.Repeat("<", 400), Count: 20})
		if !r.Success || len(r.Data) > result.MaxData || len(d.Sources) == 0 {
			t.Errorf("%s: %d bytes, %d sources, %v", name, len(r.Data), len(d.Sources), r.Error)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		h    http.Header
		want time.Duration
	}{
		{http.Header{}, 0},
		{http.Header{"Retry-After": {"7"}}, 7 * time.Second},
		{http.Header{"Retry-After": {"-7"}}, 0},
		{http.Header{"Retry-After": {"99999999999"}}, 31 * 24 * time.Hour},
		{http.Header{"Retry-After": {"Fri, 02 Jan 2026 03:05:05 GMT"}}, time.Minute},
		{http.Header{"X-Ratelimit-Remaining": {"1, 0"}, "X-Ratelimit-Reset": {"1, 60"}}, time.Minute},
		{http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"x"}}, 0},
	} {
		if got := retryAfter(c.h, now); got != c.want {
			t.Errorf("%v: %v, want %v", c.h, got, c.want)
		}
	}
}

func TestSince(t *testing.T) {
	now := time.Date(2026, 3, 15, 0, 0, 0, 0, time.UTC)
	for f, want := range map[Freshness]string{Day: "2026-03-14", Week: "2026-03-08", Month: "2026-02-15", Year: "2025-03-15"} {
		if got := since(f, now).Format(time.DateOnly); got != want {
			t.Errorf("%s: %s, want %s", f, got, want)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{
		{Engine: "gogle"},
		{URL: "http://x"},
		{Key: "k"},
		{Engine: "searxng"},
		{Engine: "searxng", URL: "x"},
		{Engine: "searxng", URL: "ftp://x"},
		{Engine: "searxng", URL: "http://u:p@x"},
		{Engine: "searxng", URL: "http://x?q=1"},
		{Engine: "searxng", URL: "http://x", Key: "k"},
		{Engine: "brave", URL: "::"},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "web_search") {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	t.Setenv("SKANDHA_TEST_KEY", "k")
	t.Setenv("BRAVE_API_KEY", "")
	for _, c := range []Config{{}, {Engine: "brave", Key: "env:SKANDHA_TEST_KEY"}, {Engine: "searxng", URL: "http://localhost:8888/x/"}} {
		if _, err := New(c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for want, c := range map[string]Config{
		"BRAVE_API_KEY is not set": {Engine: "brave"}, "a character that no key has": {Engine: "exa", Key: "a\nb"},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	if f := (Config{Key: "file:/x"}).KeyFile(); f != "/x" {
		t.Errorf("the file is %q", f)
	}
}

// Whatever an engine answers, there is an error or an answer that fits.
func FuzzAnswers(f *testing.F) {
	for _, name := range Engines() {
		b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(name, 200, b)
	}
	f.Add("brave", 422, []byte(`{"error":{"code":"X","detail":["a",1]}}`))
	f.Fuzz(func(t *testing.T, name string, status int, body []byte) {
		e, known := engines[name]
		if !known || status < 200 || status > 599 {
			t.Skip()
		}
		s := e.new(api{name: name, base: &url.URL{Scheme: "http", Host: "h"}, key: key, http: &http.Client{Transport: reply{status, body}}})
		r := Tool(s).Run(t.Context(), tools.Call{Args: json.RawMessage(`{"query":"q","count":20}`)})
		if len(r.Data) > result.MaxData || r.Success == (r.Error != nil) {
			t.Fatalf("got %d bytes, %+v", len(r.Data), r.Error)
		}
	})
}

// reply answers every request.
type reply struct {
	status int
	body   []byte
}

func (r reply) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: r.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(r.body))),
	}, nil
}
