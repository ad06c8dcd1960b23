package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	. "skandha.dev/services/test/e2e/e2etest"
)

// Rule 3: a core stalls in the middle of a turn, with all its connections
// open. The other one finishes its work; when it goes on, it harms nothing.
func TestStalledCore(t *testing.T) {
	t.Parallel()
	stall := 12 * time.Second
	if runMode() == long {
		stall = 30 * time.Second
	}
	s := New(t, Options{Cores: 2, Runners: 2, Config: chaosConfig})
	s.Cores[0].Start()
	for _, p := range append(s.Providers, s.Runners...) {
		p.Start()
	}
	s.Person()
	s.AwaitCores(1)
	s.AwaitExecutors(3)
	var seqs []uint64
	for i, script := range []Script{
		once(Args{N: 1, MS: 2000, AtEnd: true}),
		once(Args{N: 2, MS: 8000}),
		{ThinkMS: 3000},
		{
			Rounds: []Round{{{ID: "1", Tool: ToolAgain, Args: Args{MS: 4000}}, {ID: "2", Tool: ToolOnce, Args: Args{MS: 1000}}}},
		},
	} {
		seqs = append(seqs, s.Do(Ref(fmt.Sprintf("s%d", i)), script))
	}
	for _, i := range []int{0, 1, 3} {
		awaitEffect2(t, s, seqs[i], i)
	}
	s.Cores[1].Start() // what is open is the first core's
	s.AwaitCores(2)
	s.Cores[0].Stall()
	began := time.Now()
	for i := range 12 { // half of them are delivered to the core that stalls
		ref := Ref(fmt.Sprintf("s%d", i))
		seqs = append(seqs, s.Do(ref, once(Args{N: i})))
		if i%4 == 1 {
			s.Cause(ref, subject.Command, "test", "", event.Command{Name: "metrics"})
		}
	}
	for _, seq := range seqs {
		if end := s.Ended(seq); end.Failed != "" {
			t.Errorf("while a core stalls, the input at %d ended as %s: %s", seq, end.Failed, end.Reason)
		}
	}
	t.Logf("the other core finished everything within %v", time.Since(began).Round(100*time.Millisecond))
	time.Sleep(time.Until(began.Add(stall))) // the stall itself
	s.Cores[0].Resume()
	s.AwaitCores(2)
	for i := range 4 { // it takes part again
		s.Ended(s.Say(Ref(fmt.Sprintf("s%d", i)), "after"))
	}
	s.Verify()
}

// awaitEffect2 waits for a call that runs: its effect, or that it was given out
// if that comes at the end.
func awaitEffect2(t *testing.T, s *System, seq uint64, i int) {
	t.Helper()
	if i == 0 {
		awaitCall(t, s, seq, "is given out", given)
		return
	}
	awaitEffect(t, s, seq)
}

// Rules 7 and 8: a runner stalls before it has read what it was given. When it
// goes on, the time to start is over, and it must not start any more.
func TestStalledRunner(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	s.AwaitExecutors(2)
	unnoticed := s.Vouch(s.Runners[0])
	s.Runners[0].Stall()
	seq := s.Do(Ref("s"), once(Args{N: 1}))
	awaitCall(t, s, seq, "is given out", then(given, unnoticed))
	k := awaitCall(t, s, seq, "has a result", done)
	if k.Results[0] != "outcome_unknown" {
		t.Errorf("nobody could know whether it ran, and it ended as %v", k.Results)
	}
	s.Runners[0].Resume() // it reads what it was given now
	if end := s.Ended(s.Do(Ref("s"), once(Args{N: 2}))); end.Failed != "" {
		t.Errorf("a turn with the runner back ended as %+v", end)
	}
	s.Verify()
	for _, e := range effectsOf(t, s, seq) {
		t.Errorf("it began after its time, when its outcome was said to be unknown: %+v", e)
	}
}
