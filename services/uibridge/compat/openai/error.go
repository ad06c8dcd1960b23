package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"

	"skandha.dev/pkg/event"
	"skandha.dev/services/uibridge/contract"
)

// apiError is an error in OpenAI's format.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`

	status  int
	retryMS int64
	taken   bool // the input was accepted, so the same request would count as another one
}

// Error implements error.
func (e *apiError) Error() string {
	if e.Param != nil {
		return *e.Param + ": " + e.Message
	}
	return e.Message
}

func invalid(param, message string) *apiError {
	e := &apiError{Message: message, Type: "invalid_request_error", Code: "invalid_value", status: http.StatusBadRequest}
	if param != "" {
		e.Param = &param
		e.Message = param + " " + message
	}
	return e
}

func noModel(name string) *apiError {
	e := invalid("model", fmt.Sprintf(
		"%q does not exist, or the token may not access it; GET /v1/models lists the available models", name))
	e.Code, e.status = "model_not_found", http.StatusNotFound
	return e
}

// types maps statuses to OpenAI's error types; others are server_error.
var types = map[int]string{
	http.StatusBadRequest: "invalid_request_error", http.StatusUnauthorized: "authentication_error",
	http.StatusForbidden: "permission_error",
	http.StatusNotFound:  "invalid_request_error", http.StatusMethodNotAllowed: "invalid_request_error",
	http.StatusConflict:              "conflict_error",
	http.StatusRequestEntityTooLarge: "invalid_request_error", http.StatusUnsupportedMediaType: "invalid_request_error",
	http.StatusTooManyRequests: "rate_limit_error",
}

func errorOf(status int, code, message string) *apiError {
	return &apiError{Message: message, Type: cmp.Or(types[status], "server_error"), Code: code, status: status}
}

// params maps the backend's field names to the request's.
var params = map[string]string{
	"agent": "model", "input": "messages", "session": "metadata.session", "id": "Idempotency-Key",
}

// toAPIError converts an error.
func toAPIError(err error) *apiError {
	if e, ok := err.(*apiError); ok { //nolint:errorlint // this package returns it unwrapped
		return e
	}
	e := contract.ErrorOf(err)
	out := errorOf(e.Status(), string(e.Code), e.Error())
	out.retryMS = e.RetryAfterMS
	if e.Field != "" {
		param := cmp.Or(params[e.Field], e.Field)
		out.Param = &param
	}
	if e.Code == contract.CodeNotFound && e.Field == "agent" {
		out.Code = "model_not_found"
	}
	return out
}

// failures maps the codes of failed turns to statuses; others are 500.
var failures = map[event.FailCode]int{
	event.FailMalformed: http.StatusBadRequest, event.FailUnknownCommand: http.StatusBadRequest,
	event.FailUnknownAgent: http.StatusNotFound,
	event.FailDuplicate:    http.StatusConflict, event.FailDropped: http.StatusForbidden,
	event.FailDenied: http.StatusForbidden,
	event.FailLocked: http.StatusConflict, event.FailCancelled: http.StatusConflict,
	event.FailInterrupted: http.StatusConflict,
	event.FailReset:       http.StatusConflict, event.FailQueueFull: http.StatusTooManyRequests,
	event.FailProvider:   http.StatusBadGateway,
	event.FailNoProvider: http.StatusServiceUnavailable, event.FailNoGuide: http.StatusServiceUnavailable,
	event.FailDeadline: http.StatusGatewayTimeout,
}

func failed(f *event.TurnFailed) *apiError {
	e := errorOf(cmp.Or(failures[f.Code], http.StatusInternalServerError), string(f.Code), "the turn failed: "+f.Reason)
	e.taken = true
	return e
}

// body returns the error as JSON.
func (e *apiError) body() []byte {
	b, err := json.Marshal(map[string]*apiError{"error": e})
	if err != nil {
		return []byte(`{"error":{"message":"encoding the error failed","type":"server_error","param":null,"code":"internal"}}`)
	}
	return b
}

// refuse answers with the error.
func refuse(w http.ResponseWriter, err error) {
	e := toAPIError(err)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if e.retryMS > 0 {
		h.Set("Retry-After", fmt.Sprint((e.retryMS+999)/1000))
	}
	if e.taken {
		h.Set("X-Should-Retry", "false")
	}
	w.WriteHeader(e.status)
	_, _ = w.Write(e.body()) // the client may have disconnected
}
