package httpapi

import (
	"bufio"
	"cmp"
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

	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/provider/adapter"
)

// API is an HTTP API, as its errors describe it.
type API struct {
	Hint  string // how base URLs usually end: ", usually /v1"; may be empty
	host  string
	stall time.Duration
	key   Key
}

// NewAPI describes the API at a base URL. The key appears in no error.
func NewAPI(base string, stall time.Duration, key Key, hint string) API {
	return API{hint, Host(base), stall, key}
}

// Fault is an error as reported by an API. Servers differ: code may be a number,
// error a plain text, and message may be at the top level.
type Fault struct {
	Message string
	Type    string
	Code    string
	Reason  string        // more specific than Code, from Google's details
	Retry   time.Duration // the pause that the body asks for
}

// Known reports whether the API said anything.
func (f Fault) Known() bool { return f.Message != "" || f.Type != "" || f.Code != "" }

// ParseFault reads the body of an error response; a zero Fault if it says nothing.
func ParseFault(body []byte) Fault {
	var top struct {
		Error   json.RawMessage `json:"error"`
		Message json.RawMessage `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &top) != nil {
		return Fault{}
	}
	var inner struct {
		Message json.RawMessage `json:"message"`
		Type    json.RawMessage `json:"type"`
		Code    json.RawMessage `json:"code"`
		Status  json.RawMessage `json:"status"` // Google's type
		Details json.RawMessage `json:"details"`
	}
	if json.Unmarshal(top.Error, &inner) == nil {
		f := Fault{
			Message: scalar(inner.Message), Type: cmp.Or(scalar(inner.Type), scalar(inner.Status)), Code: scalar(inner.Code),
		}
		var details []detail
		_ = json.Unmarshal(inner.Details, &details) // Google's; others have anything there
		for _, d := range details {
			d.addTo(&f)
		}
		if f.Known() {
			return f
		}
	}
	for _, m := range []json.RawMessage{top.Error, top.Message, top.Detail} {
		if s := scalar(m); s != "" {
			return Fault{Message: s}
		}
	}
	return Fault{}
}

// detail is an entry of the details in Google's errors.
type detail struct {
	Reason     string `json:"reason"`
	RetryDelay string `json:"retryDelay"`
}

func (d detail) addTo(f *Fault) {
	f.Reason = cmp.Or(f.Reason, d.Reason)
	if pause, err := time.ParseDuration(d.RetryDelay); err == nil && pause > 0 {
		f.Retry = min(pause, longestPause)
	}
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
	`(?i)context.{0,20}(length|window|size|limit)|maximum context|too many tokens|prompt is too long|exceed.{0,30}\btokens\b`)

// Status maps an HTTP status and the fault in the body to a failure.
func (a API) Status(status int, h http.Header, f Fault, now time.Time) *contract.Error {
	message := f.Message
	message = cmp.Or(message, http.StatusText(status))
	e := adapter.Errorf(statusCode(status, f), "%s",
		a.Clean(fmt.Sprintf("%s answered %d: %s", a.host, status, message)))
	if wish := cmp.Or(retryAfter(h, now), f.Retry); wish > 0 && e.Retryable {
		e.RetryInMS = wish.Milliseconds()
	}
	switch {
	case f.exhausted():
		e.Retryable = false // waiting does not top up an account
	case status >= 300 && status < 400:
		e.Message = fmt.Sprintf("%s answered %d: redirects are not followed; set base_url to the final address",
			a.host, status)
	case status == http.StatusNotFound:
		e.Message += " (is the model right, and does base_url end where the API begins" + a.Hint + "?)"
	}
	return e
}

func statusCode(status int, f Fault) contract.ErrorCode {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusPaymentRequired ||
		f.Reason == "API_KEY_INVALID":
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

func (f Fault) contextIsFull() bool {
	return f.Code == "context_length_exceeded" || contextFull.MatchString(f.Message)
}

func (f Fault) exhausted() bool {
	return f.Code == "insufficient_quota" || f.Type == "insufficient_quota"
}

// InStream maps an error inside a stream, where there is no status.
func (a API) InStream(f Fault) *contract.Error {
	if status, err := strconv.Atoi(f.Code); err == nil && status >= 400 && status < 600 {
		return a.Status(status, nil, f, time.Now())
	}
	code := contract.ErrUnavailable
	kind := f.Type + " " + f.Code
	switch {
	case f.contextIsFull():
		code = contract.ErrTooLong
	case strings.Contains(kind, "rate_limit") || f.exhausted():
		code = contract.ErrRateLimited
	case strings.Contains(kind, "timeout"):
		code = contract.ErrTimeout
	case strings.Contains(kind, "authentication") || strings.Contains(kind, "permission") ||
		strings.Contains(kind, "invalid_api_key"):
		code = contract.ErrAuth
	case strings.Contains(kind, "invalid_request"):
		code = contract.ErrBadRequest
	}
	e := adapter.Errorf(code, "%s", a.Clean("the API reports: "+strings.TrimSpace(f.Message+" "+f.Type+" "+f.Code)))
	e.Retryable = e.Retryable && !f.exhausted()
	return e
}

// longestPause bounds what an API may ask for.
const longestPause = 24 * time.Hour

// retryAfter reads the pause that the API asks for from Retry-After-Ms or Retry-After (seconds or a date).
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return time.Duration(min(ms, float64(longestPause.Milliseconds())) * float64(time.Millisecond))
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 {
		return time.Duration(min(s, longestPause.Seconds()) * float64(time.Second))
	}
	if t, err := http.ParseTime(v); err == nil && t.After(now) {
		return min(t.Sub(now), longestPause)
	}
	return 0
}

// Explain maps an error of the SDK or of the connection.
func (a API) Explain(ctx context.Context, err error) error {
	if known, ok := errors.AsType[*contract.Error](err); ok {
		return known
	}
	if errors.Is(context.Cause(ctx), errStalled) {
		return adapter.Errorf(contract.ErrTimeout, "the server sent nothing for %s", a.stall)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var syntax *json.SyntaxError
	var wrongType *json.UnmarshalTypeError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errWireFull) || errors.Is(err, bufio.ErrTooLong):
		return adapter.Errorf(contract.ErrTooLong, "the stream did not end within %d bytes", maxWireBytes)
	case errors.As(err, &syntax) || errors.As(err, &wrongType):
		return adapter.Errorf(contract.ErrGarbage, "a chunk of the stream is not valid JSON of the API: %s",
			a.Clean(err.Error()))
	case errors.As(err, &certificate):
		e := adapter.Errorf(contract.ErrUnavailable, "%s", a.Clean(certificate.Error()))
		e.Retryable = false
		return e
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return adapter.Errorf(contract.ErrUnavailable, "the connection broke in the middle of the answer")
	}
	return a.network(err)
}

// network describes an error of the connection, without the URL.
func (a API) network(err error) *contract.Error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return adapter.Errorf(contract.ErrTimeout, "%s", a.Clean(err.Error()))
	}
	return adapter.Errorf(contract.ErrUnavailable, "%s", a.Clean(err.Error()))
}

var secrets = regexp.MustCompile(`(?i)\bbearer\s+\S+|\b[srp]k-[\w*-]{4,}`)

// maxMessage bounds an error's message, in runes.
const maxMessage = 500

// Clean removes the key, anything that looks like a key, the credentials of URLs and control
// characters, and limits the length.
func (a API) Clean(s string) string {
	if string(a.key) != "" {
		s = strings.ReplaceAll(s, string(a.key), hiddenKey)
	}
	s = secrets.ReplaceAllString(telemetry.Redact(s), hiddenKey)
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
