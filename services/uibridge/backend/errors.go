package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/submit"
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
	e := &contract.Error{Code: contract.CodeUnavailable}
	switch why, fault := submit.Why(err); why {
	case submit.Overloaded:
		var reported *bus.Error
		errors.As(err, &reported)
		e.Code, e.Message, e.RetryAfterMS = contract.CodeOverloaded, reported.Message, overloadedRetryMS
	case submit.Full:
		e.Message, e.RetryAfterMS = fault.Error()+"; the message was not stored", faultRetryMS
	case submit.TooLarge:
		e.Code, e.Message = contract.CodeTooLarge, "the message is larger than the bus accepts; send less at once"
	case submit.Denied:
		e.Code = contract.CodeForbidden
		e.Message = "the bus denied the write; the bridge's credentials lack the permission"
	case submit.Refused:
		e.Message = "the log accepts no messages now, perhaps because it is full; the message was not stored"
	case submit.Unknown:
		e.Message = "the bus did not acknowledge the message, so it may or may not have been stored; " +
			"a retry with the same id is safe"
		if fault != nil {
			e.Message = fault.Error() + "; the message may have been stored; a retry with the same id is safe"
			e.RetryAfterMS = faultRetryMS
		}
	default:
		e.Message = doing + " failed: the bus or core does not answer; try again"
	}
	return e
}

func tooLarge(field string, has, most int) error {
	return &contract.Error{
		Code: contract.CodeTooLarge, Field: field, Message: fmt.Sprintf("has %d bytes; the limit is %d", has, most),
	}
}
