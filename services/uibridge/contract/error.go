package contract

import (
	"errors"
	"net/http"
)

// Code is the reason why the bridge refuses a request. The set of codes is closed.
type Code string

// The codes.
const (
	CodeInvalid         Code = "invalid_argument" // Field is invalid
	CodeUnauthenticated Code = "unauthenticated"  // the token is missing, wrong or expired
	CodeForbidden       Code = "forbidden"        // the token lacks the right
	CodeNotFound        Code = "not_found"        //
	CodeConflict        Code = "conflict"         // already answered, or no longer pending
	CodeTooLarge        Code = "too_large"        //
	CodeRateLimited     Code = "rate_limited"     // retry after RetryAfterMS
	CodeOverloaded      Code = "overloaded"       // too many messages wait; not stored. Retry after RetryAfterMS
	CodeSlow            Code = "too_slow"         // the connection did not keep up; continue after the last id seen
	CodeUnavailable     Code = "unavailable"      // the bus or core does not answer; a retry with the same id is safe
	CodeUnknownMethod   Code = "unknown_method"   //
	CodeInternal        Code = "internal"         //
)

// Error is an error that the caller sees.
type Error struct {
	Code         Code   `json:"code"`
	Field        string `json:"field,omitempty"` // of the request
	Message      string `json:"message"`         // what is wrong, and what to do
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
	After        string `json:"after,omitempty"` // of a feed that has ended: continue after this id
}

// Error implements error.
func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Message
	}
	return e.Message
}

// ErrGoingAway is the cause of a request context's end when the bridge stops. A request's
// context also ends when its token expires or its login ends, with an *Error as its cause
// that says so. Long-lived connections end with it, and send context.Cause to the client.
var ErrGoingAway = &Error{
	Code: CodeUnavailable, Message: "the bridge is shutting down; reconnect and continue after the last id seen",
}

// Invalid returns an error about a field.
func Invalid(field, message string) *Error {
	return &Error{Code: CodeInvalid, Field: field, Message: message}
}

// LostPlace returns the error of a feed or of Attach when the log does not contain the
// place to continue after.
func LostPlace(message string) *Error {
	return &Error{Code: CodeInvalid, Field: "after", Message: message, After: "0"}
}

// Resume returns the id to attach after when a feed has ended with the error; seen is the
// last id that was sent.
func (e *Error) Resume(seen string) string {
	if e.Code == CodeInvalid && e.After != "" {
		return e.After // see LostPlace
	}
	return seen
}

// ErrorOf returns err as callers see it. An error that is not meant for them becomes
// CodeInternal, and its text is not sent.
func ErrorOf(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeInternal, Message: "internal error; see the bridge's log"}
}

// Status returns the HTTP status of the error.
func (e *Error) Status() int {
	switch e.Code {
	case CodeInvalid:
		return http.StatusBadRequest
	case CodeUnauthenticated:
		return http.StatusUnauthorized
	case CodeForbidden:
		return http.StatusForbidden
	case CodeNotFound, CodeUnknownMethod:
		return http.StatusNotFound
	case CodeConflict:
		return http.StatusConflict
	case CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case CodeRateLimited, CodeOverloaded:
		return http.StatusTooManyRequests
	case CodeUnavailable, CodeSlow:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
