package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	. "skandha.dev/services/test/e2e/e2etest"
)

// Each test here aims at one rule of the turn protocol, where it is thinnest.

// once is a script of one call of a tool that is not idempotent.
func once(a Args) Script { return Script{Rounds: []Round{{{ID: "1", Tool: ToolOnce, Args: a}}}} }

// awaitCall waits until the first call of the input's turn is as the condition says.
func awaitCall(t *testing.T, s *System, seq uint64, what string, is func(*CallLog) bool) CallLog {
	t.Helper()
	var out CallLog
	s.Tail.Await(t, fmt.Sprintf("the first call of %d %s", seq, what), func(l *Log) bool {
		calls := l.CallsOf(seq)
		if len(calls) == 0 || !is(calls[0]) {
			return false
		}
		out = *calls[0]
		return true
	})
	return out
}

func given(k *CallLog) bool { return len(k.Requested) > 0 }

// then calls f in the moment in which the condition comes true.
func then(is func(*CallLog) bool, f func()) func(*CallLog) bool {
	return func(k *CallLog) bool {
		if !is(k) {
			return false
		}
		f()
		return true
	}
}

// awaitEffect waits until a call of the input's turn has begun to have its effect.
func awaitEffect(t *testing.T, s *System, seq uint64) Effect {
	t.Helper()
	var out Effect
	Eventually(t, fmt.Sprintf("an effect of the turn of %d", seq), func() bool {
		all, err := ReadEffects(s.Effects)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if TurnOf(e.Call) == seq {
				out = e
				return true
			}
		}
		return false
	})
	return out
}

// Promise 7: the only provider dies and comes back; inputs that come meanwhile
// wait for it.
func TestTheOnlyProviderDies(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	ref := Ref("s")
	s.Ended(s.Say(ref, "warm"))
	unnoticed := s.Vouch(s.Providers[0])
	s.Providers[0].Kill()
	seqs := []uint64{s.Say(ref, "one"), s.Say(ref, "two"), s.Say(Ref("other"), "three")}
	s.Tail.Await(t, "a model call is given to the dead provider", func(l *Log) bool {
		if len(l.Plans[fmt.Sprintf("t%d-p1", seqs[0])]) == 0 {
			return false
		}
		unnoticed()
		return true
	})
	s.Providers[0].Start()
	for _, seq := range seqs {
		if end := s.Ended(seq); end.Failed != "" {
			t.Errorf("the input at %d ended as %s: %s", seq, end.Failed, end.Reason)
		}
	}
	s.Verify()
}

// Promise 7 for the only runner: a call that no runner has begun waits for one.
func TestTheOnlyRunnerDies(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	ref := Ref("s")
	s.AwaitExecutors(2)
	script := once(Args{N: 1})
	script.ThinkMS = 400
	seq := s.Do(ref, script)
	s.Tail.Await(t, "the model is asked", func(l *Log) bool { return len(l.Plans[fmt.Sprintf("t%d-p1", seq)]) > 0 })
	unnoticed := s.Vouch(s.Runners[0])
	s.Runners[0].Kill()
	awaitCall(t, s, seq, "is given to the dead runner", then(given, unnoticed))
	s.Runners[0].Start()
	end := s.Ended(seq)
	log := s.Verify()
	if got := log.CallsOf(seq)[0].Results; end.Failed != "" || got[0] != "success" {
		t.Errorf("the turn ended as %+v with the call %v; want success", end, got)
	}
}

// Rule 7: who takes over a turn by an approval did not dispatch its other calls,
// and must not take "no responders" for "it never ran".
func TestAnApprovalElsewhereBesideACallWhoseRunnerDies(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Cores: 2, Runners: 2, Config: restartConfig}) // which lets a person take the time
	s.AwaitCores(2)
	s.AwaitExecutors(3)
	const sessions = 6
	seqs := make([]uint64, sessions)
	for i := range seqs {
		seqs[i] = s.Do(Ref(fmt.Sprintf("s%d", i)), Script{Rounds: []Round{{
			{ID: "slow", Tool: ToolOnce, Args: Args{N: 1, MS: 60_000}}, {ID: "risky", Tool: ToolRisky},
		}}})
	}
	at := map[string]int{}
	for _, seq := range seqs {
		at[awaitEffect(t, s, seq).Runner]++
		s.Tail.Await(t, "a person is asked", func(l *Log) bool { c := l.CallsOf(seq); return len(c) == 2 && c[1].Asked > 0 })
	}
	t.Logf("the slow calls run at %v", at)
	for runner := range at {
		s.Runner(runner).Kill()
	}
	// The server hands out causes in turn: one in between, and each approval comes
	// to the core that does not drive.
	s.Ended(s.Say(Ref("between"), "an input"))
	for i, seq := range seqs {
		var k CallLog
		s.Tail.See(func(l *Log) { k = *l.CallsOf(seq)[1] })
		s.Cause(Ref(fmt.Sprintf("s%d", i)), subject.Confirmation, "person", "",
			event.Confirmation{ConfirmationID: fmt.Sprintf("t%d-p1-c1", seq), Hash: k.Hash, Approved: true})
	}
	for _, p := range s.Runners {
		if !p.Running() {
			p.Start()
		}
	}
	for _, seq := range seqs {
		s.Ended(seq)
	}
	log := s.Verify()
	for _, seq := range seqs {
		if got := log.CallsOf(seq)[0].Results[0]; got != "outcome_unknown" {
			t.Errorf("the call of %d ended as %s, and nobody can know that", seq, got)
		}
	}
}

