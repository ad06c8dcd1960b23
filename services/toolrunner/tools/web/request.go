package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
	"skandha.dev/services/toolrunner/tools/web/guard"
)

// The bounds of one request.
const (
	maxBody   = 2 << 20  // of a response, in bytes; the rest is not read
	maxHeader = 64 << 10 // of a response, in bytes
	timeout   = 60 * time.Second
	// A probe repeats a request for this long.
	probeWait  = 30 * time.Second
	firstPause = 100 * time.Millisecond // between repetitions; each is twice as long as the one before
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

// keyHeader names the call, so that the server can tell a repeated request
// (draft-ietf-httpapi-idempotency-key-header).
const keyHeader = "Idempotency-Key"

type requestArgs struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Once    bool              `json:"idempotency_key"`
}

// Request makes HTTP requests to the hosts of the lists: to those of locals also at addresses of this
// machine and its network.
func Request(hosts, locals guard.AllowList) tools.Tool {
	return request(hosts, locals, guard.Dial(locals))
}

func request(hosts, locals guard.AllowList, dial guard.DialFunc) tools.Tool {
	c := newClient(hosts, locals, dial)
	t := tools.New(tool.Spec{
		Name: "http:request",
		Description: fmt.Sprintf("Sends an HTTP request to a host that is allowed and answers status, "+
			"headers and the text of the body, of which at most %d bytes are read. "+
			"A status of 400 or more is an answer too, not a failure. Redirects are not followed: "+
			"request their location in another call.", maxBody),
		Args: json.RawMessage(`{"type":"object","properties":{
			"method":{"enum":["GET","HEAD","POST","PUT","PATCH","DELETE"],"default":"GET"},
			"url":{"type":"string","minLength":1,"maxLength":8192,"description":"absolute, http or https"},
			"headers":{"type":"object","maxProperties":50,"additionalProperties":{"type":"string","maxLength":8192}},
			"body":{"type":"string","description":"sent as it is; set the header Content-Type to say what it is"},
			"idempotency_key":{"type":"boolean","default":false,"description":"send the header Idempotency-Key, so that ` +
			`a repeated request has its effect once; only for servers that are known to honour it"}},
			"required":["url"],"additionalProperties":false}`),
		Idempotent: false, Risk: tool.RiskHigh, Permissions: []string{"network.request"}, Scope: []string{"method", "url"},
		ScenarioTags: []string{"information_retrieval", "communication"}, TimeoutMS: timeout.Milliseconds(),
	}, c.run)
	t.Probe = c.probe
	return t
}

// run sends the request of an attempt.
func (c *client) run(ctx context.Context, call tools.Call, args requestArgs) tool.Result {
	req, err := c.build(ctx, args, call.Key)
	if err != nil {
		return tools.Fail(fmt.Errorf("requesting: %w", err))
	}
	if err := call.Begin(ctx); err != nil {
		return tools.Fail(fmt.Errorf("the request was not sent: %w", err))
	}
	out, connected, err := c.send(req)
	switch {
	case err == nil:
		return tool.OK(out)
	case connected && !reads(req.Method):
		return unknown(fmt.Errorf("the request was sent, but its answer did not arrive: %w", err))
	}
	return tools.Fail(fmt.Errorf("requesting: %w", err))
}

// probe repeats a request that has its effect once, until there is an answer or probeWait has passed:
// the server may just be starting. What became of any other request is not known.
func (c *client) probe(ctx context.Context, call tools.Call, _ tools.Begun) tool.Result {
	var args requestArgs
	if err := json.Unmarshal(call.Args, &args); err != nil {
		return unknown(fmt.Errorf("reading the arguments: %w", err))
	}
	req, err := c.build(ctx, args, call.Key)
	switch {
	case err != nil:
		return unknown(repeating(err))
	case !args.Once && !reads(req.Method):
		return unknown(fmt.Errorf("the %s request may have been carried out, and has no idempotency key to repeat it with; "+
			"look at %s before you send it again", req.Method, req.URL.Host))
	}
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	for pause := firstPause; ; pause *= 2 {
		req, err := c.build(ctx, args, call.Key)
		if err != nil {
			return unknown(repeating(err))
		}
		out, _, err := c.send(req)
		switch {
		case err == nil && (out.Status != http.StatusConflict || reads(req.Method)):
			return tool.OK(out)
		case err == nil: // the first one is still being processed
			err = errors.New("the server answered with 409 Conflict")
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return unknown(repeating(err))
		}
	}
}

func repeating(err error) error { return fmt.Errorf("repeating the request: %w", err) }

// reads reports whether requests of a method have no effect.
func reads(method string) bool { return method == http.MethodGet || method == http.MethodHead }

func unknown(err error) tool.Result { return tool.Failure(tool.CodeOutcomeUnknown, err.Error()) }

type client struct {
	hosts, locals guard.AllowList
	http          *http.Client
}

func newClient(hosts, locals guard.AllowList, dial guard.DialFunc) *client {
	c := &client{hosts: hosts, locals: locals}
	c.http = &http.Client{
		CheckRedirect: unfollowed,
		Transport: &http.Transport{
			Proxy:       nil, // a proxy could connect to forbidden addresses
			DialContext: dial, ForceAttemptHTTP2: true,
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

// send sends a request once. connected reports whether the server may have received it.
func (c *client) send(req *http.Request) (out answer, connected bool, err error) {
	var reached atomic.Bool // a connection may still be made when Do has returned
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { reached.Store(true) }}
	resp, err := c.http.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok { // its text repeats method and URL
			err = u.Err
		}
		return answer{}, reached.Load(), err
	}
	defer func() { _ = resp.Body.Close() }()
	out = answer{Status: resp.StatusCode, Headers: map[string]string{}}
	for _, k := range headersForModel {
		if v := resp.Header.Get(k); v != "" {
			out.Headers[k] = v
		}
	}
	if err := out.read(resp); err != nil { // the request was carried out all the same
		out.Note = err.Error()
	}
	if next, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		note := "the redirect was not followed; request its location in another call: " + next.Redacted()
		out.Note = strings.TrimPrefix(out.Note+"; "+note, "; ")
	}
	return out, true, nil
}

func (c *client) build(ctx context.Context, args requestArgs, key string) (*http.Request, error) {
	u, err := url.Parse(args.URL)
	if err != nil {
		return nil, errors.New("the URL is invalid")
	}
	if err := guard.Check(u, c.hosts, c.locals); err != nil {
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
		if args.Once && http.CanonicalHeaderKey(k) == keyHeader {
			return nil, fmt.Errorf("header %q may not be set if idempotency_key is true", k)
		}
		req.Header.Set(k, v)
	}
	if args.Once {
		req.Header.Set(keyHeader, key)
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
