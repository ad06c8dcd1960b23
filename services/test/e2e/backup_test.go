package e2e_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/backup"
	"skandha.dev/services/internal/store/open"
	. "skandha.dev/services/test/e2e/e2etest"
)

// A backup is taken while a turn runs, and restored on another server, for cores whose view is of the first one
// and newer. What was done stays done, and what was open is completed.
func TestARestoredSystemGoesOn(t *testing.T) {
	t.Parallel()
	config := `
agents:
  main: {confirm: 30m}
  later: {confirm: 6s}
policy:
  - {tool: "e2e:risky", effect: confirm, reason: it cannot be taken back}
`
	s := Start(t, Options{Config: config, Drain: 300 * time.Millisecond})
	s.AwaitExecutors(2)
	for i := range 3 {
		s.Ended(s.Do(Ref(fmt.Sprintf("s%d", i)), once(Args{N: i})))
	}
	main, later := park(t, s, "main"), park(t, s, "later")
	running := s.Do(Ref("running"), Script{Rounds: []Round{
		{{ID: "1", Tool: ToolOnce, Args: Args{N: 1}}}, {{ID: "2", Tool: ToolAgain, Args: Args{Hold: "turn"}}},
	}})
	s.AwaitHeld("turn")
	if err := s.Bus.PutArtifact(t.Context(), "main/s0/uploads/file", []byte("kept")); err != nil {
		t.Fatal(err)
	}

	var archive bytes.Buffer
	if _, err := backup.Take(t.Context(), s.Bus.Bus, &archive, backup.TakeConfig{}); err != nil {
		t.Fatal(err)
	}
	want := messages(t, s)
	s.Ended(s.Say(Ref("s0"), "after the backup"))
	s.Ended(s.Say(Ref("lost"), "after the backup"))
	eventuallyListed(t, s, "lost", true)
	for _, p := range s.Procs()[1:] {
		p.Stop()
	}

	again := New(t, Options{Config: config})
	a, err := backup.Open(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Restore(t.Context(), again.Bus.Bus, backup.RestoreConfig{}); err != nil {
		t.Fatal(err)
	}
	for i, m := range messages(t, again) {
		if m != want[i] {
			t.Errorf("message %d of the log is %s, want %s", i, m, want[i])
		}
	}
	// A timer that was stored between the two streams is not in the backup.
	if err := again.Bus.CancelTimer(t.Context(), later.ref, fmt.Sprintf("t%d-p1-c0", later.seq)); err != nil {
		t.Fatal(err)
	}
	again.Effects = s.Effects
	again.Cores[0].Role.Store, again.Runners[0].Role.Effects = s.Cores[0].Role.Store, s.Effects
	again.Cores[0].Expect("ALARM") // its audit log has fewer entries than its view knows
	for _, p := range again.Procs()[1:] {
		p.Start()
	}
	again.AwaitExecutors(2)
	again.Release("turn")
	if end := again.Ended(running); end.Failed != "" {
		t.Errorf("the turn that ran during the backup ended as %+v", end)
	}
	answer(again, main)
	if k := awaitCall(t, again, main.seq, "has a result", done); k.Results[0] != "success" {
		t.Errorf("it was approved after the restore, and ended as %v", k.Results)
	}
	if k := awaitCall(t, again, later.seq, "has a result", done); k.Results[0] != "confirmation_expired" {
		t.Errorf("its time came after the restore, and it ended as %v", k.Results)
	}
	if end := again.Ended(again.Do(Ref("s0"), once(Args{N: 10}))); end.Failed != "" {
		t.Errorf("a session that goes on from the backup ended as %+v", end)
	}
	if data, err := again.Bus.GetArtifact(t.Context(), "main/s0/uploads/file"); err != nil || string(data) != "kept" {
		t.Errorf("the artifact is %q, %v", data, err)
	}
	eventuallyListed(t, again, "lost", false)
	again.Verify()
}

// messages returns all of the log.
func messages(t *testing.T, s *System) (all []string) {
	t.Helper()
	last, err := s.Bus.LastSequence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= last; seq++ {
		m, err := s.Bus.Message(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, describe(m))
	}
	return all
}

func describe(m bus.StoredMsg) string {
	return fmt.Sprintf("%d %s %s %v %s", m.Seq, m.Time, m.Subject, m.Header, m.Data)
}

// eventuallyListed waits until the view lists a session, or does not.
func eventuallyListed(t *testing.T, s *System, session string, want bool) {
	t.Helper()
	Eventually(t, fmt.Sprintf("that the view lists %s is %t", session, want), func() bool {
		st, err := open.Store(t.Context(), s.Cores[0].Role.Store, slog.New(slog.DiscardHandler))
		if err != nil {
			return false
		}
		defer func() { _ = st.Close() }()
		page, _, err := st.ListSessions(t.Context(), "", 100, "")
		is := false
		for _, i := range page {
			is = is || subject.Session(i.Session) == subject.Session(session)
		}
		return err == nil && is == want
	})
}
