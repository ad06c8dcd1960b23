package e2e_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "skandha.dev/services/test/e2e/e2etest"
)

// cuttable is a system in which every process but the NATS server has its own way
// to the bus, which can be cut.
func cuttable(t *testing.T, o Options) (*System, map[string]*Proxy) {
	t.Helper()
	ways := map[string]*Proxy{}
	o.URL = func(r Role, straight string) string {
		ways[r.Name] = NewProxy(t, straight)
		return ways[r.Name].URL()
	}
	s := New(t, o)
	for _, p := range s.Procs()[1:] {
		p.Start()
	}
	s.AwaitCores(len(s.Cores))
	s.AwaitExecutors(len(s.Providers) + len(s.Runners))
	return s, ways
}

func done(k *CallLog) bool { return len(k.Results) > 0 }

// Rules 8 and 9: the way between core and runner is cut in the middle of a call,
// or before it, and healed.
func TestPartitionOfARunner(t *testing.T) {
	t.Parallel()
	t.Run("a call that is not idempotent runs when it is cut for long", func(t *testing.T) {
		t.Parallel()
		s, ways := cuttable(t, Options{Runners: 2})
		seq := s.Do(Ref("s"), once(Args{N: 1, Hold: "cut"}))
		way := ways[s.NameOf(awaitEffect(t, s, seq).Runner)]
		way.Cut()
		s.Release("cut")
		if k := awaitCall(t, s, seq, "has a result", done); k.Results[0] != "outcome_unknown" || len(k.Requested) != 1 {
			t.Errorf("nobody can know what became of it, and it ended as %v after %d attempts", k.Results, len(k.Requested))
		}
		way.Heal() // its result arrives now
		s.AwaitExecutors(3)
		s.Ended(s.Do(Ref("s"), once(Args{N: 2})))
		s.Verify()
	})
	t.Run("a call that is not idempotent runs when it is cut for a moment", func(t *testing.T) {
		t.Parallel()
		s, ways := cuttable(t, Options{Runners: 2})
		seq := s.Do(Ref("s"), once(Args{N: 1, Hold: "cut"}))
		way := ways[s.NameOf(awaitEffect(t, s, seq).Runner)]
		way.Cut()
		s.Release("cut")
		time.Sleep(3 * time.Second) // the cut: shorter than anybody's patience
		way.Heal()
		if k := awaitCall(t, s, seq, "has a result", done); k.Results[0] != "success" {
			t.Errorf("its runner lives and knows the result, and it ended as %v", k.Results)
		}
		s.Verify()
	})
	t.Run("an idempotent call runs when it is cut for long", func(t *testing.T) {
		t.Parallel()
		s, ways := cuttable(t, Options{Runners: 2})
		seq := s.Do(Ref("s"), Script{Rounds: []Round{{{ID: "1", Tool: ToolAgain, Args: Args{N: 1, Hold: "cut"}}}}})
		first := awaitEffect(t, s, seq).Runner
		ways[s.NameOf(first)].Cut()
		s.Release("cut")
		k := awaitCall(t, s, seq, "has a result", done)
		if k.Results[0] != "success" ||
			!slices.ContainsFunc(k.Requested, func(a Assigned) bool { return a.Runner != first }) {
			t.Errorf("it was to run elsewhere; attempts %v, ended as %v", k.Requested, k.Results)
		}
		s.Ended(seq)
		ways[s.NameOf(first)].Heal()
		s.AwaitExecutors(3)
		s.Ended(s.Say(Ref("s"), "after"))
		s.Verify()
	})
	t.Run("it is cut before the call is given out, for longer than the call may start", func(t *testing.T) {
		t.Parallel()
		s, ways := cuttable(t, Options{})
		unnoticed := s.Vouch(s.Runners[0])
		ways["runner0"].Cut()
		seq := s.Do(Ref("s"), once(Args{N: 1}))
		awaitCall(t, s, seq, "is given out", then(given, unnoticed))
		if k := awaitCall(t, s, seq, "has a result", done); k.Results[0] == "success" {
			t.Errorf("it cannot have run, and ended as %v", k.Results)
		}
		ways["runner0"].Heal() // what was sent to it arrives now
		s.AwaitExecutors(2)
		s.Ended(s.Do(Ref("s"), once(Args{N: 2})))
		s.Verify()
		for _, e := range effectsOf(t, s, seq) {
			t.Errorf("it began after it was said to have ended: %+v", e)
		}
	})
	t.Run("it is cut before the call is given out, and healed while it may still start", func(t *testing.T) {
		t.Parallel()
		s, ways := cuttable(t, Options{})
		unnoticed := s.Vouch(s.Runners[0])
		ways["runner0"].Cut()
		seq := s.Do(Ref("s"), once(Args{N: 1}))
		awaitCall(t, s, seq, "is given out", then(given, unnoticed))
		time.Sleep(2 * time.Second) // the cut
		ways["runner0"].Heal()
		if k := awaitCall(t, s, seq, "has a result", done); k.Results[0] != "success" {
			t.Errorf("its runner is there in time, and it ended as %v", k.Results)
		}
		s.Verify()
	})
}

