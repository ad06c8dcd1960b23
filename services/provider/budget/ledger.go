package budget

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"skandha.dev/pkg/bus"
	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/journal"
)

// Limit is what may be spent in a period, by all agents together.
type Limit struct {
	USD float64 `yaml:"usd"` // US dollars; 0: no limit
	Per Period  `yaml:"per"` // default day
}

// Period is how long a limit applies. It begins at midnight UTC.
type Period string

// The periods.
const (
	Day   Period = "day"
	Month Period = "month"
	Ever  Period = "ever" // for the life of the system
)

// maxUSD is the highest limit that millionths of a dollar can hold.
const maxUSD = 1e12

// Check reports what is wrong; the error begins with the field.
func (l Limit) Check() error {
	var errs []error
	if !(l.USD >= 0 && l.USD <= maxUSD) {
		errs = append(errs, fmt.Errorf("usd is %v, want US dollars, or 0 for no limit", l.USD))
	}
	switch l.Per {
	case "", Day, Month, Ever:
	default:
		errs = append(errs, fmt.Errorf("per is %q, want %s, %s or %s", l.Per, Day, Month, Ever))
	}
	return errors.Join(errs...)
}

// key returns the key of the period that contains now.
func (l Limit) key(now time.Time) string {
	switch l.Period() {
	case Month:
		return now.UTC().Format("month-2006-01")
	case Ever:
		return string(Ever)
	case Day:
	}
	return now.UTC().Format("day-2006-01-02")
}

// Ledger counts what is spent against a limit. It is safe for concurrent use, also by
// several processes.
type Ledger struct {
	limit  Limit
	bucket *journal.Bucket
	log    *slog.Logger
	now    func() time.Time
}

// NewLedger returns the ledger of a system; nil if there is no limit.
func NewLedger(l Limit, j *journal.Journal, log *slog.Logger) *Ledger {
	if l.USD == 0 {
		return nil
	}
	return &Ledger{l, j.Bucket(journal.BucketBudgets), log, time.Now}
}

// account is the value of a period's key.
type account struct {
	Spent int64 `json:"spent_micro_usd"` // requests in progress count with their worst case
}

// Spent returns what was spent in the current period, in millionths of a US dollar, requests
// in progress included with their worst case.
func (l *Ledger) Spent(ctx context.Context) (int64, error) {
	a, _, err := l.read(ctx, l.limit.key(l.now()))
	return a.Spent, err
}

// Reserve adds the worst case of a request, or fails with over_budget. The caller calls
// settle once, with what the answer cost.
func (l *Ledger) Reserve(ctx context.Context, worst int64) (settle func(cost int64), failure *contract.Error) {
	key := l.limit.key(l.now())
	limit := l.limit.MicroUSD()
	var left int64
	err := l.change(ctx, key, func(a *account) error {
		if left = limit - a.Spent; worst > left {
			return errOver
		}
		a.Spent += worst
		return nil
	})
	switch {
	case errors.Is(err, errOver):
		return nil, &contract.Error{Code: contract.ErrOverBudget, Message: fmt.Sprintf(
			"the answer may cost up to %s, and %s of the budget of %s per %s (providers.budget) are left",
			contract.USD(worst), contract.USD(left), contract.USD(limit), l.limit.Period())}
	case err != nil:
		return nil, &contract.Error{
			Code: contract.ErrUnavailable, Message: "the budget cannot be read: " + err.Error(), Retryable: true,
		}
	}
	return func(cost int64) { l.settle(key, cost-worst) }, nil
}

// MicroUSD returns the limit in millionths of a US dollar.
func (l Limit) MicroUSD() int64 { return int64(l.USD * 1e6) }

// Period returns the period of the limit.
func (l Limit) Period() Period {
	if l.Per == "" {
		return Day
	}
	return l.Per
}

var errOver = errors.New("over budget")

// settleWait bounds the attempts to settle, which delay the answer.
const settleWait = 5 * time.Second

// settle corrects a period's account, also for a request that was cancelled.
func (l *Ledger) settle(key string, by int64) {
	if by == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleWait)
	defer cancel()
	err := l.change(ctx, key, func(a *account) error {
		a.Spent = max(a.Spent+by, 0)
		return nil
	})
	if err != nil {
		l.log.Warn("the cost of an answer could not be recorded; its worst case stays counted", "period", key, "error", err)
	}
}

// change applies f to an account by compare-and-set, until it succeeds or ctx ends.
func (l *Ledger) change(ctx context.Context, key string, f func(*account) error) error {
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := l.once(ctx, key, f)
		if err == nil || errors.Is(err, errOver) || ctx.Err() != nil || !transient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause + rand.N(pause)):
		}
	}
}

// transient reports whether another attempt may succeed. An ambiguous one may have been
// stored: then the worst case counts twice, which is on the safe side, or the correction
// is applied twice, so it is not repeated.
func transient(err error) bool { return errors.Is(err, bus.ErrFenceLost) }

func (l *Ledger) once(ctx context.Context, key string, f func(*account) error) error {
	a, revision, err := l.read(ctx, key)
	if err != nil {
		return err
	}
	if err := f(&a); err != nil {
		return err
	}
	value, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = l.bucket.Put(ctx, key, value, journal.Fence{Revision: revision})
	return err
}

func (l *Ledger) read(ctx context.Context, key string) (a account, revision uint64, err error) {
	e, err := l.bucket.Get(ctx, key)
	if errors.Is(err, bus.ErrNotFound) {
		return account{}, 0, nil
	}
	if err == nil {
		err = json.Unmarshal(e.Value, &a)
	}
	return a, e.Revision, err
}
