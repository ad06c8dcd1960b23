package e2e_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/store/open"
	. "skandha.dev/services/test/e2e/e2etest"
)

const restartConfig = `
agents:
  main: {confirm: 30m}
  brief: {confirm: 4s}
  later: {confirm: 14s}
policy:
  - {tool: "e2e:risky", effect: confirm, reason: it cannot be taken back}
`

// Everything is stopped, or killed, and started again on the same data; then once
// more with the views wiped.
func TestRestartEverything(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(*Proc)
	}{{"cleanly", (*Proc).Stop}, {"by kill -9", (*Proc).Kill}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := Start(t, Options{Runners: 2, Config: restartConfig, Drain: 300 * time.Millisecond})
			s.AwaitExecutors(3)
			restart := func(between func()) {
				for _, p := range append(append(s.Cores, s.Runners...), append(s.Providers, s.NATS)...) {
					c.end(p)
				}
				if between != nil {
					between()
				}
				for _, p := range s.Procs() {
					p.Start()
				}
			}
			for i := range 3 {
				s.Ended(s.Do(Ref(fmt.Sprintf("s%d", i)), once(Args{N: i})))
			}
			main, brief, later := park(t, s, "main"), park(t, s, "brief"), park(t, s, "later")
			open := s.Do(Ref("open"), Script{Rounds: []Round{{{ID: "1", Tool: ToolAgain, Args: Args{MS: 2000}}}}})
			awaitCall(t, s, open, "runs", given)
			before := figures(t, s, 3)

			restart(func() { time.Sleep(time.Until(brief.Expires.Add(time.Second))) }) // its time comes while nobody is there

			if end := s.Ended(open); end.Failed != "" {
				t.Errorf("the turn that was open ended as %+v", end)
			}
			if k := awaitCall(t, s, brief.seq, "has a result", done); k.Results[0] != "confirmation_expired" {
				t.Errorf("its time came while everything was down, and it ended as %v", k.Results)
			}
			if k := awaitCall(t, s, later.seq, "has a result", done); k.Results[0] != "confirmation_expired" {
				t.Errorf("its time came after the restart, and it ended as %v", k.Results)
			}
			s.AwaitExecutors(3)
			answer(s, main)
			if k := awaitCall(t, s, main.seq, "has a result", done); k.Results[0] != "success" {
				t.Errorf("it was approved after the restart, and ended as %v", k.Results)
			}
			for i := range 3 {
				ref := Ref(fmt.Sprintf("s%d", i))
				if end := s.Ended(s.Do(ref, once(Args{N: 10 + i}))); end.Failed != "" {
					t.Errorf("a session that went on ended as %+v", end)
				}
				var info shell.SessionInfo
				Eventually(t, "a core tells of the session", func() (ok bool) {
					var err error
					info, err = s.Session(ref)
					return err == nil
				})
				if info.State.Turns != 2 {
					t.Errorf("the session has %+v turns, want 2", info.State)
				}
			}
			if after := figures(t, s, before+3); after < before+3 {
				t.Errorf("%s was used %d times before and %d after", ToolOnce, before, after)
			}
			s.Verify()

			parked := park(t, s, "main")
			restart(func() { wipe(t, s) })
			s.AwaitExecutors(3)
			answer(s, parked)
			if end := s.Ended(parked.seq); end.Failed != "" {
				t.Errorf("with the views wiped, the parked turn ended as %+v", end)
			}
			for i := range 3 {
				if end := s.Ended(s.Say(Ref(fmt.Sprintf("s%d", i)), "with the views wiped")); end.Failed != "" {
					t.Errorf("it ended as %+v", end)
				}
			}
			s.Verify()
		})
	}
}

// parked is a turn that waits for a person.
type parked struct {
	CallLog
	ref subject.Ref
	seq uint64
}

func park(t *testing.T, s *System, agent subject.Agent) parked {
	t.Helper()
	ref := subject.Ref{Agent: agent, Session: "parked"}
	seq := s.Do(ref, Script{Rounds: []Round{{{ID: "1", Tool: ToolRisky, Args: Args{N: 7}}}}})
	return parked{awaitCall(t, s, seq, "waits for a person", func(k *CallLog) bool { return k.Asked > 0 }), ref, seq}
}

func answer(s *System, p parked) {
	s.Cause(p.ref, subject.Confirmation, "person", "",
		event.Confirmation{ConfirmationID: fmt.Sprintf("t%d-p1-c0", p.seq), Hash: p.Hash, Approved: true})
}

// figures waits until the core says that the tool was used so often, at least,
// and returns how often.
func figures(t *testing.T, s *System, atLeast int64) (used int64) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s was used %d times", ToolOnce, atLeast), func() bool {
		list, err := s.Tools()
		if err != nil {
			return false
		}
		for _, info := range list {
			if info.Name == ToolOnce {
				used = info.Used
			}
		}
		return used >= atLeast
	})
	return used
}

func wipe(t *testing.T, s *System) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.Dir, "core*.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no views in %s: %v", s.Dir, err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
}

// The log is another one, or empty, and the views are still those of the old one:
// what they remember must not hide what is new.
func TestViewsOfAnotherLog(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	for i := range 20 {
		s.Ended(s.Say(Ref(fmt.Sprintf("s%d", i%3)), "in the old log"))
	}
	awaitFloor(t, s)
	for _, p := range s.Procs() {
		p.Stop()
	}
	if err := os.RemoveAll(s.NATS.Role.Dir); err != nil {
		t.Fatal(err)
	}
	again := New(t, Options{})
	for i, p := range again.Cores {
		p.Role.Store = s.Cores[i].Role.Store
		p.Expect("ALARM") // the audit log has fewer entries than the view knows
	}
	var seqs []uint64
	for i := range 5 {
		seqs = append(seqs, again.Say(Ref(fmt.Sprintf("s%d", i%3)), "in the new one"))
	}
	for _, p := range again.Procs()[1:] {
		p.Start()
	}
	for _, seq := range seqs {
		if end := again.Ended(seq); end.Failed != "" {
			t.Errorf("it ended as %+v", end)
		}
	}
	again.Verify()
}

// awaitFloor waits until the core has laid down which causes are done.
func awaitFloor(t *testing.T, s *System) {
	t.Helper()
	Eventually(t, "the core remembers which causes are done", func() bool {
		st, err := open.Store(t.Context(), s.Cores[0].Role.Store, slog.New(slog.DiscardHandler))
		if err != nil {
			return false
		}
		defer func() { _ = st.Close() }()
		floor, err := st.Mark(t.Context(), "causes_ack_floor")
		return err == nil && floor > 20
	})
}