func effectsOf(t *testing.T, s *System, seq uint64) []Effect {
	t.Helper()
	all, err := ReadEffects(s.Effects)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(e Effect) bool { return TurnOf(e.Call) != seq })
}

// Rules 3, 6 and 7: the way of the driving core is cut; another one takes over.
func TestPartitionOfACore(t *testing.T) {
	t.Parallel()
	for what, length := range map[string]time.Duration{"for a moment": 2 * time.Second, "for long": 14 * time.Second} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, ways := cuttable(t, Options{Cores: 2, Runners: 2})
			const sessions = 6
			var seqs []uint64
			for i := range sessions { // some are driven by the one, some by the other
				seqs = append(seqs, s.Do(Ref(fmt.Sprintf("s%d", i)), Script{Rounds: []Round{
					{{ID: "1", Tool: ToolOnce, Args: Args{N: i, MS: 1000 + 500*i}}, {ID: "2", Tool: ToolAgain, Args: Args{MS: 800}}},
					{{ID: "3", Tool: ToolOnce, Args: Args{N: i}}},
				}}))
			}
			for _, seq := range seqs {
				awaitEffect(t, s, seq)
			}
			ways["core0"].Cut()
			for i := range sessions {
				seqs = append(seqs, s.Do(Ref(fmt.Sprintf("s%d", i)), once(Args{N: 10 + i})))
			}
			time.Sleep(length) // the cut
			ways["core0"].Heal()
			for _, seq := range seqs {
				if end := s.Ended(seq); end.Failed != "" {
					t.Errorf("the input at %d ended as %s: %s", seq, end.Failed, end.Reason)
				}
			}
			s.AwaitCores(2)
			log := s.Verify()
			for _, seq := range seqs {
				for _, k := range log.CallsOf(seq) {
					if k.Results[0] != "success" {
						t.Errorf("no runner was away, and a call of %d ended as %v", seq, k.Results)
					}
				}
			}
		})
	}
}

// Rule 11: a provider is cut off while it thinks; another one is asked.
func TestPartitionOfAProvider(t *testing.T) {
	t.Parallel()
	s, ways := cuttable(t, Options{Providers: 2})
	seq := s.Do(Ref("s"), Script{ThinkMS: 1500})
	var plan Assigned
	s.Tail.Await(t, "the model is asked", func(l *Log) bool {
		p := l.Plans[fmt.Sprintf("t%d-p1", seq)]
		if len(p) > 0 {
			plan = p[0]
		}
		return len(p) > 0
	})
	ways[s.NameOf(plan.Runner)].Cut()
	if end := s.Ended(seq); end.Failed != "" {
		t.Errorf("there was another provider, and it ended as %+v", end)
	}
	ways[s.NameOf(plan.Runner)].Heal()
	s.AwaitExecutors(3)
	s.Ended(s.Say(Ref("s"), "after"))
	s.Verify()
}

// Promise 7: the bus itself stalls, with every connection open, for longer
// than deliveries and requests last.
func TestStalledBus(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Cores: 2, Providers: 2, Runners: 2})
	s.AwaitCores(2)
	s.AwaitExecutors(4)
	var seqs []uint64
	for i := range 8 {
		seqs = append(seqs, s.Do(Ref(fmt.Sprintf("s%d", i)), once(Args{N: i, MS: 500 * i})))
	}
	awaitEffect(t, s, seqs[7])
	s.NATS.Stall()
	time.Sleep(12 * time.Second) // the stall
	s.NATS.Resume()
	for i := range 8 {
		seqs = append(seqs, s.Do(Ref(fmt.Sprintf("s%d", i)), once(Args{N: i})))
	}
	for _, seq := range seqs {
		if end := s.Ended(seq); end.Failed != "" {
			t.Errorf("the input at %d ended as %s: %s", seq, end.Failed, end.Reason)
		}
	}
	s.AwaitCores(2)
	s.Verify()
}
