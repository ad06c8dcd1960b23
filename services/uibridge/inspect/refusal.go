package inspect

import (
	"context"
	"errors"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/uibridge/contract"
)

// refusal converts err for the caller. An error that the caller cannot act on is logged.
func (i *inspector) refusal(doing string, err error) error {
	if known, ok := errors.AsType[*contract.Error](err); ok {
		return known
	}
	message := err.Error()
	var e *bus.Error
	if errors.As(err, &e) && e.Message != "" {
		message = e.Message // without the operation's name
	}
	code, mapped := map[bus.Code]contract.Code{
		bus.CodeInvalidArgument: contract.CodeInvalid,
		bus.CodeNotFound:        contract.CodeNotFound,
		bus.CodeDenied:          contract.CodeForbidden,
		bus.CodeTooLarge:        contract.CodeTooLarge,
		bus.CodeConflict:        contract.CodeConflict,
	}[bus.CodeOf(err)]
	switch {
	case mapped:
		return &contract.Error{Code: code, Message: text.Cut(message, 1000)}
	case errors.Is(err, context.Canceled):
		return err
	case bus.Retryable(err):
		i.log.Warn("core or the bus does not answer", "doing", doing, "error", err)
		return &contract.Error{
			Code: contract.CodeUnavailable, Message: "core or the bus does not answer; try again in a moment",
			RetryAfterMS: 1000,
		}
	}
	i.log.Error("request failed", "doing", doing, "error", err)
	return err
}
