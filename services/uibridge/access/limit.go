package access

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"path"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// Use is the kind of a call, which decides which limits of its token it counts against.
type Use int

// The uses. A decision counts only against its own limit, so that a flood of inputs cannot
// prevent a person from stopping it.
const (
	Call     Use = iota // a request
	Input               // a request and an input
	Decision            // an approval, a denial or a cancel
)

// UseOf returns the use of a method.
func UseOf(method string) Use {
	switch method {
	case request.SubmitUserInput, request.RunCommand:
		return Input
	case request.ProvideConfirmation, request.CancelTurn:
		return Decision
	}
	return Call
}

// useOf returns the use of an HTTP request before its body is read.
func useOf(r *http.Request) Use {
	dir, last := path.Split(r.URL.Path)
	if dir != "/v1/rpc/" {
		last = request.Paths[last]
	}
	if r.Method == http.MethodPost && UseOf(last) == Decision {
		return Decision
	}
	return Call
}

// allowance is what one token may still use.
type allowance struct {
	http [Decision + 1]budget // for requests
	made [Decision + 1]budget // for calls of the backend, over any transport
}

// budget is a rate limit, and the configuration field that sets it.
type budget struct {
	*rate.Limiter
	what, field string
}

func newAllowance(l Limits) allowance {
	requests := func() budget {
		return budget{rate.NewLimiter(rate.Limit(l.Requests), l.Burst), "requests", "ui.limits.requests"}
	}
	perMinute := func(n float64, what, field string) budget {
		return budget{rate.NewLimiter(rate.Limit(n/60), max(int(n/4), 1)), what, field}
	}
	decisions := func() budget { return perMinute(l.Decisions, "approvals and cancels", "ui.limits.decisions") }
	return allowance{
		http: [...]budget{Call: requests(), Decision: decisions()},
		made: [...]budget{Call: requests(), Input: perMinute(l.Inputs, "inputs", "ui.limits.inputs"), Decision: decisions()},
	}
}

// spend counts one use, or returns an error with the time to wait.
func (b budget) spend() *contract.Error {
	now := time.Now()
	r := b.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait <= 0 {
		return nil
	}
	r.CancelAt(now)
	again := (wait + time.Millisecond - 1).Truncate(time.Millisecond)
	return tooMany(fmt.Sprintf("too many %s with this token; try again in %s, or raise %s", b.what, again, b.field), wait)
}

func tooMany(message string, wait time.Duration) *contract.Error {
	return &contract.Error{
		Code: contract.CodeRateLimited, Message: message,
		RetryAfterMS: int64(math.Ceil(float64(wait) / float64(time.Millisecond))),
	}
}

// Limit returns the backend with the limits applied: each call counts as its method's
// [Use]. Calls on an open connection whose token or login has ended are refused.
func (a *Access) Limit(b contract.Backend) contract.Backend { return limited{b, a} }

type limited struct {
	contract.Backend
	a *Access
}

// Spend counts a request on an open connection of a principal. The error says why it is
// refused.
func (a *Access) Spend(p contract.Principal, use Use) error {
	if err := a.Valid(p); err != nil {
		return err
	}
	made := a.allowances[p.Name].made
	var err *contract.Error
	if use == Input {
		err = made[Call].spend()
	}
	if err == nil {
		err = made[use].spend()
	}
	if err != nil {
		a.count.limited.Add(1)
		return err
	}
	return nil
}

// Attach implements [contract.Backend].
func (l limited) Attach(ctx context.Context, p contract.Principal, at contract.Attachment) (contract.Feed, error) {
	if err := l.a.Spend(p, Call); err != nil {
		return nil, err
	}
	return l.Backend.Attach(ctx, p, at)
}

// Submit implements [contract.Backend].
func (l limited) Submit(ctx context.Context, p contract.Principal, in contract.Submission) (contract.Receipt, error) {
	if err := l.a.Spend(p, Input); err != nil {
		return contract.Receipt{}, err
	}
	return l.Backend.Submit(ctx, p, in)
}

// Confirm implements [contract.Backend].
func (l limited) Confirm(ctx context.Context, p contract.Principal, answer contract.Answer) (contract.Receipt, error) {
	if err := l.a.Spend(p, Decision); err != nil {
		return contract.Receipt{}, err
	}
	return l.Backend.Confirm(ctx, p, answer)
}

// Cancel implements [contract.Backend].
func (l limited) Cancel(ctx context.Context, p contract.Principal, c contract.Cancellation) (contract.Receipt, error) {
	if err := l.a.Spend(p, Decision); err != nil {
		return contract.Receipt{}, err
	}
	return l.Backend.Cancel(ctx, p, c)
}

// Methods implements [contract.Backend].
func (l limited) Methods() map[string]contract.Method {
	all := l.Backend.Methods()
	out := make(map[string]contract.Method, len(all))
	for name, m := range all {
		call := m.Call
		m.Call = func(ctx context.Context, p contract.Principal, params json.RawMessage) (any, error) {
			if err := l.a.Spend(p, Call); err != nil {
				return nil, err
			}
			return call(ctx, p, params)
		}
		out[name] = m
	}
	return out
}

// How many wrong tokens and codes an address may send.
const (
	failBurst, failEvery = 10, 6 * time.Second
	maxAddresses         = 4096 // counted separately
)

// failures counts recent wrong secrets by address.
type failures struct {
	mu sync.Mutex
	by map[netip.Addr]*rate.Limiter
}

func newFailures() *failures { return &failures{by: map[netip.Addr]*rate.Limiter{}} }

// of returns the address's limiter. When there are too many addresses, those whose budget
// is full again are dropped; if there are none, all further addresses share one limiter.
func (f *failures) of(addr netip.Addr, now time.Time) *rate.Limiter {
	if l := f.by[addr]; l != nil {
		return l
	}
	if len(f.by) >= maxAddresses {
		for a, l := range f.by {
			if l.TokensAt(now) >= failBurst {
				delete(f.by, a)
			}
		}
	}
	if len(f.by) >= maxAddresses {
		addr = netip.Addr{}
		if l := f.by[addr]; l != nil {
			return l
		}
	}
	l := rate.NewLimiter(rate.Every(failEvery), failBurst)
	f.by[addr] = l
	return l
}

// blocked returns an error if nothing from the address is checked now.
func (f *failures) blocked(addr netip.Addr) *contract.Error {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.of(addr, now); l.TokensAt(now) < 1 {
		return tooMany("too many wrong tokens or codes from this address; wait, or use a token of 32 characters or more",
			failEvery)
	}
	return nil
}

// failed counts a wrong secret.
func (f *failures) failed(addr netip.Addr) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of(addr, now).AllowN(now, 1)
}
