package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Code is the closed set of error codes on the bus. A process decodes a code that it does
// not know as [CodeInternal].
type Code string

// The codes.
const (
	CodeInvalidArgument Code = "invalid_argument" // the request is invalid; repeating it does not help
	CodeNotFound        Code = "not_found"        // the named thing does not exist
	CodeDenied          Code = "denied"           // not allowed
	CodeUnavailable     Code = "unavailable"      // no responder, or not available now; try again
	CodeTimeout         Code = "timeout"          // no answer in time; the request may have been carried out
	CodeTooLarge        Code = "too_large"        // a limit, which the message names, is exceeded
	CodeConflict        Code = "conflict"         // another change was first; read again, then try again
	CodeOverloaded      Code = "overloaded"       // too many requests wait; try again later
	CodeInternal        Code = "internal"         // a fault of the responder
	CodeCancelled       Code = "cancelled"        // the caller gave up
)

func (c Code) known() bool {
	switch c {
	case CodeInvalidArgument, CodeNotFound, CodeDenied, CodeUnavailable, CodeTimeout,
		CodeTooLarge, CodeConflict, CodeOverloaded, CodeInternal, CodeCancelled:
		return true
	}
	return false
}

func (c Code) retryable() bool {
	return c == CodeUnavailable || c == CodeTimeout || c == CodeConflict || c == CodeOverloaded
}

// Error is an error that is sent over the bus: its code in the header Skandha-Error, and all
// fields as JSON in the body. errors.Is compares codes, so errors.Is(err, bus.ErrNotFound)
// works in the process that sent the request.
type Error struct {
	Code      Code   `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"` // the same request may succeed later
}

// Errorf returns an Error with the code, which determines whether it is retryable.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Retryable: code.retryable()}
}

// Error returns the message, or the code if there is none.
func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return e.Message
}

// Is reports whether target is an *Error with the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error) // errors.Is unwraps; this compares one link
	return ok && t.Code == e.Code
}

// One sentinel per code, for errors.Is.
var (
	ErrInvalidArgument error = &Error{Code: CodeInvalidArgument, Message: "invalid argument"}
	ErrNotFound        error = &Error{Code: CodeNotFound, Message: "not found"}
	ErrDenied          error = &Error{Code: CodeDenied, Message: "denied"}
	ErrUnavailable     error = &Error{Code: CodeUnavailable, Message: "unavailable", Retryable: true}
	ErrTimeout         error = &Error{Code: CodeTimeout, Message: "timeout", Retryable: true}
	ErrTooLarge        error = &Error{Code: CodeTooLarge, Message: "too large"}
	ErrConflict        error = &Error{Code: CodeConflict, Message: "conflict", Retryable: true}
	ErrOverloaded      error = &Error{Code: CodeOverloaded, Message: "overloaded", Retryable: true}
	ErrInternal        error = &Error{Code: CodeInternal, Message: "internal error"}
	ErrCancelled       error = &Error{Code: CodeCancelled, Message: "cancelled"}
)

// The outcomes of storing a message that was not acknowledged.
var (
	// ErrFenceLost means definitely not stored, because another commit was first. It wraps
	// ErrConflict.
	ErrFenceLost = fmt.Errorf("fence lost: %w", ErrConflict)
	// ErrRefused means definitely not stored, because the server refused it. The error
	// contains the reason.
	ErrRefused = errors.New("refused by the server")
	// ErrAmbiguous means that it is unknown whether the message was stored. Read the log to
	// find out.
	ErrAmbiguous = errors.New("unknown whether it was stored")
)

// CodeOf returns the code with which err is sent over the bus, or "" if err is nil.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, nats.ErrPermissionViolation):
		return CodeDenied
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.Is(err, ErrAmbiguous):
		return CodeTimeout
	case errors.Is(err, context.Canceled):
		return CodeCancelled
	case errors.Is(err, nats.ErrMaxPayload):
		return CodeTooLarge
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, ErrRefused),
		errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrDisconnected):
		return CodeUnavailable
	case errors.Is(err, jetstream.ErrMsgNotFound), errors.Is(err, jetstream.ErrObjectNotFound):
		return CodeNotFound
	}
	return CodeInternal
}

// Retryable reports whether the same request may succeed later.
func Retryable(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Retryable
	}
	return CodeOf(err).retryable()
}

// wireError returns err in the form in which it is sent over the bus.
func wireError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		// The wrapping text describes the operation, which helps the caller.
		return &Error{Code: e.Code, Message: err.Error(), Retryable: e.Retryable}
	}
	code := CodeOf(err)
	return &Error{Code: code, Message: err.Error(), Retryable: code.retryable()}
}

// errorFromWire decodes the error that a responder sent, or returns nil if the message is not
// an error.
func errorFromWire(h nats.Header, body []byte) error {
	code := Code(h.Get(ErrorHeader))
	if code == "" {
		return nil
	}
	e := &Error{}
	if json.Unmarshal(body, e) != nil || e.Message == "" {
		e.Message, e.Retryable = "the responder reported "+string(code), code.retryable()
	}
	e.Code = code
	if !code.known() {
		e.Code = CodeInternal
	}
	return e
}

// TransportError adds the code to an error of the connection or of a wait.
func TransportError(doing string, err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return fmt.Errorf("%s: %w", doing, err)
	}
	code := CodeOf(err)
	if code == CodeInternal {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, &Error{Code: code, Retryable: code.retryable()}, err)
}
