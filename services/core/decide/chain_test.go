package decide_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
)

// The ends of an attempt that are not an answer.
var (
	attemptFull  = executor.Answer{State: executor.Refused, Reason: executor.RefusedFull}
	attemptDrain = executor.Answer{State: executor.Refused, Reason: executor.RefusedDraining}
	attemptLost  = executor.Answer{State: executor.Unknown}
	attemptNever = executor.Answer{State: executor.Never}
	attemptFails = executor.Answer{
		State: executor.Finished, Error: &provider.Error{Code: provider.ErrUnavailable, Message: "no", Retryable: true},
	}
	attemptForGood = executor.Answer{
		State: executor.Finished, Error: &provider.Error{Code: provider.ErrAuth, Message: "no"},
	}
)

// oneProcessEach returns a world whose agent names providers of one process each.
func oneProcessEach(t *testing.T, names ...string) *world {
	w := chosen(t, names...)
	w.providersOf = map[string][]subject.Instance{}
	for i, n := range names {
		w.providersOf[n] = []subject.Instance{subject.Instance(fmt.Sprintf("p%d", i+1))}
	}
	return w
}

func TestWhatIsNoFailureOfTheModelUsesUpNoAttempt(t *testing.T) {
	for name, ends := range map[string]executor.Answer{"full": attemptFull, "draining": attemptDrain} {
		t.Run(name, func(t *testing.T) {
			w := oneProcessEach(t, "openai", "gemini")
			in := w.say("x")
			for range 20 {
				w.planReplied(ends)
				w.uses("openai")
			}
			w.reload()
			w.planReplied(attemptFails)
			w.uses("gemini")
			w.final("yes")
			w.ends(in.Sequence, "recorded")
		})
	}
	t.Run("lost", func(t *testing.T) {
		w := chosen(t, "openai", "gemini")
		in := w.say("x")
		for range 10 {
			w.planReplied(attemptLost)
			w.uses("openai") // at its other process
		}
		w.reload()
		w.planReplied(attemptFails)
		w.uses("gemini")
		w.planReplied(attemptForGood)
		w.uses("openai")
		w.final("yes")
		w.ends(in.Sequence, "recorded")
	})
}

// A provider that refuses, or whose processes end, again and again, leaves the turn to the next.
func TestAProviderThatNeverServesIsPassedOverInTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		ends  executor.Answer
		times int
	}{"full": {attemptFull, 128}, "lost": {attemptLost, 15}, "never": {attemptNever, 15}} {
		t.Run(name, func(t *testing.T) {
			w := chosen(t, "openai", "gemini")
			in := w.say("x")
			for range c.times {
				w.planReplied(c.ends)
				w.uses("openai")
			}
			for _, next := range []string{"gemini", "openai", "gemini", "openai"} { // failures from now on
				w.planReplied(c.ends)
				w.uses(next)
			}
			w.planReplied(c.ends)
			w.ends(in.Sequence, "provider_failed")
		})
	}
}

// In whatever order attempts end, a plan fails only after each name of the list was asked;
// and it does fail.
func TestEveryNameIsAskedBeforeAPlanFails(t *testing.T) {
	names := []string{"openai", "gemini", "sim"}
	ends := []executor.Answer{attemptFull, attemptDrain, attemptLost, attemptNever, attemptFails, attemptForGood}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a repeatable choice
		w := chosen(t, names...)
		if seed%2 == 0 {
			w = oneProcessEach(t, names...)
		}
		in := w.say("x")
		failed := map[string]bool{}
		some := ends[r.IntN(3):] // with many refusals, with few, with none
		for n := 0; w.state.Turn != nil; n++ {
			if n > 1000 {
				t.Fatalf("seed %d: the plan does not end", seed)
			}
			use, a := w.state.Turn.Plan.Use, some[r.IntN(len(some))]
			failed[use] = true
			if r.IntN(3) == 0 {
				w.reload()
			}
			w.planReplied(a)
		}
		w.ends(in.Sequence, "provider_failed")
		for _, n := range names {
			if !failed[n] {
				t.Fatalf("seed %d: %s was never asked, only %v", seed, n, failed)
			}
		}
	}
}
