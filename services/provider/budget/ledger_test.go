package budget_test

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"skandha.dev/pkg/bus"
	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/provider/budget"
	"skandha.dev/services/test/natstest"
)

func spent(t *testing.T, l *budget.Ledger) int64 {
	t.Helper()
	n, err := l.Spent(natstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestProcessesShareOneBudget(t *testing.T) {
	srv := natstest.Start(t)
	limit := budget.Limit{USD: 0.001, Per: budget.Ever} // 1000 millionths
	var ledgers []*budget.Ledger
	for range 3 {
		ledgers = append(ledgers, budget.NewLedger(limit, natstest.Connect(t, srv), slog.New(slog.DiscardHandler)))
	}
	var granted, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			settle, failure := ledgers[i%3].Reserve(natstest.Context(t), 100)
			switch {
			case failure == nil:
				granted.Add(1)
				settle(60)
			case failure.Code == contract.ErrOverBudget && !failure.Retryable:
				refused.Add(1)
			default:
				t.Errorf("failed with %v", failure)
			}
		})
	}
	all.Wait()
	got := spent(t, ledgers[0])
	if got > 1000 || got != 60*granted.Load() || granted.Load() < 10 || refused.Load() == 0 {
		t.Errorf("%d were granted, %d refused, %d are spent", granted.Load(), refused.Load(), got)
	}
}

// A process that dies between the request and its answer leaves the worst case.
func TestWhatIsNotSettledStaysCounted(t *testing.T) {
	srv := natstest.Start(t)
	limit := budget.Limit{USD: 0.001, Per: budget.Month}
	dying := budget.NewLedger(limit, natstest.Connect(t, srv), slog.New(slog.DiscardHandler))
	if _, failure := dying.Reserve(natstest.Context(t), 700); failure != nil {
		t.Fatal(failure)
	}
	next := budget.NewLedger(limit, natstest.Connect(t, srv), slog.New(slog.DiscardHandler))
	if _, failure := next.Reserve(natstest.Context(t), 400); failure == nil || failure.Code != contract.ErrOverBudget {
		t.Errorf("a request beyond the limit: %v", failure)
	}
	if settle, failure := next.Reserve(natstest.Context(t), 300); failure != nil {
		t.Error(failure)
	} else {
		settle(0)
	}
	if got := spent(t, next); got != 700 {
		t.Errorf("%d are spent, want 700", got)
	}
}

// Without the account nothing may be spent.
func TestWithoutTheBucketNothingIsSpent(t *testing.T) {
	srv := natstest.Start(t)
	b := natstest.Connect(t, srv)
	if err := b.JetStream().DeleteStream(natstest.Context(t), "KV_"+journal.BucketBudgets); err != nil {
		t.Fatal(err)
	}
	l := budget.NewLedger(budget.Limit{USD: 1}, b, slog.New(slog.DiscardHandler))
	if _, failure := l.Reserve(natstest.Context(t), 1); failure == nil || failure.Code != contract.ErrUnavailable ||
		!failure.Retryable {
		t.Errorf("without the bucket: %v", failure)
	}
	if _, err := l.Spent(natstest.Context(t)); !bus.Retryable(err) {
		t.Errorf("without the bucket: %v", err)
	}
}
