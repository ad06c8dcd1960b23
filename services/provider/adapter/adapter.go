package adapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/providerapi"
)

// Adapter asks one language model. It is safe for concurrent use.
type Adapter interface {
	// Info describes the adapter; the name is unique among the adapters of a process.
	Info() contract.Info
	// Generate returns the next message. While the answer is being written,
	// delta is called with pieces of it, from one goroutine at a time; it never
	// blocks. The error is a *[contract.Error] where it can be; when ctx was
	// cancelled it may be the context's own. Generate returns soon after ctx ends.
	Generate(ctx context.Context, req contract.Request, delta func(text, reasoning string)) (contract.Response, error)
}

// Checker is an adapter of an API that can be asked how it is.
type Checker interface {
	// Models asks the API which models it has. It is not retried, and an open breaker does
	// not refuse it. The error is a *[contract.Error] where it can be.
	Models(ctx context.Context) ([]string, error)
	// Breaker describes the adapter's circuit breaker.
	Breaker() providerapi.Breaker
}

type beganKey struct{}

// WithBegan sets a flag that [Began] sets.
func WithBegan(ctx context.Context, flag *atomic.Bool) context.Context {
	return context.WithValue(ctx, beganKey{}, flag)
}

// Began notes that the API has begun to answer a try, which it will charge for, whatever
// becomes of the answer.
func Began(ctx context.Context) {
	if flag, ok := ctx.Value(beganKey{}).(*atomic.Bool); ok {
		flag.Store(true)
	}
}

// HasBegun reports whether [Began] was called for the try.
func HasBegun(ctx context.Context) bool {
	flag, ok := ctx.Value(beganKey{}).(*atomic.Bool)
	return ok && flag.Load()
}

// Limits bound one answer, so that it fits into one message and one commit,
// whatever a model or its server sends.
type Limits struct {
	TextBytes  int `default:"200 KiB" min:"0"` // of the text
	Calls      int `default:"64" min:"0"`      // tool calls
	ArgsBytes  int `default:"256 KiB" min:"0"` // of the arguments of all calls together
	StateBytes int `default:"128 KiB" min:"0"` // of the provider's own state
}

// maxNameBytes bounds a tool's name and a call's id.
const maxNameBytes = 256

// DefaultLimits returns the limits that replace zero fields.
func DefaultLimits() Limits { return bounds.Filled(Limits{}) }

// WithDefaults replaces zero fields.
func (l Limits) WithDefaults() Limits { return bounds.Filled(l) }

// Validate reports a negative limit; the error names the field.
func (l Limits) Validate() error { return bounds.Check("limits.", l) }

// Check returns why an answer cannot be used: it is too long, or it is garbage
// (neither text nor calls, a call without a name, two calls with one id, …).
// Zero limits mean the defaults.
func (l Limits) Check(r contract.Response) *contract.Error {
	l = l.WithDefaults()
	if r.TextContent == "" && len(r.ToolCalls) == 0 {
		return Errorf(contract.ErrGarbage, "the answer holds neither text nor tool calls")
	}
	if len(r.TextContent) > l.TextBytes {
		return l.TextTooLong()
	}
	if len(r.ToolCalls) > l.Calls {
		return l.TooManyCalls()
	}
	if len(r.ProviderState) > l.StateBytes {
		return Errorf(contract.ErrTooLong, "the provider's state is %d bytes long, the limit is %d", len(r.ProviderState),
			l.StateBytes)
	}
	if len(r.ProviderState) > 0 && !json.Valid(r.ProviderState) {
		return Errorf(contract.ErrGarbage, "the provider's state is not JSON")
	}
	return l.checkCalls(r.ToolCalls)
}

func (l Limits) checkCalls(calls []contract.ToolCall) *contract.Error {
	args := 0
	ids := make(map[string]bool, len(calls))
	for i, c := range calls {
		switch {
		case c.Tool == "" || len(c.Tool) > maxNameBytes:
			return Errorf(contract.ErrGarbage, "tool call %d names no tool, or one whose name is longer than %d bytes", i,
				maxNameBytes)
		case c.ID == "" || len(c.ID) > maxNameBytes || ids[c.ID]:
			return Errorf(contract.ErrGarbage, "the id of tool call %d is empty, too long or not unique", i)
		case !json.Valid(c.Args):
			return Errorf(contract.ErrGarbage, "the arguments of tool call %d are not JSON", i)
		case len(c.DependsOn) > len(calls):
			return Errorf(contract.ErrGarbage, "tool call %d depends on more calls than there are", i)
		}
		ids[c.ID] = true
		if args += len(c.Args); args > l.ArgsBytes {
			return l.ArgsTooLong()
		}
	}
	return nil
}

// TextTooLong is the error of an answer whose text exceeds the limit.
func (l Limits) TextTooLong() *contract.Error {
	return Errorf(contract.ErrTooLong, "the answer's text is longer than %d bytes", l.WithDefaults().TextBytes)
}

// TooManyCalls is the error of an answer with more tool calls than the limit.
func (l Limits) TooManyCalls() *contract.Error {
	return Errorf(contract.ErrTooLong, "the answer holds more than %d tool calls", l.WithDefaults().Calls)
}

// ArgsTooLong is the error of an answer whose arguments exceed the limit.
func (l Limits) ArgsTooLong() *contract.Error {
	return Errorf(contract.ErrTooLong, "the arguments of the answer's tool calls are longer than %d bytes",
		l.WithDefaults().ArgsBytes)
}

// Errorf returns a provider's failure; the code decides whether it is retryable.
func Errorf(code contract.ErrorCode, format string, args ...any) *contract.Error {
	return &contract.Error{Code: code, Message: fmt.Sprintf(format, args...), Retryable: retryable(code)}
}

// retryable reports whether another attempt may succeed, based only on the code.
func retryable(code contract.ErrorCode) bool {
	switch code {
	case contract.ErrRateLimited, contract.ErrUnavailable, contract.ErrTimeout, contract.ErrGarbage:
		return true
	}
	return false
}

// Failure turns any error of an adapter into the contract's. A deadline becomes
// timeout; any other error that is not a *[contract.Error] becomes internal.
func Failure(err error) *contract.Error {
	var e *contract.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(contract.ErrTimeout, "no answer before the deadline")
	case errors.Is(err, context.Canceled):
		return Errorf(contract.ErrTimeout, "the request was cancelled")
	default:
		return Errorf(contract.ErrInternal, "%v", err)
	}
}
