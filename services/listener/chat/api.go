package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/text"
)

const (
	maxAnswer  = 32 << 20        // bytes of an answer
	maxAfter   = time.Hour       // that a server may ask to wait
	firstAfter = 5 * time.Second // if it does not say
	maxDetail  = 300             // bytes of an error that is shown
)

// API is the HTTP API of a chat network, with JSON in both directions.
type API struct {
	Base   string // without a slash at its end
	Header http.Header
	client http.Client
}

// NewAPI returns an API. It follows no redirects, which could carry the token elsewhere.
func NewAPI(base string, header http.Header) *API {
	return &API{Base: strings.TrimRight(base, "/"), Header: header, client: http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// CheckBase reports what is wrong with the URL of an API: it is https, or on this machine.
func CheckBase(field, base string) error {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("%s is %q, want a URL such as https://chat.example.org", field, base)
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%s is %q, which would send the token unencrypted; use https", field, base)
	}
	return nil
}

// Refusal is an answer of an API that is no success.
type Refusal struct {
	Status int
	Detail string
	After  time.Duration // that the server asks to wait; 0: it does not say
}

// Error names the status and what the server says.
func (r *Refusal) Error() string { return fmt.Sprintf("HTTP status %d: %s", r.Status, r.Detail) }

// errUnsent wraps the errors of requests that did not leave.
var errUnsent = errors.New("the request was not sent")

// Do sends in and decodes the answer into out; both may be nil. The error is a *[Refusal] if there
// was an answer. It does not contain the URL, which may have a token.
func (a *API) Do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnsent, err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.Base+path, body)
	if err != nil {
		return fmt.Errorf("%w: the URL is not valid", errUnsent)
	}
	req.Header = a.Header.Clone()
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := a.client.Do(req)
	if err != nil {
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err
		}
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			err = fmt.Errorf("%w: %w", errUnsent, err)
		}
		return err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case res.StatusCode < 200 || res.StatusCode > 299:
		return refusal(res, answer)
	case err != nil:
		return err
	case len(answer) > maxAnswer:
		return fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("the answer is not the JSON that was expected: %w", err)
	}
	return nil
}

// refusal reads why, and how long to wait: Retry-After in seconds, or the fields that Matrix
// (retry_after_ms), Discord (retry_after) and Telegram (parameters.retry_after) have.
func refusal(res *http.Response, body []byte) *Refusal {
	var says struct {
		Errcode, Error, Description, Message string
		RetryAfterMS                         float64 `json:"retry_after_ms"`
		RetryAfter                           float64 `json:"retry_after"`
		Parameters                           struct {
			RetryAfter float64 `json:"retry_after"`
		}
	}
	r := &Refusal{Status: res.StatusCode}
	if json.Unmarshal(body, &says) == nil {
		r.Detail = strings.TrimSpace(says.Errcode + " " + says.Error + says.Description + says.Message)
	}
	if r.Detail == "" {
		r.Detail = string(body)
	}
	r.Detail = text.Cut(oneLine(strings.ToValidUTF8(r.Detail, "")), maxDetail)
	header, _ := strconv.ParseFloat(res.Header.Get("Retry-After"), 64) // 0: none, or a date
	for _, seconds := range []float64{says.RetryAfterMS / 1000, says.RetryAfter, says.Parameters.RetryAfter, header} {
		if seconds > 0 {
			r.After = min(time.Duration(seconds*float64(time.Second)), maxAfter)
			break
		}
	}
	return r
}

// Waited returns an error after as long as the server asks to wait.
func Waited(ctx context.Context, err error) error {
	if r, ok := errors.AsType[*Refusal](err); ok && r.After > 0 {
		select {
		case <-time.After(r.After):
		case <-ctx.Done():
		}
	}
	return err
}

// Undelivered is the result of a delivery whose request ended with an error.
func Undelivered(err error) tool.Result {
	r, answered := errors.AsType[*Refusal](err)
	switch {
	case errors.Is(err, errUnsent):
		return tool.Failure(tool.CodeFailed, err.Error())
	case !answered || r.Status >= 500 || r.Status == http.StatusRequestTimeout || r.Status < 400:
		return tool.Failure(tool.CodeOutcomeUnknown, "the server may have the message: "+err.Error())
	case r.Status == http.StatusTooManyRequests:
		after := r.After
		if after == 0 {
			after = firstAfter
		}
		return Later(err, after)
	case r.Status == http.StatusBadRequest || r.Status == http.StatusRequestEntityTooLarge:
		return Permanent(err)
	}
	return tool.Failure(tool.CodeFailed, err.Error())
}
