package shell_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/store/sqlite"
	"skandha.dev/services/test/natstest"
)

// losses are the ways in which a running core loses its log.
var losses = []struct {
	name string
	lose func(t *testing.T, s *system, p *natstest.Process, dir string)
}{
	{"the server comes back with an empty directory", func(t *testing.T, _ *system, p *natstest.Process, dir string) {
		p.Kill()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		p.Restart()
	}},
	{"the stream is deleted", func(t *testing.T, s *system, _ *natstest.Process, _ string) {
		s.deleteStreams(t, bus.StreamSessions)
	}},
	{"all streams are deleted", func(t *testing.T, s *system, _ *natstest.Process, _ string) {
		s.deleteStreams(t, bus.StreamSessions, journal.StreamTimers, journal.StreamDead,
			"KV_"+journal.BucketPlugins, "OBJ_"+bus.BucketClaims, "OBJ_"+journal.BucketArtifacts)
	}},
}

func (s *system) deleteStreams(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := s.bus.JetStream().DeleteStream(natstest.Context(t), name); err != nil {
			t.Fatal(err)
		}
	}
}

// accepted stores an input as soon as inputs are accepted.
func (s *system) accepted(t *testing.T, ref subject.Ref, text string) (seq uint64) {
	t.Helper()
	natstest.Eventually(t, "an input is accepted", func() (ok bool) {
		var err error
		seq, err = s.bus.PublishCause(natstest.Context(t), ref, subject.Input, "test", text, []byte(`{"text":"`+text+`"}`))
		return err == nil
	})
	return seq
}

// lostLog waits until the core reports the loss.
func lostLog(t *testing.T, c *shell.Core, streams ...string) {
	t.Helper()
	natstest.Eventually(t, "the loss is reported", func() bool {
		for _, x := range c.Status(t.Context()).Troubles {
			if x.Kind == coreapi.TroubleLog && strings.Contains(x.Reason, "created again ("+strings.Join(streams, ", ")) {
				return true
			}
		}
		return false
	})
}

// Whatever became of the log, inputs are accepted again without a restart of core. A
// session whose latest commits are known and lost is locked, and /repair opens it.
func TestALostLogIsCreatedAgain(t *testing.T) {
	for _, l := range losses {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "nats")
			p := natstest.StartProcess(t, dir, 0)
			s := start(t, core.Config{}, func(s *system) {
				s.connect = func() *journal.Journal { return natstest.ConnectURL(t, p.URL()) }
			})
			ch := s.follow(hurt)
			s.say(hurt, event.Input{Text: "one"})
			s.await(ch, event.TypeRecorded)
			l.lose(t, s, p, dir)

			seq := s.accepted(t, hurt, "two")
			var f event.TurnFailed
			for f.Sequence != seq {
				if err := s.await(ch, event.TypeTurnFailed).DataAs(&f); err != nil {
					t.Fatal(err)
				}
			}
			if f.Code != event.FailLocked {
				t.Errorf("%+v", f)
			}
			lostLog(t, s.core, bus.StreamSessions)
			well := s.follow(sound)
			s.accepted(t, sound, "still there?")
			s.await(well, event.TypeRecorded)
			contains(t, s.command(hurt, ch, "repair"), "The session is unlocked")
			s.say(hurt, event.Input{Text: "three"})
			s.await(ch, event.TypeRecorded)
			s.folds(hurt)
			s.endsOnce(hurt)
			natstest.Eventually(t, "the fault is over", func() bool { return s.core.Health() == nil })
		})
	}
}

// A session that was quiet when the log was lost starts anew, whichever core serves it,
// and every core reports the loss.
func TestQuietSessionsStartAnewInANewLog(t *testing.T) {
	shell.SetClockSkew(t, 0)
	view, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "view.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = view.Close() })
	s := start(t, core.Config{}, func(s *system) { s.view = view })
	second := s.startCore(core.Config{})
	ch := s.follow(hurt)
	for _, text := range []string{"one", "two", "three"} { // later sequences than those of the new log
		s.say(hurt, event.Input{Text: text})
		s.await(ch, event.TypeRecorded)
	}
	s.deleteStreams(t, bus.StreamSessions)
	heard := s.listen()
	for _, text := range []string{"four", "five"} {
		s.accepted(t, hurt, text)
		s.await(ch, event.TypeRecorded)
	}
	if got := heard(); inOrder(got, []string{"three"}) || !inOrder(got, []string{"four", "five"}) {
		t.Errorf("the model was asked with %q", got)
	}
	lostLog(t, s.core, bus.StreamSessions)
	lostLog(t, second, bus.StreamSessions)
	s.folds(hurt)
	s.endsOnce(hurt)
}

// Confirmations that wait expire, although their timers were lost.
func TestLostTimersAreScheduledAgain(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{Agents: map[string]core.AgentConfig{"main": {Confirm: 3 * time.Second}}})
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleUser {
			return calls(provider.ToolCall{ID: "1", Tool: "test:risky", Args: []byte(`{}`)})
		}
		return provider.Response{TextContent: m.Text}
	}
	ref := subject.Ref{Agent: "main", Session: "late"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	natstest.Eventually(t, "the timer is scheduled", func() bool {
		i, err := s.bus.JetStream().Stream(natstest.Context(t), journal.StreamTimers)
		return err == nil && i.CachedInfo().State.Msgs > 0
	})
	s.deleteStreams(t, journal.StreamTimers)
	var rec event.Recorded
	if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
		t.Fatal(err)
	}
	if len(rec.Actions) != 1 || rec.Actions[0].Code != tool.CodeExpired {
		t.Fatalf("%+v", rec)
	}
	lostLog(t, s.core, journal.StreamTimers)
}
