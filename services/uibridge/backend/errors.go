package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/uibridge/contract"
)

// When to ask again.
const (
	overloadedRetryMS = 5_000
	faultRetryMS      = 10_000
)

// told converts an error of the bus into one for the caller, and logs its text. Repeated
// errors with the same reason are logged once per [logburst.Window].
func (b *Backend) refusal(doing string, err error) error {
	var known *contract.Error
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, bus.ErrInvalidArgument):
		return err
	}
	e := errorFor(doing, err)
	b.bursts.Log(slog.LevelWarn, doing+": "+string(e.Code), doing, "error", err)
	return e
}

// errorFor converts an error of the bus into one for the caller.
func errorFor(doing string, err error) *contract.Error {
	var fault *bus.StorageFault
	switch {
	case errors.Is(err, bus.ErrOverloaded):
		var e *bus.Error
		errors.As(err, &e)
		return &contract.Error{Code: contract.CodeOverloaded, Message: e.Message, RetryAfterMS: overloadedRetryMS}
	case errors.As(err, &fault) && errors.Is(err, bus.ErrRefused):
		return &contract.Error{
			Code:    contract.CodeUnavailable,
			Message: fault.Error() + "; it was not stored", RetryAfterMS: faultRetryMS,
		}
	case errors.As(err, &fault):
		return &contract.Error{
			Code: contract.CodeUnavailable, RetryAfterMS: faultRetryMS,
			Message: fault.Error() + "; it may have been stored; repeating it with the same id is safe",
		}
	case errors.Is(err, bus.ErrTooLarge):
		return &contract.Error{Code: contract.CodeTooLarge, Message: "it is larger than a message may be; say less at once"}
	case errors.Is(err, bus.ErrDenied):
		return &contract.Error{Code: contract.CodeForbidden, Message: "the bus does not let this bridge write that; its credentials lack the right"}
	case errors.Is(err, bus.ErrRefused):
		return &contract.Error{Code: contract.CodeUnavailable, Message: "the log takes nothing now, perhaps because it is full; it was not stored"}
	case errors.Is(err, bus.ErrAmbiguous):
		return &contract.Error{
			Code:    contract.CodeUnavailable,
			Message: "the bus did not acknowledge it, so it may have been stored or not; the same again with the same id is safe",
		}
	}
	return &contract.Error{Code: contract.CodeUnavailable, Message: fmt.Sprintf("%s failed: the bus or core does not answer; try again", doing)}
}

func tooLarge(field string, has, most int) error {
	return &contract.Error{Code: contract.CodeTooLarge, Field: field, Message: fmt.Sprintf("has %d bytes, at most %d", has, most)}
}
