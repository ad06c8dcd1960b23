package access

import (
	"context"
	"encoding/json"
	"math"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"skandha.dev/services/uibridge/contract"
)

// allowance is what one token may still use.
type allowance struct {
	requests *rate.Limiter // HTTP
	calls    *rate.Limiter // of the backend, whatever they came by
	inputs   *rate.Limiter
}

func newAllowance(l Limits) allowance {
	return allowance{
		rate.NewLimiter(rate.Limit(l.Requests), l.Burst), rate.NewLimiter(rate.Limit(l.Requests), l.Burst),
		rate.NewLimiter(rate.Limit(l.Inputs/60), max(int(l.Inputs/4), 1)),
	}
}

// spend takes one from the limiter, or says how long to wait.
func spend(l *rate.Limiter, what string) *contract.Error {
	now := time.Now()
	r := l.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait <= 0 {
		return nil
	}
	r.CancelAt(now)
	return tooMany("too many "+what+" with this token; wait, or have ui.limits raised", wait)
}

func tooMany(message string, wait time.Duration) *contract.Error {
	return &contract.Error{Code: contract.CodeRateLimited, Message: message, RetryAfterMS: int64(math.Ceil(float64(wait) / float64(time.Millisecond)))}
}

// Limit is the backend within the limits: a call costs one of its token's requests, an
// input one of its inputs, too. What comes over an open connection whose token or login
// has ended is refused.
func (a *Access) Limit(b contract.Backend) contract.Backend { return limited{b, a} }

type limited struct {
	contract.Backend
	a *Access
}

// Spend counts a request of a principal that came over an open connection, and an
// input if it is one. The error says why it is refused.
func (a *Access) Spend(p contract.Principal, input bool) error {
	if err := a.Valid(p); err != nil {
		return err
	}
	own := a.allowances[p.Name]
	err := spend(own.calls, "requests")
	if err == nil && input {
		err = spend(own.inputs, "inputs")
	}
	if err != nil {
		a.count.limited.Add(1)
		return err
	}
	return nil
}

func (l limited) call(p contract.Principal) error { return l.a.Spend(p, false) }

// Attach implements [contract.Backend].
func (l limited) Attach(ctx context.Context, p contract.Principal, at contract.Attachment) (contract.Feed, error) {
	if err := l.call(p); err != nil {
		return nil, err
	}
	return l.Backend.Attach(ctx, p, at)
}

// Submit implements [contract.Backend].
func (l limited) Submit(ctx context.Context, p contract.Principal, in contract.Submission) (contract.Receipt, error) {
	if err := l.a.Spend(p, true); err != nil {
		return contract.Receipt{}, err
	}
	return l.Backend.Submit(ctx, p, in)
}

// Confirm implements [contract.Backend].
func (l limited) Confirm(ctx context.Context, p contract.Principal, answer contract.Answer) (contract.Receipt, error) {
	if err := l.call(p); err != nil {
		return contract.Receipt{}, err
	}
	return l.Backend.Confirm(ctx, p, answer)
}

// Cancel implements [contract.Backend].
func (l limited) Cancel(ctx context.Context, p contract.Principal, c contract.Cancellation) (contract.Receipt, error) {
	if err := l.call(p); err != nil {
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
			if err := l.call(p); err != nil {
				return nil, err
			}
			return call(ctx, p, params)
		}
		out[name] = m
	}
	return out
}

// How many wrong tokens, cookies and codes are looked at.
const (
	failBurst, failEvery       = 10, 6 * time.Second         // of one address
	failBurstAll, failEveryAll = 100, 100 * time.Millisecond // of all
	maxAddresses               = 4096                        // that are told apart
)

// failures are what was wrong lately, by where it came from.
type failures struct {
	mu  sync.Mutex
	by  map[netip.Addr]*rate.Limiter
	all *rate.Limiter
}

func newFailures() *failures {
	return &failures{by: map[netip.Addr]*rate.Limiter{}, all: rate.NewLimiter(rate.Every(failEveryAll), failBurstAll)}
}

// of is the address's limiter. When there are too many addresses, those that have
// behaved since are forgotten; if there are none, the rest are one.
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

// blocked says why nothing more is looked at from the address now.
func (f *failures) blocked(addr netip.Addr) *contract.Error {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.of(addr, now); l.TokensAt(now) < 1 {
		return tooMany("too many wrong tokens or codes; wait", failEvery)
	}
	if f.all.TokensAt(now) < 1 {
		return tooMany("too many wrong tokens or codes of others; wait", failEveryAll)
	}
	return nil
}

// failed counts something wrong.
func (f *failures) failed(addr netip.Addr) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of(addr, now).AllowN(now, 1)
	f.all.AllowN(now, 1)
}
