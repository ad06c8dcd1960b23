package contract

import (
	"errors"
	"net/http"
)

// Code is the closed set of reasons why the bridge refuses a request.
type Code string

// The codes.
const (
	CodeInvalid         Code = "invalid_argument" // Field is wrong
	CodeUnauthenticated Code = "unauthenticated"  // no token, a wrong one, or one that has expired
	CodeForbidden       Code = "forbidden"        // the token has not the right
	CodeNotFound        Code = "not_found"        //
	CodeConflict        Code = "conflict"         // it was answered before, or is not pending any more
	CodeTooLarge        Code = "too_large"        //
	CodeRateLimited     Code = "rate_limited"     // Retry after RetryAfterMS
	CodeOverloaded      Code = "overloaded"       // too much is waiting; it is not stored. Retry after RetryAfterMS
	CodeSlow            Code = "too_slow"         // the connection did not keep up; go on after the last id seen
	CodeUnavailable     Code = "unavailable"      // the bus or core does not answer; the same id again is safe
	CodeUnknownMethod   Code = "unknown_method"   //
	CodeInternal        Code = "internal"         //
)

// Error is what a caller is told.
type Error struct {
	Code         Code   `json:"code"`
	Field        string `json:"field,omitempty"` // of the request
	Message      string `json:"message"`         // what is wrong, and what to do
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
	After        string `json:"after,omitempty"` // of a feed that has ended: go on after this id
}

// Error implements error.
func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Message
	}
	return e.Message
}

// ErrGoingAway is the cause of the end of a request's context when the bridge stops.
// The context of a request that the access layer has let through also ends, with an
// *Error that says why, when its token expires or its login is ended: long-lived
// connections end with it, and tell context.Cause.
var ErrGoingAway = &Error{Code: CodeUnavailable, Message: "the bridge stops; connect again and go on after the last id that was seen"}

// Invalid is an error about a field.
func Invalid(field, message string) *Error {
	return &Error{Code: CodeInvalid, Field: field, Message: message}
}

// LostPlace is the error of a feed, or of attaching, when the log does not hold the
// place to continue after.
func LostPlace(message string) *Error {
	return &Error{Code: CodeInvalid, Field: "after", Message: message, After: "0"}
}

// Resume is the id to attach after when a feed has ended with the error, and seen is
// the last id that was sent.
func (e *Error) Resume(seen string) string {
	if e.Code == CodeInvalid && e.After != "" {
		return e.After // see LostPlace
	}
	return seen
}

// ErrorOf is err as callers are told it. What is not meant for them is internal, and
// its text stays here.
func ErrorOf(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternal, Message: "the bridge has failed; its log says how"}
}

// Status is the HTTP status of the error.
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
