package shell_test

import (
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/test/natstest"
)

// A turn, and what operators do, is in the audit log, and any core lists it.
func TestWhatHappensIsAudited(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	ref := subject.Ref{Agent: "main", Session: "audited"}
	live := s.follow(ref)
	s.say(ref, event.Input{Text: "hello"})
	s.await(live, event.TypeRecorded)
	c, err := client.New(s.bus, "ui-ann", natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	refill := coreapi.RefillQuery{Agent: "main", Session: "audited", Caller: "ui-ann"}
	if err := c.Administer(natstest.Context(t), coreapi.VerbRefill, refill, &coreapi.RefillAnswer{}); err != nil {
		t.Fatal(err)
	}
	drop := coreapi.OutboxQuery{Action: coreapi.OutboxDrop, ID: "irc.0123456789abcdef.00000000000000000001-000", Caller: "bob"}
	if err := c.Administer(natstest.Context(t), coreapi.VerbOutbox, drop, &coreapi.OutboxPage{}); err == nil {
		t.Error("a message that is not there was dropped")
	}
	want := []string{
		"core core configured", "listener test asked", "person ann rewritten", "operator bob dropped", "operator bob failed",
	}
	var page coreapi.AuditPage
	natstest.Eventually(t, strings.Join(want, ", "), func() bool {
		if err := c.Administer(natstest.Context(t), coreapi.VerbAudit, coreapi.AuditQuery{Verify: true}, &page); err != nil {
			t.Fatal(err)
		}
		have := map[string]bool{}
		for _, l := range page.Lines {
			e, err := audit.Parse([]byte(l))
			if err != nil {
				t.Fatal(err)
			}
			have[string(e.By.Kind)+" "+e.By.Name+" "+string(e.Verb)] = true
		}
		for _, w := range want {
			if !have[w] {
				return false
			}
		}
		return page.Last != nil && int(page.Last.N) == len(page.Lines) // nothing came while it was read
	})
	if page.Damage != "" || !page.Verified {
		t.Errorf("%+v", page)
	}
}

// audit returns what a query finds in the audit log.
func (s *system) audit(q coreapi.AuditQuery) []string {
	s.t.Helper()
	c, err := client.New(s.bus, "test", nil)
	must(s.t, err)
	var page coreapi.AuditPage
	must(s.t, c.Administer(natstest.Context(s.t), coreapi.VerbAudit, q, &page))
	return page.Lines
}

// Somebody deletes the stream: status says so.
func TestStatusSaysThatTheAuditLogWasDeleted(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	ref := subject.Ref{Agent: "main", Session: "audited"}
	live := s.follow(ref)
	s.say(ref, event.Input{Text: "hello"})
	s.await(live, event.TypeRecorded)
	natstest.Eventually(t, "an entry", func() bool { _, err := s.bus.LastAudit(natstest.Context(t)); return err == nil })
	if err := s.bus.JetStream().DeleteStream(natstest.Context(t), "AUDIT"); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the fault", func() bool {
		for _, f := range s.core.Status(natstest.Context(t)).Faults {
			if f.What == coreapi.FaultAudit && strings.Contains(f.Message, "all entries were removed") {
				return true
			}
		}
		return false
	})
}
