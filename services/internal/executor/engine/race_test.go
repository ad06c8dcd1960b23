package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
)

// TestNoTwoStartsAndNoneAfterNever lets many callers run, ask, stop and release
// the same few attempts at once.
func TestNoTwoStartsAndNoneAfterNever(t *testing.T) {
	const attempts, callers, rounds = 4, 8, 300
	for round := range rounds {
		var starts [attempts]atomic.Int64
		var never, startedAfter [attempts]atomic.Bool
		table, err := validAttempts(Config{
			Kind: subject.Runner, Service: "test", Logger: slog.New(slog.DiscardHandler),
			Offer: Offer{Tools: []tool.Spec{{Name: "t"}}}, Pools: []executor.Pool{{Name: "default", Slots: 2}},
			Work: func(_ context.Context, r executor.Request, _ func(string)) executor.Answer {
				i := r.Call[0] - '0'
				if never[i].Load() {
					startedAfter[i].Store(true)
				}
				starts[i].Add(1)
				res := tool.OK(nil)
				return executor.Answer{Result: &res}
			},
		}, "x")
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(uint64(round), 1))
		var wg sync.WaitGroup
		for range callers {
			ops := rng.Perm(attempts * 4)
			wg.Go(func() {
				for _, op := range ops {
					i := op % attempts
					r := request(fmt.Sprint(i), "t")
					w := watchFunc(func(a executor.Answer) {
						if a.State == executor.Never || a.State == executor.Refused {
							never[i].Store(true)
						}
						if (a.State == executor.Finished || a.State == executor.Unknown || a.State == executor.Stopped) &&
							never[i].Load() {
							t.Errorf("attempt %d was said to be %q after never", i, a.State)
						}
					})
					switch op / attempts {
					case 0, 1:
						table.Run(t.Context(), r, w)
					case 2:
						if rng := op & 1; rng == 0 {
							table.Ask(r, w)
						} else {
							table.Release(r)
						}
					case 3:
						table.Stop(r, w)
					}
				}
			})
		}
		wg.Wait()
		for i := range attempts {
			if n := starts[i].Load(); n > 1 || n == 1 && never[i].Load() || startedAfter[i].Load() {
				t.Fatalf("round %d, attempt %d: %d starts, answered never: %v", round, i, n, never[i].Load())
			}
		}
		if p := table.Pools()[0]; p.Busy != 0 {
			t.Fatalf("round %d: slots leaked: %+v", round, p)
		}
	}
}

type watchFunc func(executor.Answer)

func (f watchFunc) Reply(b []byte) error {
	var a executor.Answer
	if err := json.Unmarshal(b, &a); err != nil {
		return err
	}
	f(a)
	return nil
}
