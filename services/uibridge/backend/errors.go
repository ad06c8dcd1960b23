package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/uibridge/contract"
)

// The retry delays in errors.
const (
	overloadedRetryMS = 5_000
	faultRetryMS      = 10_000
)

// refusal converts an error of the bus into one for the caller, and logs the original.
// Repeated errors with the same reason are logged once per [logburst.Window].
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
			Message: fault.Error() + "; the message was not stored", RetryAfterMS: faultRetryMS,
		}
	case errors.As(err, &fault):
		return &contract.Error{
			Code: contract.CodeUnavailable, RetryAfterMS: faultRetryMS,
			Message: fault.Error() + "; the message may have been stored; a retry with the same id is safe",
		}
	case errors.Is(err, bus.ErrTooLarge):
		return &contract.Error{
			Code: contract.CodeTooLarge, Message: "the message is larger than the bus accepts; send less at once",
		}
	case errors.Is(err, bus.ErrDenied):
		return &contract.Error{
			Code:    contract.CodeForbidden,
			Message: "the bus denied the write; the bridge's credentials lack the permission",
		}
	case errors.Is(err, bus.ErrRefused):
		return &contract.Error{
			Code:    contract.CodeUnavailable,
			Message: "the log accepts no messages now, perhaps because it is full; the message was not stored",
		}
	case errors.Is(err, bus.ErrAmbiguous):
		return &contract.Error{
			Code: contract.CodeUnavailable,
			Message: "the bus did not acknowledge the message, so it may or may not have been stored; " +
				"a retry with the same id is safe",
		}
	}
	return &contract.Error{
		Code: contract.CodeUnavailable, Message: fmt.Sprintf("%s failed: the bus or core does not answer; try again", doing),
	}
}

func tooLarge(field string, has, most int) error {
	return &contract.Error{
		Code: contract.CodeTooLarge, Field: field, Message: fmt.Sprintf("has %d bytes; the limit is %d", has, most),
	}
}
