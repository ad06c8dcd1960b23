package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Code is the closed set of reasons that cross the bus. A code that a process
// does not know is read as [CodeInternal].
type Code string

// The codes.
const (
	CodeInvalidArgument Code = "invalid_argument" // the request makes no sense; repeating it does not help
	CodeNotFound        Code = "not_found"        // what it names does not exist
	CodeDenied          Code = "denied"           // not allowed
	CodeUnavailable     Code = "unavailable"      // nobody there, or not now; try again
	CodeTimeout         Code = "timeout"          // no answer in time; it may have been done
	CodeTooLarge        Code = "too_large"        // above a limit, which the message names
	CodeConflict        Code = "conflict"         // someone else was first; look again, then try again
	CodeOverloaded      Code = "overloaded"       // too much is waiting; try again later
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

// Error is an error that crosses the bus: its code in the header Skandha-Error,
// all of it as JSON in the body. errors.Is compares codes, so that
// errors.Is(err, bus.ErrNotFound) works in the process that asked.
type Error struct {
	Code      Code   `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"` // the same request may succeed later
}

// Errorf makes an Error of the code; whether it is retryable follows from the code.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Retryable: code.retryable()}
}

// Error is the message, or the code when there is none.
func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return e.Message
}

// Is reports whether target is an *Error of the same code.
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

// Outcomes of storing a message that is not acknowledged.
var (
	// ErrFenceLost: definitely not stored, another commit came first. It is also ErrConflict.
	ErrFenceLost = fmt.Errorf("fence lost: %w", ErrConflict)
	// ErrRefused: definitely not stored, the server said no; the error says why.
	ErrRefused = errors.New("refused by the server")
	// ErrAmbiguous: nobody knows whether it was stored; read the log to find out.
	ErrAmbiguous = errors.New("not known whether it was stored")
)

// CodeOf is the code under which err crosses the bus; "" for nil.
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
	var e *Error
	if errors.As(err, &e) {
		return e.Retryable
	}
	return CodeOf(err).retryable()
}

// wireError is what of err crosses the bus.
func wireError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		// The wrapping says what was being done, which the caller wants to read.
		return &Error{Code: e.Code, Message: err.Error(), Retryable: e.Retryable}
	}
	code := CodeOf(err)
	return &Error{Code: code, Message: err.Error(), Retryable: code.retryable()}
}

// errorFromWire reads the error a responder sent; nil when the message is none.
func errorFromWire(h nats.Header, body []byte) error {
	code := Code(h.Get(ErrorHeader))
	if code == "" {
		return nil
	}
	e := &Error{}
	if json.Unmarshal(body, e) != nil || e.Message == "" {
		e.Message, e.Retryable = "the responder said "+string(code), code.retryable()
	}
	e.Code = code
	if !code.known() {
		e.Code = CodeInternal
	}
	return e
}

// transportError gives a failure of the connection or of a wait its code.
func transportError(doing string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	code := CodeOf(err)
	if code == CodeInternal {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, &Error{Code: code, Retryable: code.retryable()}, err)
}
