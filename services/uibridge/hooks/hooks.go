// Package hooks serves the webhooks that agents have created: POST /hooks/<id>.
//
// # Subjects
//
// Produced: requests to service.core.occur. Core checks the caller's key and stores the input.
//
// # Guarantee
//
// 202 {"sequence"} is returned once the log has acknowledged the input, never before. A call with
// the same webhook-id, X-GitHub-Delivery or Idempotency-Key is the same input.
//
// # Failure
//
// 4xx are the caller's errors, in the bridge's format. 429 and 503 have Retry-After: the call was
// not stored, or it is not known; it is safe to send it again with the same id.
package hooks

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/logburst"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// Pattern is where the handler is served.
const Pattern = coreapi.WebhookPath + "{hook}"

// The limits of the calls.
const (
	maxBody    = 64 << 10 // bytes
	atOnce     = 64       // calls that wait for core
	patience   = 30 * time.Second
	retryAfter = 5 * time.Second
)

// ids are the headers in which callers name a call.
var ids = []string{"webhook-id", "X-GitHub-Delivery", "Idempotency-Key"}

// Core asks core.
type Core interface {
	Ask(ctx context.Context, verb string, question, answer any) error
}

// Handler serves them. It is safe for concurrent use.
type Handler struct {
	core  Core
	log   *logburst.Log
	limit chan struct{}

	taken, refused atomic.Int64
}

// New returns a handler.
func New(core Core, log *slog.Logger) *Handler {
	return &Handler{core: core, log: logburst.New(log.With("transport", "hooks")), limit: make(chan struct{}, atOnce)}
}

// Counters returns the metrics.
func (h *Handler) Counters() map[string]int64 {
	return map[string]int64{"hooks_taken": h.taken.Load(), "hooks_refused": h.refused.Load()}
}

// ServeHTTP implements [http.Handler], at [Pattern]. The caller needs no token of the bridge.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, status, err := h.call(w, r)
	if err != nil {
		h.refused.Add(1)
		h.log.Log(slog.LevelInfo, string(contract.ErrorOf(err).Code), "the call of a webhook was refused", "from", r.RemoteAddr, "error", err)
		request.Refuse(w, err, status)
		return
	}
	h.taken.Add(1)
	request.JSON(w, http.StatusAccepted, answer)
}

func (h *Handler) call(w http.ResponseWriter, r *http.Request) (answer coreapi.Occurred, status int, err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return answer, http.StatusMethodNotAllowed, contract.Invalid("method", "want POST")
	}
	q := coreapi.Occurrence{Hook: r.PathValue("hook"), Signature: r.Header.Get("X-Hub-Signature-256")}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		q.Key = strings.TrimSpace(key)
	}
	if q.Key == "" && q.Signature == "" {
		return answer, 0, &contract.Error{
			Code: contract.CodeUnauthenticated, Field: "Authorization",
			Message: "the key is missing; send Authorization: Bearer hook_…, or sign the body with it as X-Hub-Signature-256",
		}
	}
	for _, name := range ids {
		if q.ID = r.Header.Get(name); q.ID != "" {
			break
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return answer, 0, &contract.Error{Code: contract.CodeTooLarge, Field: "body", Message: "larger than 64 KiB; send less"}
	}
	if err != nil {
		return answer, 0, contract.Invalid("body", "incomplete")
	}
	q.Body = string(body)
	select {
	case h.limit <- struct{}{}:
		defer func() { <-h.limit }()
	default:
		return answer, 0, again(contract.CodeRateLimited, "too many calls are waiting; send it again later")
	}
	// A call that was received whole is stored even if its sender hangs up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), patience)
	defer cancel()
	err = h.core.Ask(ctx, coreapi.VerbOccur, q, &answer)
	return answer, 0, refusal(err)
}

func again(code contract.Code, message string) *contract.Error {
	return &contract.Error{Code: code, Message: message, RetryAfterMS: retryAfter.Milliseconds()}
}

// refusal returns core's error as the caller sees it.
func refusal(err error) error {
	if err == nil {
		return nil
	}
	message := ""
	if said, ok := errors.AsType[*bus.Error](err); ok {
		message = said.Message
	}
	switch bus.CodeOf(err) {
	case bus.CodeNotFound:
		return &contract.Error{Code: contract.CodeNotFound, Field: "path", Message: message}
	case bus.CodeDenied:
		return &contract.Error{Code: contract.CodeUnauthenticated, Field: "Authorization", Message: message}
	case bus.CodeInvalidArgument:
		return contract.Invalid("body", message)
	case bus.CodeTooLarge:
		return &contract.Error{Code: contract.CodeTooLarge, Field: "body", Message: message}
	case bus.CodeOverloaded:
		return again(contract.CodeOverloaded, message)
	case bus.CodeInternal:
		return err // its text is not sent
	}
	if message == "" {
		message = "core did not answer; send it again with the same id"
	}
	return again(contract.CodeUnavailable, message)
}
