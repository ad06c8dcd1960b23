package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

// The bounds of one request.
const (
	maxBody   = 2 << 20  // of a response, in bytes; the rest is not read
	maxHeader = 64 << 10 // of a response, in bytes
	timeout   = 60 * time.Second
)

// headersForModel are the headers of a response that are useful to a model.
var headersForModel = []string{
	"Content-Type", "Content-Language", "Last-Modified", "Etag", "Location", "Retry-After", "Link", "Date",
}

// forbidden are the headers that belong to the connection or to this client.
var forbidden = []string{
	"Host", "Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Content-Length", "Expect", "Accept-Encoding",
}

type requestArgs struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// Request makes HTTP requests to the hosts of the list.
func Request(allow AllowList) tools.Tool {
	return request(allow, control)
}

func request(allow AllowList, control func(network, address string, c syscall.RawConn) error) tools.Tool {
	c := newClient(allow, control)
	return tools.New(tool.Spec{
		Name: "http:request",
		Description: fmt.Sprintf("Sends an HTTP request to a host that is allowed and answers status, "+
			"headers and the text of the body, of which at most %d bytes are read. "+
			"A status of 400 or more is an answer too, not a failure. Redirects are not followed: "+
			"request their location in another call.", maxBody),
		Args: json.RawMessage(`{"type":"object","properties":{
			"method":{"enum":["GET","HEAD","POST","PUT","PATCH","DELETE"],"default":"GET"},
			"url":{"type":"string","minLength":1,"maxLength":8192,"description":"absolute, http or https"},
			"headers":{"type":"object","maxProperties":50,"additionalProperties":{"type":"string","maxLength":8192}},
			"body":{"type":"string","description":"sent as it is; set the header Content-Type to say what it is"}},
			"required":["url"],"additionalProperties":false}`),
		Idempotent: false, Risk: tool.RiskHigh, Permissions: []string{"network.request"}, Scope: []string{"method", "url"},
		ScenarioTags: []string{"information_retrieval", "communication"}, TimeoutMS: timeout.Milliseconds(),
	}, func(ctx context.Context, _ tools.Call, args requestArgs) tool.Result {
		out, err := c.do(ctx, args)
		if err != nil {
			return tools.Fail(fmt.Errorf("requesting: %w", err))
		}
		return tool.OK(out)
	})
}

type client struct {
	allow AllowList
	http  *http.Client
}

func newClient(allow AllowList, control func(network, address string, c syscall.RawConn) error) *client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: control}
	c := &client{allow: allow}
	c.http = &http.Client{
		CheckRedirect: unfollowed,
		Transport: &http.Transport{
			Proxy:       nil, // a proxy could connect to forbidden addresses
			DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: timeout,
			MaxResponseHeaderBytes: maxHeader, MaxIdleConns: 16, IdleConnTimeout: 30 * time.Second,
		},
	}
	return c
}

// unfollowed leaves redirects to the model: policy judged a call to this URL, and judges the
// next call that the model makes.
func unfollowed(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// answer is the result for the model.
type answer struct {
	Status    int               `json:"status"`
	Headers   map[string]string `json:"headers"`
	Body      string            `json:"body"`
	Truncated bool              `json:"truncated,omitempty"` // the body was longer
	Note      string            `json:"note,omitempty"`
}

func (c *client) do(ctx context.Context, args requestArgs) (answer, error) {
	req, err := c.build(ctx, args)
	if err != nil {
		return answer{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok { // its text repeats method and URL
			err = u.Err
		}
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	out := answer{Status: resp.StatusCode, Headers: map[string]string{}}
	for _, k := range headersForModel {
		if v := resp.Header.Get(k); v != "" {
			out.Headers[k] = v
		}
	}
	if err := out.read(resp); err != nil {
		return answer{}, err
	}
	if next, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		note := "the redirect was not followed; request its location in another call: " + next.Redacted()
		out.Note = strings.TrimPrefix(out.Note+"; "+note, "; ")
	}
	return out, nil
}

func (c *client) build(ctx context.Context, args requestArgs) (*http.Request, error) {
	u, err := url.Parse(args.URL)
	if err != nil {
		return nil, errors.New("the URL is invalid")
	}
	if err := c.allow.check(u); err != nil {
		return nil, err
	}
	var body io.Reader
	if args.Body != "" {
		body = strings.NewReader(args.Body)
	}
	method := args.Method
	if method == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, args.URL, body)
	if err != nil {
		return nil, fmt.Errorf("building the request: %w", err)
	}
	req.Header.Set("User-Agent", "skandha-toolrunner")
	for k, v := range args.Headers {
		if slices.Contains(forbidden, http.CanonicalHeaderKey(k)) || strings.HasPrefix(strings.ToLower(k), "proxy-") {
			return nil, fmt.Errorf("header %q may not be set", k)
		}
		req.Header.Set(k, v)
	}
	return req, nil
}

// read reads the body as text, up to maxBody.
func (a *answer) read(resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return fmt.Errorf("reading the body: %w", err)
	}
	if len(b) > maxBody {
		b, a.Truncated = wholeRunes(b[:maxBody]), true
	}
	_, params, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch charset := strings.ToLower(params["charset"]); {
	case utf8.Valid(b) && !slices.Contains(b, 0):
		a.Body = string(b)
	case charset == "iso-8859-1" || charset == "latin1" || charset == "us-ascii":
		r := make([]rune, len(b))
		for i, c := range b {
			r[i] = rune(c)
		}
		a.Body = string(r)
	default:
		a.Note = fmt.Sprintf("the body has %d bytes and is not UTF-8 text; it is not shown", len(b))
	}
	return nil
}

// wholeRunes drops a character that was cut at the end.
func wholeRunes(b []byte) []byte {
	for range utf8.UTFMax - 1 {
		if r, n := utf8.DecodeLastRune(b); r != utf8.RuneError || n != 1 {
			break
		}
		b = b[:len(b)-1]
	}
	return b
}
