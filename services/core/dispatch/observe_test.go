package dispatch_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/dispatch"
	"skandha.dev/services/test/natstest"
)

// No decision waits for a plugin that may change nothing. It is asked and counted as any other, and one that is so slow that
// too many questions are open misses some.
func TestNoDecisionWaitsForAnObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		suspended := make(chan string, 1)
		p := plugins{"slow": func(ctx context.Context, _ hook.Envelope) (string, error) {
			select {
			case <-answer:
				return `{"verb":"continue"}`, nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}, "judge": says(`{"verb":"deny","reason":"no"}`)}
		e := dispatch.New(dispatch.Config{
			Ask: p.ask, SuspendAfter: 3, Observes: func(p subject.Plugin, _ hook.Point) bool { return p == "slow" },
			Suspend: func(_ subject.Plugin, why string) { suspended <- why },
		})
		table := e.NewHookSet(at(hook.BeforeAct, hook.Chain, "slow", "judge"), ample())
		e.Set(table)
		began := time.Now()
		d := table.Run(envelope)
		if d.Verb != hook.DenyVerb || time.Since(began) != 0 {
			t.Errorf("%s after %v", d.Verb, time.Since(began))
		}
		if d := table.Judge(envelope, d); d.Verb != hook.Continue || len(d.Verdicts) != 0 {
			t.Errorf("asked about the same call again: %+v", d)
		}
		synctest.Wait()
		close(answer)
		synctest.Wait()
		if u := e.Use(hook.BeforeAct, "slow"); u.Asked != 1 || u.Failed != 0 {
			t.Errorf("%+v", u)
		}
		answer = nil // from now on it hangs
		for range 512 {
			table.Run(envelope)
		}
		synctest.Wait()
		if u := e.Use(hook.BeforeAct, "slow"); u.Asked != 1 {
			t.Errorf("%+v while its answers are awaited", u)
		}
		for range 3 {
			table.Run(envelope)
		}
		if why := <-suspended; !strings.Contains(why, "512 questions to observers are without an answer") {
			t.Errorf("it is suspended because %s", why)
		}
		time.Sleep(2 * natstest.Patience) // until the last question has had its time; the bubble's clock
	})
}
