package search

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"skandha.dev/services/internal/nesting"
	"skandha.dev/services/toolrunner/tools/web/source"
)

// maxAnswer bounds the body of an answer, in bytes.
const maxAnswer = 2 << 20

// api is an HTTP API that answers with JSON.
type api struct {
	name string
	base *url.URL
	key  string
	http *http.Client
}

// Name implements Searcher.
func (a api) Name() string { return a.name }

// get asks a path with a query.
func (a api) get(ctx context.Context, path string, q url.Values, h http.Header, into any) error {
	u := a.base.JoinPath(path)
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	return a.ask(req, h, into)
}

// post asks a path with a body of JSON.
func (a api) post(ctx context.Context, path string, body any, h http.Header, into any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base.JoinPath(path).String(), bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return a.ask(req, h, into)
}

func (a api) ask(req *http.Request, h http.Header, into any) error {
	for k, v := range h {
		req.Header[k] = v
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "skandha-toolrunner")
	resp, err := a.http.Do(req)
	if err != nil {
		return a.unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return a.unreachable(err)
	case resp.StatusCode/100 != 2:
		return a.refused(resp, body)
	case len(body) > maxAnswer:
		return fmt.Errorf("%s answered with more than %d bytes; ask for fewer results", a.base.Host, maxAnswer)
	}
	return a.decode(body, into)
}

func (a api) decode(body []byte, into any) error {
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")) {
		return fmt.Errorf("%s answered with HTML instead of JSON; check that web_search_url (SKANDHA_WEB_SEARCH_URL) "+
			"is the address of its API", a.base.Host)
	}
	if err := nesting.Check(body); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", a.base.Host, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("reading the answer of %s: it is not the JSON of %s: %w", a.base.Host, a.name, err)
	}
	return nil
}

// unreachable explains an error of the connection.
func (a api) unreachable(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok { // its text repeats the URL, with the query
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s did not answer in time", a.base.Host)
	}
	return fmt.Errorf("asking %s: %w", a.base.Host, err)
}

// refused explains a status that is no success.
func (a api) refused(resp *http.Response, body []byte) error {
	says := a.detail(body)
	var what string
	switch code := resp.StatusCode; {
	case code/100 == 3:
		what = fmt.Sprintf("%s redirects to %s, which is not followed; set SKANDHA_WEB_SEARCH_URL to the address that answers",
			a.base.Host, target(resp))
	case code == http.StatusUnauthorized, a.rejectsKey(code, says):
		what = a.base.Host + " refuses the API key; check SKANDHA_WEB_SEARCH_KEY"
	case code == http.StatusPaymentRequired, code == 432, code == 433: // the latter two are Tavily's
		what = fmt.Sprintf("the credits or the limit of the plan at %s are used up; raise them there", a.base.Host)
	case code == http.StatusTooManyRequests:
		what = a.base.Host + " limits the rate of requests"
	default:
		what = fmt.Sprintf("%s answered with status %d", a.base.Host, code)
	}
	if wait := retryAfter(resp.Header, time.Now()); wait > 0 {
		what += fmt.Sprintf("; try again in %d seconds", int(wait.Seconds()))
	}
	if says != "" {
		what += "; it says: " + says
	}
	return &statusError{resp.StatusCode, what}
}

// statusError is the refusal of a request.
type statusError struct {
	status int
	what   string
}

func (e *statusError) Error() string { return e.what }

// rejectsKey reports whether Brave rejects the key, which it does with 422.
func (a api) rejectsKey(code int, says string) bool {
	return code == http.StatusUnprocessableEntity && strings.Contains(strings.ToLower(says), "token")
}

func target(resp *http.Response) string {
	to, err := resp.Location()
	if err != nil {
		return "nowhere"
	}
	return source.Line(to.Redacted(), 200)
}

// detail returns what the body of an error says, without the key.
func (a api) detail(body []byte) string {
	var v any
	if nesting.Check(body) != nil || json.Unmarshal(body, &v) != nil {
		return ""
	}
	s := source.Line(message(v), 300)
	if a.key != "" {
		s = strings.ReplaceAll(s, a.key, "***")
	}
	return s
}

// message finds the text of an error in the shapes that APIs use, such as {"error":"…"},
// {"error":{"code":"…","detail":"…"}} and {"detail":{"error":"…"}}.
func message(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case map[string]any:
		var parts []string
		for _, k := range []string{"tag", "code", "error", "detail", "message"} {
			if s := message(v[k]); s != "" {
				parts = append(parts, s)
			}
		}
		return strings.Join(parts, ": ")
	}
	return ""
}

// retryAfter returns how long to wait; 0 if the answer does not say. Brave says it in the
// headers X-RateLimit-Remaining and X-RateLimit-Reset, with one value for each of its limits.
func retryAfter(h http.Header, now time.Time) time.Duration {
	const most = 31 * 24 * time.Hour
	v := h.Get("Retry-After")
	if s, err := strconv.Atoi(v); err == nil {
		return min(time.Duration(max(s, 0))*time.Second, most)
	}
	if t, err := http.ParseTime(v); err == nil {
		return min(max(t.Sub(now), 0), most)
	}
	remaining, reset := strings.Split(h.Get("X-RateLimit-Remaining"), ","), strings.Split(h.Get("X-RateLimit-Reset"), ",")
	var wait time.Duration
	for i := range min(len(remaining), len(reset)) {
		s, err := strconv.Atoi(strings.TrimSpace(reset[i]))
		if err == nil && strings.TrimSpace(remaining[i]) == "0" {
			wait = max(wait, min(time.Duration(max(s, 0))*time.Second, most))
		}
	}
	return wait
}
