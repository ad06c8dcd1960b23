package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	. "skandha.dev/services/test/e2e/e2etest"
)

// Rule 10: a turn is ended while a call runs. What is said of the call is true,
// and what comes after changes nothing.
func TestCancelMidCall(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Cores: 2, Runners: 2})
	s.AwaitCores(2)
	s.AwaitExecutors(3)
	stop := func(ref subject.Ref, seq uint64) {
		s.Cause(ref, subject.Cancel, "person", "", event.Cancel{Sequence: seq, Reason: "enough"})
	}
	t.Run("it heeds", func(t *testing.T) {
		ref := Ref("heeds")
		seq := s.Do(ref, once(Args{MS: 60_000, AtEnd: true}))
		awaitCall(t, s, seq, "runs", given)
		stop(ref, seq)
		endsAs(t, s, seq, "cancelled", "outcome_unknown", "cancelled") // cancelled if it had not begun
		if n := effectsOf(t, s, seq); len(n) > 0 {
			t.Errorf("it was stopped before its effect, and had it: %v", n)
		}
	})
	t.Run("it does not heed, and its result comes late", func(t *testing.T) {
		ref := Ref("deaf")
		seq := s.Do(ref, once(Args{Hold: "deaf", AtEnd: true, Deaf: true}))
		s.AwaitHeld("deaf")
		stop(ref, seq)
		endsAs(t, s, seq, "cancelled", "outcome_unknown")
		s.Release("deaf")
		awaitEffect(t, s, seq) // it ran on
		s.Ended(s.Say(ref, "after"))
		if k := awaitCall(t, s, seq, "has its result", done); len(k.Results) != 1 || k.Results[0] != "outcome_unknown" {
			t.Errorf("the late result changed what was said: %v", k.Results)
		}
	})
	t.Run("an input that waits", func(t *testing.T) {
		ref := Ref("waits")
		running := s.Do(ref, once(Args{Hold: "waits"}))
		awaitEffect(t, s, running)
		waiting := s.Do(ref, once(Args{}))
		third := s.Say(ref, "third")
		stop(ref, waiting)
		if end := s.Ended(waiting); end.Failed != "cancelled" {
			t.Errorf("the waiting input ended as %+v", end)
		}
		s.Release("waits")
		for _, seq := range []uint64{running, third} {
			if end := s.Ended(seq); end.Failed != "" {
				t.Errorf("an input that nobody cancelled ended as %+v", end)
			}
		}
		s.Tail.See(func(l *Log) {
			if len(l.CallsOf(waiting)) > 0 {
				t.Error("the input that waited was begun")
			}
		})
	})
	t.Run("by the id of another writer, and by a wrong sequence", func(t *testing.T) {
		ref := Ref("others")
		seq := s.Input(ref, "alice", event.Input{ID: "mine", Text: once(Args{Hold: "mine"}).Text()})
		awaitEffect(t, s, seq)
		s.Cause(ref, subject.Cancel, "mallory", "", event.Cancel{InputID: "mine"})
		stop(ref, seq+1)
		after := s.Say(ref, "after")
		s.Tail.Await(t, "what came before the next input is decided",
			func(l *Log) bool { return l.Last["main.others"].Cursor >= after })
		s.Release("mine")
		if end := s.Ended(seq); end.Failed != "" {
			t.Errorf("somebody else's cancel hit it: %+v", end)
		}
	})
	t.Run("by interrupt", func(t *testing.T) {
		ref := Ref("interrupt")
		seq := s.Do(ref, once(Args{MS: 60_000}))
		awaitEffect(t, s, seq)
		next := s.Input(ref, "person", event.Input{Text: "now", Mode: event.ModeInterrupt})
		endsAs(t, s, seq, "interrupted", "outcome_unknown")
		end := s.Ended(next)
		if end.Failed != "" {
			t.Errorf("the interrupting input ended as %+v", end)
		}
	})
	for _, c := range []struct{ command, code string }{{"cancel", "cancelled"}, {"reset", "reset"}} {
		t.Run("by /"+c.command, func(t *testing.T) {
			ref := Ref(c.command)
			seq := s.Do(ref, once(Args{MS: 60_000}))
			awaitEffect(t, s, seq)
			if end := s.Ended(s.Cause(ref, subject.Command, "person", "", event.Command{Name: c.command})); end.Failed != "" {
				t.Errorf("the command ended as %+v", end)
			}
			endsAs(t, s, seq, c.code, "outcome_unknown")
		})
	}
	t.Run("its runner dies", func(t *testing.T) {
		ref := Ref("dies")
		seq := s.Do(ref, once(Args{MS: 60_000}))
		runner := s.Runner(awaitEffect(t, s, seq).Runner)
		runner.Kill()
		stop(ref, seq)
		// Who drives and who was delivered the cancel give up on the runner at the
		// same time; if the turn ends by itself then, there is nothing to cancel.
		if end := s.Ended(seq); end.Failed != "cancelled" && end.Failed != "" {
			t.Errorf("it ended as %+v", end)
		}
		if k := awaitCall(t, s, seq, "has a result", done); k.Results[0] != "outcome_unknown" {
			t.Errorf("its call ended as %v", k.Results)
		}
		runner.Start()
		s.AwaitExecutors(3)
	})
	s.Verify()
}

