package session

import (
	"path/filepath"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/attempt"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/directory"
	"skandha.dev/services/core/live"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/core/outbox"
	"skandha.dev/services/core/plugins"
	"skandha.dev/services/core/trouble"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/store/sqlite"
	"skandha.dev/services/test/natstest"
)

// newSet returns a set of sessions without a core around it. It has no agents.
func newSet(t *testing.T, b *journal.Journal) *Set {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "view.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	log, dir := natstest.Logger(t), directory.New(natstest.Logger(t))
	publisher := live.New(b, log, func(subject.Ref, event.Commit, *decide.State) {})
	t.Cleanup(publisher.Start())
	s, err := NewSet(t.Context(), Config{
		Open: 1, Cache: 1, ToolUse: func() []commands.ToolUse { return nil },
	}, Deps{
		Bus: b, Log: log, Loader: &loader.Loader{Bus: b, Store: st, Log: log}, Directory: dir,
		Plugins:  plugins.New(t.Context(), plugins.Config{}, plugins.Deps{Bus: b, Log: log, Directory: dir}),
		Attempts: attempt.New(t.Context(), b, log), Live: publisher, Troubles: trouble.New(),
		Outbox: outbox.New(outbox.Config{Bus: b, Log: log}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// With one session open at most, the inputs of the others wait, and all are decided in the
// end.
func TestSessionsTakeTurnsToBeOpen(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	s := newSet(t, b)
	causes, err := b.ConsumeCauses(t.Context(), journal.ConsumeConfig{
		AckWait: AckWait, Floor: func() uint64 { return 0 }, Room: s.Room,
	}, s.Deliver)
	if err != nil {
		t.Fatal(err)
	}
	defer causes.Stop()
	refs := []subject.Ref{
		{Agent: "nobody", Session: "one"}, {Agent: "nobody", Session: "two"}, {Agent: "nobody", Session: "three"},
	}
	for _, ref := range refs {
		if _, err := b.PublishCause(t.Context(), ref, subject.Input, "w", "", []byte(`{"text":"hello"}`)); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Eventually(t, "every input ends", func() bool { return s.Stats().Commits.Load() == int64(len(refs)) })
	s.Drain(time.Second)
	if s.Len() != 0 || s.Waiting() != 0 || s.Stats().Deliveries.Load() != int64(len(refs)) {
		t.Errorf("%d sessions are open, %d wait, after %d deliveries", s.Len(), s.Waiting(), s.Stats().Deliveries.Load())
	}
	for _, ref := range refs {
		st, err := s.Loader.Load(t.Context(), ref, nil)
		if err != nil || st.Rev == 0 || st.Turn != nil {
			t.Errorf("%s: %+v, %v", ref, st, err)
		}
	}
}
