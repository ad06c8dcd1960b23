package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	. "skandha.dev/services/test/e2e/e2etest"
)

const approvalConfig = `
agents:
  main: {confirm: 30m}
  brief: {confirm: 1s}
policy:
  - {action: confirmation, principal: "mqtt*", effect: deny, reason: sensors approve nothing}
`

// Promise 3, against everybody who may write answers: what does not count is
// refused and audited, changes nothing for the session, and costs the log little.
func TestApprovalsThatDoNotCount(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Config: approvalConfig})
	s.AwaitExecutors(2)
	sibling, foreign := Ref("sibling"), subject.Ref{Agent: "brief", Session: "s"}
	for _, ref := range []subject.Ref{sibling, foreign} {
		s.Ended(s.Say(ref, "so that the session is there"))
	}
	p := park(t, s, "main")
	yes := event.Confirmation{ConfirmationID: fmt.Sprintf("t%d-p1-c0", p.seq), Hash: p.Hash, Approved: true}
	say := func(ref subject.Ref, by subject.Writer, c event.Confirmation) uint64 {
		return s.Cause(ref, subject.Confirmation, by, "", c)
	}
	with := func(change func(*event.Confirmation)) event.Confirmation { c := yes; change(&c); return c }
	var offered []event.Grant
	if err := json.Unmarshal(p.Always, &offered); err != nil || len(offered) != 1 {
		t.Fatalf("offered is %s (%v)", p.Always, err)
	}
	always := &offered[0] // exactly this call

	for _, c := range []struct {
		name string
		ref  subject.Ref
		by   subject.Writer
		say  event.Confirmation
		want string
	}{
		{
			"another hash", p.ref, "person", with(func(c *event.Confirmation) { c.Hash = strings.Repeat("0", len(p.Hash)) }),
			"hash",
		},
		{"no hash", p.ref, "person", with(func(c *event.Confirmation) { c.Hash = "" }), "hash"},
		{
			"a hash in capitals", p.ref, "person", with(func(c *event.Confirmation) { c.Hash = strings.ToUpper(p.Hash) }),
			"hash",
		},
		{"another call", p.ref, "person", with(func(c *event.Confirmation) { c.ConfirmationID += "0" }), "pending"},
		{"in another session", sibling, "person", yes, "no confirmation request is pending"},
		{"with another agent", foreign, "person", yes, "no confirmation request is pending"},
		{"by one who may not", p.ref, "mqtt-7", yes, "sensors approve nothing"},
		{"with a grant of everything", p.ref, "person", with(func(c *event.Confirmation) {
			c.Always = &event.Grant{Tool: ToolRisky, Args: map[string]string{"n": "*"}}
		}), "not offered"},
		{"with a grant of another tool", p.ref, "person", with(func(c *event.Confirmation) {
			c.Always = &event.Grant{Tool: ToolOnce, Hash: p.Hash}
		}), "not offered"},
		{
			"a refusal that grants", p.ref, "person", with(func(c *event.Confirmation) { c.Approved, c.Always = false, always }),
			"denies the call but grants",
		},
	} {
		t.Run(c.name, func(t *testing.T) { refused(t, s, say(c.ref, c.by, c.say), c.want) })
	}

	// A flood of them is worked off one by one, small in the log, while others go on.
	const writers, each = 4, 40
	var flood sync.WaitGroup
	huge := strings.Repeat("x", 32<<10)
	for w := range writers {
		flood.Go(func() {
			by := subject.Writer(fmt.Sprintf("flood-%d", w))
			for i := range each {
				s.Cause(p.ref, subject.Confirmation, by, fmt.Sprintf("%s-%d", by, i), event.Confirmation{
					ConfirmationID: yes.ConfirmationID, Hash: huge, Reason: huge, Source: huge, Approved: true,
				})
			}
		})
	}
	if end := s.Ended(s.Say(sibling, "meanwhile")); end.Failed != "" {
		t.Errorf("beside the flood a turn ended as %+v", end)
	}
	flood.Wait()

	// Of answers at once the first in the log counts, and everybody sees which.
	var race sync.WaitGroup
	answers := make([]uint64, 4)
	for i := range answers {
		race.Go(func() {
			by := subject.Writer(fmt.Sprintf("ui-%d", i))
			answers[i] = s.Cause(p.ref, subject.Confirmation, by, string(by),
				with(func(c *event.Confirmation) { c.Always = always }))
		})
	}
	race.Wait()
	s.Ended(p.seq)
	first := min(answers[0], answers[1], answers[2], answers[3])
	for _, seq := range answers {
		if seq != first {
			refused(t, s, seq, "")
		}
	}
	if k := awaitCall(t, s, p.seq, "has its result", done); k.Confirmed != "approved" || k.Results[0] != "success" {
		t.Errorf("the call went as %+v", k)
	}
	if n := len(effectsOf(t, s, p.seq)); n != 1 { // attempts may be more: of those that never ran
		t.Errorf("it had its effect %d times", n)
	}

	// A core that comes anew, and reads the session from its snapshot or the log, knows
	// what was answered and what is granted.
	s.Cores[0].Kill()
	replayed := say(p.ref, "person", yes)
	s.Cores[0].Start()
	refused(t, s, replayed, "no confirmation request is pending")
	s.AwaitExecutors(2)
	again := s.Do(p.ref,
		Script{Rounds: []Round{{{ID: "1", Tool: ToolRisky, Args: Args{N: 7}}, {ID: "2", Tool: ToolRisky, Args: Args{N: 8}}}}})
	if k := awaitCall(t, s, again, "has a result", done); k.Asked != 0 || k.Results[0] != "success" {
		t.Errorf("what was granted for the session went as %+v", k)
	}
	s.Tail.Await(t, "a person is asked about the other call",
		func(l *Log) bool { c := l.CallsOf(again); return len(c) == 2 && c[1].Asked > 0 })
	old := with(func(c *event.Confirmation) { c.ConfirmationID = fmt.Sprintf("t%d-p1-c1", again) })
	refused(t, s, say(p.ref, "person", old), "hash") // the answer of before, for the call of now
	s.Cause(p.ref, subject.Cancel, "person", "", event.Cancel{Sequence: again})
	s.Ended(again)

	late := park(t, s, "brief")
	awaitCall(t, s, late.seq, "has a result", done)
	refused(t, s, say(late.ref, "person", event.Confirmation{
		ConfirmationID: fmt.Sprintf("t%d-p1-c0", late.seq), Hash: late.Hash, Approved: true,
	}), "")

	for _, e := range s.Verify().Entries {
		if refusal := e.IsCommit() && strings.Contains(string(e.Data), `"action":"confirmation"`); refusal &&
			len(e.Data) > 4<<10 {
			t.Errorf("a refusal of %d bytes: %.300s", len(e.Data), e.Data)
		}
	}
}