// endsAs checks how an input and its one call have ended.
func endsAs(t *testing.T, s *System, seq uint64, code string, results ...string) {
	t.Helper()
	if end := s.Ended(seq); end.Failed != code {
		t.Errorf("the input ended as %+v, want %s", end, code)
	}
	if k := awaitCall(t, s, seq, "has a result", done); !slices.Contains(results, k.Results[0]) {
		t.Errorf("its call ended as %v, want one of %v", k.Results, results)
	}
}

// A call that waits for a slot is cancelled: it certainly did not run.
func TestCancelBeforeItBegins(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Slots: 1})
	s.AwaitExecutors(2)
	busy := s.Do(Ref("busy"), once(Args{Hold: "busy"}))
	awaitEffect(t, s, busy)
	seq := s.Do(Ref("s"), once(Args{}))
	s.Tail.Await(t, "the call is requested", func(l *Log) bool { return len(l.CallsOf(seq)) == 1 })
	s.Cause(Ref("s"), subject.Cancel, "person", "", event.Cancel{Sequence: seq})
	endsAs(t, s, seq, "cancelled", "cancelled")
	s.Release("busy")
	s.Ended(busy)
	s.Verify()
}

// misbehaves bounds everything tightly, so that a model without end ends.
const misbehaves = `
agents:
  main:
    limits: {rounds: 4, model_call: 2s, calls: 3, queue: 4}
  hasty:
    limits: {wall: 4s, model_call: 30s}
  patient:
    limits: {rounds: 4, model_call: 60s}
`

// A model that does not do what it should ends its turn, with the reason, within
// the limits, and nobody else's.
func TestProviderMisbehaves(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Config: misbehaves, Providers: 2})
	s.AwaitExecutors(3)
	for _, c := range []struct {
		name   string
		script Script
		codes  []string
	}{
		{"hangs", Script{Then: Hang}, []string{"provider_failed"}},
		{"answers with nothing", Script{Then: Garbage}, []string{"provider_failed"}},
		{"never ends", Script{Then: Loop}, []string{"limit_rounds"}},
		{"wants a tool that does not exist", Script{Then: Unknown}, []string{"limit_rounds", "circuit_open"}},
		{"fails", Script{Then: Fault}, []string{"provider_failed"}},
		{"panics", Script{Then: Panic}, []string{"provider_failed"}},
		{"is too slow", Script{ThinkMS: 30_000}, []string{"provider_failed"}},
		{"wants too much at once", Script{Rounds: []Round{{
			{ID: "1", Tool: ToolOnce},
			{ID: "2", Tool: ToolOnce},
			{ID: "3", Tool: ToolOnce},
			{ID: "4", Tool: ToolOnce},
			{ID: "5", Tool: ToolOnce},
		}}}, []string{""}},
		{
			"gives all calls one id",
			Script{Rounds: []Round{{{ID: "x", Tool: ToolOnce}, {ID: "x", Tool: ToolOnce}}}},
			[]string{""},
		},
		{"makes calls depend on each other in a circle", Script{Rounds: []Round{{
			{ID: "a", Tool: ToolOnce, DependsOn: []string{"b"}}, {ID: "b", Tool: ToolOnce, DependsOn: []string{"a"}},
		}}}, []string{""}},
		{
			"sends arguments that do not fit",
			Script{Rounds: []Round{{{ID: "a", Tool: ToolOnce, Args: map[string]any{"n": "many", "x": 1}}}}},
			[]string{""},
		},
		{
			"sends arguments that are no object",
			Script{Rounds: []Round{{{ID: "a", Tool: ToolOnce, Args: "rm -rf"}}}},
			[]string{""},
		},
		{
			"sends a plan that is none",
			Script{Rounds: []Round{{{ID: "a", Tool: "plan:execute", Args: map[string]any{"steps": "all"}}}}},
			[]string{""},
		},
		{
			"refers to what is not there",
			Script{Rounds: []Round{{{ID: "a", Tool: ToolOnce, Args: map[string]any{"n": "${z.n}"}}}}},
			[]string{""},
		},
		{
			"asks a tool that panics",
			Script{Rounds: []Round{{{ID: "a", Tool: ToolOnce, Args: Args{PanicQ: true}}}}},
			[]string{""},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			misbehave(t, s, Ref(strings.ReplaceAll(c.name, " ", "-")), c.script, c.codes...)
		})
	}
	oneAtATime := make(chan struct{}, 1) // together, they keep a small machine busy for longer than a provider may be silent
	for _, c := range []struct {
		name    string
		misdeed Misdeed
		code    string
	}{
		{"asks for twenty thousand calls", Flood, "provider_failed"},
		{"answers with 12 MiB", Prolix, ""},
		{"asks for a tool with a name of 5 MiB", Baroque, "provider_failed"},
		{"hands back 12 MiB of state", Stateful, "provider_failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			oneAtATime <- struct{}{}
			defer func() { <-oneAtATime }()
			ref := subject.Ref{Agent: "patient", Session: subject.Session(c.misdeed)}
			misbehave(t, s, ref, Script{Then: c.misdeed}, c.code)
		})
	}
	t.Run("a turn has its wall time", func(t *testing.T) {
		t.Parallel()
		ref := subject.Ref{Agent: "hasty", Session: "s"}
		seq := s.Do(ref, Script{ThinkMS: 25_000})
		if end := s.EndedIn(t, seq); end.Failed != "deadline" {
			t.Errorf("it ended as %+v", end)
		}
		call := s.Do(ref, once(Args{MS: 25_000}))
		if end := s.EndedIn(t, call); end.Failed != "deadline" && end.Failed != "" {
			t.Errorf("it ended as %+v", end)
		}
	})
	t.Run("a queue is bounded", func(t *testing.T) {
		t.Parallel()
		ref := Ref("queue")
		first := s.Do(ref, once(Args{MS: 60_000}))
		awaitEffect(t, s, first)
		var seqs []uint64
		for range 7 {
			seqs = append(seqs, s.Say(ref, "next"))
		}
		s.Tail.Await(t, "the last of them has found its place, or none", func(l *Log) bool {
			return l.Last["main.queue"].Cursor >= seqs[6]
		})
		s.Cause(ref, subject.Cancel, "test", "", event.Cancel{Sequence: first})
		full := 0
		for _, seq := range seqs {
			switch end := s.EndedIn(t, seq); end.Failed {
			case "queue_full":
				full++
			case "":
			default:
				t.Errorf("it ended as %+v", end)
			}
		}
		if full != 3 {
			t.Errorf("%d of 7 inputs found the queue of 4 full, want 3", full)
		}
	})
	t.Cleanup(func() {
		if !t.Failed() {
			healthy(t, s)
			s.Verify()
		}
	})
}

