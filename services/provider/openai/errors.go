package openai

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/openai/openai-go/v3/packages/ssestream"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
)

// fault is an error as reported by an API. Servers differ: code may be a number,
// error a plain text, and message may be at the top level.
type fault struct {
	Message string
	Type    string
	Code    string
}

func (f fault) known() bool { return f.Message != "" || f.Type != "" || f.Code != "" }

func parseFault(body []byte) fault {
	var top struct {
		Error   json.RawMessage `json:"error"`
		Message json.RawMessage `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &top) != nil {
		return fault{}
	}
	var inner struct {
		Message json.RawMessage `json:"message"`
		Type    json.RawMessage `json:"type"`
		Code    json.RawMessage `json:"code"`
	}
	if json.Unmarshal(top.Error, &inner) == nil {
		if f := (fault{scalar(inner.Message), scalar(inner.Type), scalar(inner.Code)}); f.known() {
			return f
		}
	}
	for _, m := range []json.RawMessage{top.Error, top.Message, top.Detail} {
		if s := scalar(m); s != "" {
			return fault{Message: s}
		}
	}
	return fault{}
}

// scalar reads a JSON string or number as text.
func scalar(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}

var contextFull = regexp.MustCompile(
	`(?i)context.{0,20}(length|window|size)|maximum context|too many tokens|prompt is too long|exceed.{0,30}\btokens\b`)

// statusError maps an HTTP status and the fault in the body to a failure.
func (a *Adapter) statusError(status int, h http.Header, f fault, now time.Time) *contract.Error {
	message := f.Message
	if message == "" {
		message = http.StatusText(status)
	}
	e := adapter.Errorf(statusCode(status, f), "%s",
		a.redact.clean(fmt.Sprintf("%s answered %d: %s", hostOf(a.cfg.BaseURL), status, message)))
	if wish := retryAfter(h, now); wish > 0 && e.Retryable {
		e.RetryInMS = wish.Milliseconds()
	}
	switch {
	case f.exhausted():
		e.Retryable = false // waiting does not top up an account
	case status >= 300 && status < 400:
		e.Message = fmt.Sprintf("%s answered %d: redirects are not followed; set base_url to the final address",
			hostOf(a.cfg.BaseURL), status)
	case status == http.StatusNotFound:
		e.Message += " (is the model right, and does base_url end where the API begins, usually /v1?)"
	}
	return e
}

func statusCode(status int, f fault) contract.ErrorCode {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusPaymentRequired:
		return contract.ErrAuth
	case status == http.StatusTooManyRequests:
		return contract.ErrRateLimited
	case status == http.StatusRequestTimeout || status == http.StatusGatewayTimeout:
		return contract.ErrTimeout
	case status >= 500 || status == http.StatusConflict || status == http.StatusTooEarly:
		return contract.ErrUnavailable
	case status == http.StatusRequestEntityTooLarge || f.contextIsFull():
		return contract.ErrTooLong
	}
	return contract.ErrBadRequest
}

func (f fault) contextIsFull() bool {
	return f.Code == "context_length_exceeded" || contextFull.MatchString(f.Message)
}

func (f fault) exhausted() bool {
	return f.Code == "insufficient_quota" || f.Type == "insufficient_quota"
}

// faultError maps an error inside a stream, where there is no status.
func (a *Adapter) faultError(f fault) *contract.Error {
	if status, err := strconv.Atoi(f.Code); err == nil && status >= 400 && status < 600 {
		return a.statusError(status, nil, f, time.Now())
	}
	code := contract.ErrUnavailable
	kind := f.Type + " " + f.Code
	switch {
	case f.contextIsFull():
		code = contract.ErrTooLong
	case strings.Contains(kind, "rate_limit") || f.exhausted():
		code = contract.ErrRateLimited
	case strings.Contains(kind, "authentication") || strings.Contains(kind, "permission") ||
		strings.Contains(kind, "invalid_api_key"):
		code = contract.ErrAuth
	case strings.Contains(kind, "invalid_request"):
		code = contract.ErrBadRequest
	}
	e := adapter.Errorf(code, "%s", a.redact.clean("the API reports: "+strings.TrimSpace(f.Message+" "+f.Type+" "+f.Code)))
	e.Retryable = e.Retryable && !f.exhausted()
	return e
}

// retryAfter reads the pause that the API asks for from Retry-After-Ms or Retry-After (seconds or a date).
func retryAfter(h http.Header, now time.Time) time.Duration {
	const most = 24 * time.Hour
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return time.Duration(min(ms, float64(most.Milliseconds())) * float64(time.Millisecond))
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 {
		return time.Duration(min(s, most.Seconds()) * float64(time.Second))
	}
	if t, err := http.ParseTime(v); err == nil && t.After(now) {
		return min(t.Sub(now), most)
	}
	return 0
}

// explain maps an error of the SDK or of the connection.
func (a *Adapter) explain(ctx context.Context, err error) error {
	var known *contract.Error
	if errors.As(err, &known) {
		return known
	}
	if errors.Is(context.Cause(ctx), errStalled) {
		return adapter.Errorf(contract.ErrTimeout, "the server sent nothing for %s", a.cfg.Stall)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var inStream *ssestream.StreamError
	var syntax *json.SyntaxError
	var wrongType *json.UnmarshalTypeError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &inStream):
		f := parseFault(inStream.Event.Data)
		if !f.known() {
			f.Message = "an error without a description"
		}
		return a.faultError(f)
	case errors.Is(err, errWireFull) || errors.Is(err, bufio.ErrTooLong):
		return adapter.Errorf(contract.ErrTooLong, "the stream did not end within %d bytes", maxWireBytes)
	case errors.As(err, &syntax) || errors.As(err, &wrongType):
		return adapter.Errorf(contract.ErrGarbage, "a chunk of the stream is not valid JSON of the API: %s",
			a.redact.clean(err.Error()))
	case errors.As(err, &certificate):
		e := adapter.Errorf(contract.ErrUnavailable, "%s", a.redact.clean(certificate.Error()))
		e.Retryable = false
		return e
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return adapter.Errorf(contract.ErrUnavailable, "the connection broke in the middle of the answer")
	}
	return a.network(err)
}

// network describes an error of the connection, without the URL.
func (a *Adapter) network(err error) *contract.Error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return adapter.Errorf(contract.ErrTimeout, "%s", a.redact.clean(err.Error()))
	}
	return adapter.Errorf(contract.ErrUnavailable, "%s", a.redact.clean(err.Error()))
}

// redactor removes secrets from texts of other origin.
type redactor struct{ key string }

func newRedactor(k Key) redactor { return redactor{string(k)} }

var secrets = regexp.MustCompile(`(?i)\bbearer\s+\S+|\b[srp]k-[\w*-]{4,}`)

// maxMessage bounds an error's message, in runes.
const maxMessage = 500

// clean removes the key, anything that looks like a key and control characters, and limits the length.
func (r redactor) clean(s string) string {
	if r.key != "" {
		s = strings.ReplaceAll(s, r.key, hiddenKey)
	}
	s = secrets.ReplaceAllString(s, hiddenKey)
	s = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, s)
	if runes := []rune(s); len(runes) > maxMessage {
		s = string(runes[:maxMessage]) + "…"
	}
	return strings.TrimSpace(s)
}
