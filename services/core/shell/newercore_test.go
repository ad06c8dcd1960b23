package shell_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/test/natstest"
)

func (s *system) send(ref subject.Ref, kind subject.CauseKind, by subject.Writer, body string) {
	s.t.Helper()
	if _, err := s.bus.PublishCause(s.t.Context(), ref, kind, by, "", []byte(body)); err != nil {
		s.t.Fatal(err)
	}
}

// newerCommit runs a turn in the session and appends a commit as of a newer core.
func (s *system) newerCommit() (seq uint64) {
	s.t.Helper()
	ch := s.follow(hurt)
	s.say(hurt, event.Input{Text: "one"})
	s.await(ch, event.TypeRecorded)
	last, err := s.bus.LastCommit(s.t.Context(), hurt)
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := event.DecodeCommit(hurt, last.Data)
	if err != nil {
		s.t.Fatal(err)
	}
	c.Header.Prev, c.Header.FoldVersion, c.Header.CommitID = last.Seq, decide.FoldVersion+1, "newer"
	for i := range c.Events {
		c.Events[i].ID = "newer." + c.Events[i].ID
	}
	body, err := c.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	if seq, err = s.bus.AppendCommit(s.t.Context(), hurt, body, last.Seq); err != nil {
		s.t.Fatal(err)
	}
	return seq
}

// A session that a newer core wrote waits for such a core, and reports it.
func TestASessionOfANewerCoreWaits(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	last := s.newerCommit()
	items, err := follow.Follow(t.Context(), s.bus, hurt, follow.Position{Commit: last, Index: follow.All},
		natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	s.say(hurt, event.Input{Text: "two"})
	var message event.UIMessage
	first := <-items
	if first.Commit != 0 {
		t.Fatalf("%+v", first)
	}
	if err := first.Event.DataAs(&message); err != nil {
		t.Fatal(err)
	}
	contains(t, message.Content, "Your input waits: this session was written by a newer core (", "fold version ",
		"updated")
	if all := s.core.Status(t.Context()).Troubles; len(all) != 1 || all[0].Kind != coreapi.TroubleNewer {
		t.Errorf("%+v", all)
	}
	well := s.follow(sound)
	s.say(sound, event.Input{Text: "and here?"})
	s.await(well, event.TypeRecorded)
}

// If no newer core is running, a user may continue without the newer core's commits.
func TestASessionOfANewerCoreIsTakenOver(t *testing.T) {
	t.Parallel()
	for command, keeps := range map[string]bool{"repair": true, "reset": false} {
		t.Run(command, func(t *testing.T) {
			s := start(t, core.Config{})
			s.newerCommit()
			ch := s.follow(hurt)
			waits := s.say(hurt, event.Input{Text: "two"})
			natstest.Eventually(t, "it is reported", func() bool { return len(s.core.Status(t.Context()).Troubles) == 1 })
			s.send(hurt, subject.Command, "test", fmt.Sprintf(`{"name":%q}`, command))
			if failed := s.failedUntil(ch, command); failed[waits] != event.FailLocked {
				t.Errorf("the input %d that waited: %v", waits, failed)
			}
			s.say(hurt, event.Input{Text: "three"})
			s.await(ch, event.TypeRecorded)
			if all := s.core.Status(t.Context()).Troubles; len(all) != 0 {
				t.Errorf("still in trouble: %+v", all)
			}
			l := loader.Loader{Bus: s.bus, Log: natstest.Logger(t)}
			st, err := l.Rebuild(t.Context(), hurt)
			if err != nil {
				t.Fatal(err)
			}
			window, err := json.Marshal(st.Window)
			if err != nil {
				t.Fatal(err)
			}
			if text := string(window); !strings.Contains(text, "three") || strings.Contains(text, "one") != keeps {
				t.Errorf("the conversation is %s", text)
			}
		})
	}
}

// failedUntil waits for the end of a command, and returns how inputs failed before.
func (s *system) failedUntil(ch <-chan event.Event, command string) map[uint64]event.FailCode {
	s.t.Helper()
	failed := map[uint64]event.FailCode{}
	for {
		switch e := s.next(ch); e.Type {
		case event.TypeTurnFailed:
			var p event.TurnFailed
			if err := e.DataAs(&p); err != nil {
				s.t.Fatal(err)
			}
			failed[p.Sequence] = p.Code
		case event.TypeRecorded:
			var p event.Recorded
			if err := e.DataAs(&p); err != nil {
				s.t.Fatal(err)
			}
			if p.Command == command {
				return failed
			}
		}
	}
}

// While a newer core is running, only that core decides about its session.
func TestANewerCoreKeepsItsSession(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	newer := natstest.Connect(t, s.srv)
	ctx := natstest.Context(t)
	natstest.Eventually(t, "the newer core is known", func() bool {
		if err := newer.PublishBeacon(ctx, bus.Beacon{Fold: decide.FoldVersion + 1}); err != nil {
			t.Fatal(err)
		}
		return shell.NewestFold(s.core) > decide.FoldVersion
	})
	beacons := time.NewTicker(bus.BeaconEvery / 4)
	defer beacons.Stop()
	go func() {
		for range beacons.C {
			if newer.PublishBeacon(ctx, bus.Beacon{Fold: decide.FoldVersion + 1}) != nil {
				return
			}
		}
	}()
	last := s.newerCommit()
	s.send(hurt, subject.Command, "test", `{"name":"reset"}`)
	natstest.Eventually(t, "the command waits", func() bool { return len(s.core.Status(t.Context()).Troubles) == 1 })
	if at, err := s.bus.LastCommitSeq(t.Context(), hurt); err != nil || at != last {
		t.Fatalf("the last commit is %d, %v; want %d", at, err, last)
	}
}

// Causes that wait for a newer core do not block other sessions.
func TestWhatWaitsForANewerCoreIsNoBacklog(t *testing.T) {
	t.Parallel()
	limit := 4
	s := start(t, core.Config{Limits: core.SystemLimits{Backlog: &limit}})
	s.newerCommit()
	for i := range 3 * limit {
		natstest.Eventually(t, "an input is taken", func() bool {
			_, err := s.bus.PublishCause(t.Context(), hurt, subject.Input, "test", "", fmt.Appendf(nil, `{"text":"%d"}`, i))
			if err != nil && !errors.Is(err, bus.ErrOverloaded) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	natstest.Eventually(t, "all wait", func() bool { return s.core.Counters()["backlog"] >= int64(3*limit) })
	well := s.follow(sound)
	natstest.Eventually(t, "another session's input is taken", func() bool {
		_, err := s.bus.PublishCause(t.Context(), sound, subject.Input, "test", "", []byte(`{"text":"and here?"}`))
		return err == nil
	})
	s.await(well, event.TypeRecorded)
	// A slow machine may have been overloaded for a moment; it does not stay so.
	natstest.Eventually(t, "no backlog is reported", func() bool {
		return !slices.ContainsFunc(s.core.Status(t.Context()).Faults, func(f coreapi.Fault) bool {
			return f.What == coreapi.FaultOverload || strings.Contains(f.Message, "limit")
		})
	})
}