// misbehave has the model do it: the turn ends with one of the codes, and the
// session goes on.
func misbehave(t *testing.T, s *System, ref subject.Ref, script Script, codes ...string) {
	t.Helper()
	seq := s.Do(ref, script)
	end := s.EndedIn(t, seq)
	if !slices.Contains(codes, end.Failed) {
		t.Errorf("it ended as %q (%s), want one of %q", end.Failed, end.Reason, codes)
	}
	s.Tail.See(func(l *Log) {
		results := map[string]int{}
		for _, k := range l.CallsOf(seq) {
			results[strings.Join(k.Results, ", ")]++
		}
		t.Logf("it ended as %q %.200s, its calls as %v", end.Failed, end.Reason, results)
	})
	if end.Failed != "" && end.Reason == "" {
		t.Error("no reason is given")
	}
	if end := s.EndedIn(t, s.Cause(ref, subject.Command, "person", "", event.Command{Name: "reset"})); end.Failed != "" {
		t.Errorf("/reset ended as %+v", end)
	}
	if end := s.EndedIn(t, s.Say(ref, "after")); end.Failed != "" {
		t.Errorf("a turn after it ended as %+v", end)
	}
}

// All providers die in the middle of a question and never come back.
func TestNoProviderComesBack(t *testing.T) {
	t.Parallel()
	if runMode() == short {
		t.Skip("NOT TESTED in a short run: it waits for half a minute")
	}
	s := Start(t, Options{Config: misbehaves})
	s.AwaitExecutors(2)
	seq := s.Do(Ref("s"), Script{ThinkMS: 1500})
	s.Tail.Await(t, "the model is asked", func(l *Log) bool { return len(l.Plans) > 0 })
	s.Providers[0].Kill()
	second := s.Say(Ref("s"), "second")
	for _, q := range []uint64{seq, second} {
		if end := s.Ended(q); end.Failed != "no_provider" {
			t.Errorf("it ended as %+v", end)
		}
	}
	s.Providers[0].Start()
	if end := s.Ended(s.Say(Ref("s"), "third")); end.Failed != "" {
		t.Errorf("with a provider it ended as %+v", end)
	}
	s.Verify()
}
