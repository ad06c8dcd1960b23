package gemini

import (
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

	"skandha.dev/pkg/provider"
)

// failure returns the contract's error; the code decides whether it is retryable.
func failure(code provider.ErrorCode, format string, args ...any) *provider.Error {
	e := &provider.Error{Code: code, Message: fmt.Sprintf(format, args...)}
	switch code {
	case provider.ErrRateLimited, provider.ErrUnavailable, provider.ErrTimeout, provider.ErrGarbage:
		e.Retryable = true
	}
	return e
}

var (
	errSilent = errors.New("the server is silent")
	errFull   = errors.New("the answer is too long to be read")
)

// maxPause bounds the pause that the API may ask for.
const maxPause = 24 * time.Hour

// fault is an error as the API writes it.
type fault struct {
	Code    int    `json:"code"` // the HTTP status
	Status  string `json:"status"`
	Message string `json:"message"`
	Details []struct {
		Reason     string `json:"reason"`     // of google.rpc.ErrorInfo
		RetryDelay string `json:"retryDelay"` // of google.rpc.RetryInfo: "1.5s"
	} `json:"details"`
}

// readFault reads the body of an error: an object, or an array of one, because the SDK asks
// for an array. The fault is zero if the body is something else, such as a proxy's page.
func readFault(body []byte) fault {
	type wrapped struct {
		Error fault `json:"error"`
	}
	var list []wrapped
	_ = json.Unmarshal(body, &list) // it fills what it can
	if len(list) > 0 {
		return list[0].Error
	}
	var one wrapped
	_ = json.Unmarshal(body, &one)
	return one.Error
}

func (f fault) reason() (reason string) {
	for _, d := range f.Details {
		reason = cmp.Or(reason, d.Reason)
	}
	return reason
}

// pause is how long the fault asks to wait; 0 if it does not.
func (f fault) pause() (pause time.Duration) {
	for _, d := range f.Details {
		if p, err := time.ParseDuration(d.RetryDelay); err == nil && p > 0 {
			pause = min(p, maxPause)
		}
	}
	return pause
}

// retryAfter reads the header Retry-After: seconds or a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 {
		return time.Duration(min(s, maxPause.Seconds()) * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return min(at.Sub(now), maxPause)
	}
	return 0
}

var contextFull = regexp.MustCompile(
	`(?i)token count.{0,40}exceeds|exceeds? the maximum number of tokens|context (length|window)`)

// codeOf maps a status and the API's fault to a code.
func codeOf(status int, f fault) provider.ErrorCode {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired,
		f.reason() == "API_KEY_INVALID":
		return provider.ErrAuth
	case status == http.StatusTooManyRequests:
		return provider.ErrRateLimited
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		return provider.ErrTimeout
	case status >= 500, status == http.StatusConflict, status == http.StatusTooEarly:
		return provider.ErrUnavailable
	case status == http.StatusRequestEntityTooLarge, contextFull.MatchString(f.Message):
		return provider.ErrTooLong
	}
	return provider.ErrBadRequest
}

// refusal is the failure that a status and the fault in its body mean; the header may be nil.
func (m *Model) refusal(status int, h http.Header, f fault) *provider.Error {
	e := failure(codeOf(status, f), "%s", m.clean(fmt.Sprintf("%s answered %d: %s", m.host, status,
		cmp.Or(f.Message, f.Status, http.StatusText(status)))))
	if pause := cmp.Or(retryAfter(h, time.Now()), f.pause()); e.Retryable && pause > 0 {
		e.RetryInMS = pause.Milliseconds()
	}
	switch {
	case status >= 300 && status < 400:
		e.Message = fmt.Sprintf("%s answered %d: redirects are not followed; set GOOGLE_GEMINI_BASE_URL to the final address",
			m.host, status)
	case status == http.StatusNotFound:
		e.Message += " (check GEMINI_MODEL and GOOGLE_GEMINI_BASE_URL)"
	}
	return e
}

// interruption is the failure that an error among the events means.
func (m *Model) interruption(f fault) *provider.Error {
	if f.Code >= 400 && f.Code < 600 {
		return m.refusal(f.Code, nil, f)
	}
	return failure(provider.ErrUnavailable, "%s", m.clean(fmt.Sprintf("%s broke off the answer: %s", m.host,
		cmp.Or(f.Message, f.Status, "it gave no reason"))))
}

// explain maps an error of the SDK or of the connection. An error of a context that ended is
// returned as it is.
func (m *Model) explain(ctx context.Context, err error) error {
	var known *provider.Error
	if errors.As(err, &known) {
		return known
	}
	switch {
	case errors.Is(context.Cause(ctx), errSilent):
		return failure(provider.ErrTimeout, "%s sent nothing for %s", m.host, m.cfg.Stall)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errFull):
		return failure(provider.ErrTooLong, "the answer did not end within %d bytes", maxWire)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return failure(provider.ErrUnavailable, "the connection to %s broke in the middle of the answer", m.host)
	}
	var syntax *json.SyntaxError
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &syntax) || errors.As(err, &wrongType) {
		return failure(provider.ErrGarbage, "the answer of %s is not JSON of the API: %s", m.host, m.clean(err.Error()))
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the URL
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		e := failure(provider.ErrUnavailable, "%s", m.clean(certificate.Error()))
		e.Retryable = false
		return e
	}
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		return failure(provider.ErrTimeout, "%s", m.clean(err.Error()))
	}
	return failure(provider.ErrUnavailable, "%s", m.clean(err.Error()))
}

// maxMessage bounds an error's message, in runes.
const maxMessage = 500

// clean removes the key and control characters, and limits the length.
func (m *Model) clean(s string) string {
	s = strings.ReplaceAll(s, m.cfg.APIKey, "[key]")
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
