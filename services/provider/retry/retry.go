package retry

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
)

// Config sets the number of tries and the pauses. Zero fields mean the defaults.
type Config struct {
	// in all, the first included
	Tries int `default:"3" min:"1" max:"10"`
	// before the second try, doubled for each further one
	Pause time.Duration `default:"500ms" min:"0"`
	// the longest pause, Retry-After included
	MaxPause time.Duration `default:"20s" min:"0"`
	// requests that must fail in a row to open the breaker
	TripAfter int `default:"5" min:"0"`
	// how long an open breaker refuses
	OpenFor time.Duration `default:"10s" min:"0"`
}

// WithDefaults replaces zero fields.
func (c Config) WithDefaults() Config { return bounds.Filled(c) }

// Validate reports invalid values; the error names the field.
func (c Config) Validate() error { return bounds.Check("retry.", c) }

// Try is one call of the API. Begun means that a part of the answer was already
// passed on, so that the call must not be repeated.
type Try func(ctx context.Context) (resp contract.Response, begun bool, err error)

// Policy retries calls of one API and keeps its circuit breaker, which counts
// requests, not tries: a request that is retried, here or by core, fails only
// once. Policy is safe for concurrent use; adapters of the same API share one.
type Policy struct {
	cfg Config

	mu      sync.Mutex
	breaker circuitbreaker.CircuitBreaker[outcome]
	failed  map[string]bool // requests that the closed breaker has counted
	last    string          // why the latest of them failed
	held    map[string]held // requests that may be sent again later
	waiting atomic.Int32    // questions that wait until then
}

type outcome struct {
	resp  contract.Response
	begun bool
}

// New returns a policy for an API.
func New(cfg Config) *Policy {
	cfg = cfg.WithDefaults()
	return &Policy{cfg: cfg, failed: map[string]bool{}, held: map[string]held{}, breaker: circuitbreaker.NewBuilder[outcome]().
		WithFailureThreshold(uint(cfg.TripAfter)).
		WithDelay(cfg.OpenFor).
		WithSuccessThreshold(1).
		Build()}
}

type questionKey struct{}

// WithQuestion names the request that is sent under the context, so that all
// attempts at it count once, and a later one waits for as long as the API asked the one
// before to. A request without a name counts each time.
func WithQuestion(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, questionKey{}, id)
}

type gateKey struct{}

// WithGate sets a function that is called before each try but the first, with the error of
// the one before. If it returns an error, that is the result, and there is no further try.
func WithGate(ctx context.Context, gate func(failed error) error) context.Context {
	return context.WithValue(ctx, gateKey{}, gate)
}

// pass asks the gate, if there is one.
func pass(ctx context.Context, failed error) error {
	gate, ok := ctx.Value(gateKey{}).(func(error) error)
	if !ok || failed == nil {
		return nil
	}
	return gate(failed)
}

// apiIsDown reports whether the breaker counts the error: only one that means that the
// API cannot be reached. A refusal, a limit or an unreadable answer shows that it is up.
func apiIsDown(o outcome, err error) bool {
	var e *contract.Error
	return errors.As(err, &e) && !o.begun && (e.Code == contract.ErrUnavailable || e.Code == contract.ErrTimeout)
}

// Do calls try until it succeeds, fails for good, or is out of tries or time.
// The error is the last try's. While the breaker is open, it is the error that
// opened it, with the time to ask again.
func (p *Policy) Do(ctx context.Context, try Try) (contract.Response, error) {
	if err := p.wait(ctx); err != nil {
		return contract.Response{}, err
	}
	if !p.breaker.TryAcquirePermit() {
		return contract.Response{}, p.refusal()
	}
	var o outcome
	err := errPanicked
	defer func() {
		p.record(ctx, o, err)
		p.hold(ctx, o.begun || charged(ctx), err)
	}()
	var pause time.Duration
	var refused error // by the gate
	again := retrypolicy.NewBuilder[outcome]().
		HandleIf(func(o outcome, err error) bool {
			if refused != nil {
				return false
			}
			var worth bool
			pause, worth = p.pause(ctx, pause, o, err)
			return worth
		}).
		WithDelayFunc(func(failsafe.ExecutionAttempt[outcome]) time.Duration { return jittered(pause) }).
		WithMaxAttempts(p.cfg.Tries).
		ReturnLastFailure().
		Build()
	o, err = failsafe.With[outcome](again).WithContext(ctx).GetWithExecution(
		func(exec failsafe.Execution[outcome]) (outcome, error) {
			if refused = pass(ctx, exec.LastError()); refused != nil {
				return exec.LastResult(), exec.LastError() // what the breaker is to count
			}
			resp, begun, err := try(exec.Context())
			return outcome{resp, begun}, err
		})
	if refused != nil {
		return contract.Response{}, refused
	}
	return o.resp, err
}

// errPanicked is recorded for a request that did not return.
var errPanicked = errors.New("the adapter panicked")

// record reports the result of a request to the breaker.
func (p *Policy) record(ctx context.Context, o outcome, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	down, learned := apiIsDown(o, err), err == nil || ctx.Err() == nil
	if down {
		p.last = adapter.Failure(err).Message
	}
	id := question(ctx)
	switch {
	case p.breaker.IsHalfOpen() && (down || !learned): // an inconclusive trial is repeated later
		p.breaker.RecordFailure()
	case down && !p.failed[id]:
		if id != "" {
			p.failed[id] = true
		}
		p.breaker.RecordFailure()
	case !down && learned:
		p.breaker.RecordSuccess()
		clear(p.failed)
	}
	if p.breaker.IsOpen() {
		clear(p.failed)
	}
}

// pause decides whether another try is worth it, and how long to wait before it.
func (p *Policy) pause(ctx context.Context, last time.Duration, o outcome, err error) (time.Duration, bool) {
	var e *contract.Error
	if !errors.As(err, &e) || !e.Retryable || o.begun || charged(ctx) || p.breaker.IsOpen() {
		return last, false
	}
	next := min(max(2*last, p.cfg.Pause), p.cfg.MaxPause)
	if e.RetryInMS > 0 {
		wish := time.Duration(e.RetryInMS) * time.Millisecond
		if wish > p.cfg.MaxPause {
			return last, false // core can ask another provider meanwhile; see wait
		}
		next = max(next, wish)
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= longest(next) {
		return last, false
	}
	return next, true
}

// Breaker describes the circuit breaker.
func (p *Policy) Breaker() providerapi.Breaker {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.breaker.IsOpen():
		return providerapi.Breaker{
			State: providerapi.Open, Reason: p.last, RetryInMS: max(p.breaker.RemainingDelay().Milliseconds(), 0),
		}
	case p.breaker.IsHalfOpen():
		return providerapi.Breaker{State: providerapi.HalfOpen, Reason: p.last}
	}
	return providerapi.Breaker{State: providerapi.Closed}
}

// jittered adds up to a quarter to the pause: never less than the API asked for.
func jittered(pause time.Duration) time.Duration {
	return pause + rand.N(pause/4+1)
}

func longest(pause time.Duration) time.Duration { return pause + pause/4 }

func (p *Policy) refusal() *contract.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := adapter.Errorf(contract.ErrUnavailable, "%s (%d questions failed in a row, so none is sent for %s)", p.last,
		p.cfg.TripAfter, p.cfg.OpenFor)
	e.RetryInMS = max(p.breaker.RemainingDelay().Milliseconds(), 1)
	return e
}