// crash takes the next delivery of a cause as a core does that dies at once.
func crash(t *testing.T, s *System, seq uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	c, err := s.Bus.JetStream().Consumer(ctx, bus.StreamSessions, "core")
	if err != nil {
		t.Fatal(err)
	}
	for {
		batch, err := c.Fetch(1, jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			if meta, err := m.Metadata(); err != nil {
				t.Fatal(err)
			} else if meta.Sequence.Stream == seq {
				if err := m.Nak(); err != nil {
					t.Fatal(err)
				}
				return
			}
			if err := m.Nak(); err != nil {
				t.Fatal(err)
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("cause %d is not delivered", seq)
		}
	}
}

// Rules 5 and 13: an input that is delivered for the third time is preceded by a
// cause without effect, which was acknowledged long ago and comes never again.
func TestAThirdDeliveryBehindACauseWithoutEffect(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	ref := Ref("s")
	s.Ended(s.Say(ref, "warm"))
	idle := s.Cause(ref, subject.Cancel, "test", "", event.Cancel{InputID: "nobody"})
	odd, err := s.Raw("agent.main.s.sense.input.w%r", nil, []byte(`{"text":"on a subject that belongs to nobody"}`))
	if err != nil {
		t.Fatal(err)
	}
	awaitAcked(t, s.Bus, max(idle, odd))
	s.Cores[0].Kill()
	seq := s.Say(ref, "my receiver dies")
	crash(t, s, seq)
	crash(t, s, seq)
	s.Cores[0].Start()
	t.Logf("it ended as %+v", s.Ended(seq))
	if end := s.Ended(s.Say(ref, "and after it")); end.Failed != "" {
		t.Errorf("the input after it ended as %+v", end)
	}
	s.Verify()
}

// awaitAcked waits until the cores have acknowledged every cause up to seq.
func awaitAcked(t *testing.T, b *journal.Journal, seq uint64) {
	t.Helper()
	Eventually(t, fmt.Sprintf("the causes up to %d are acknowledged", seq), func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		c, err := b.JetStream().Consumer(ctx, bus.StreamSessions, "core")
		return err == nil && c.CachedInfo().AckFloor.Stream >= seq
	})
}

// Rules 2 and 7: a commit is stored and its acknowledgement does not come, while
// the connection is open. Its core continues as a stranger.
func TestACommitWithoutAcknowledgement(t *testing.T) {
	t.Parallel()
	for n, what := range []string{
		"the first, which asks the model", "the one that gives out the call", "the one with the result", "the last",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var way *Proxy
			s := New(t, Options{URL: func(r Role, straight string) string {
				if r.Kind != Core {
					return ""
				}
				way = NewProxy(t, straight)
				return way.URL()
			}})
			for _, p := range s.Procs()[1:] {
				p.Start()
			}
			ref := Ref("s")
			s.Ended(s.Say(ref, "warm"))
			s.AwaitExecutors(2)
			script := once(Args{N: 1, MS: 100})
			way.CutRepliesAt("HPUB "+ref.Commit()+" ", n+1)
			seq := s.Do(ref, script)
			Eventually(t, "a commit is on its way", way.IsCut)
			s.Tail.Await(t, "it is stored", func(l *Log) bool { return l.Last["main.s"].Cursor >= seq })
			// The core waits four seconds for the acknowledgement, and notices after
			// four to six that the server is silent: in between it reads back.
			time.Sleep(4500 * time.Millisecond)
			way.Heal()
			t.Logf("it ended as %+v", s.Ended(seq))
			s.Verify()
		})
	}
}
