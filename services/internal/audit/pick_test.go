package audit_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/audit"
)

var ref = subject.Ref{Agent: "main", Session: "kitchen"}

// commit returns a commit with events, and its body.
func commit(t *testing.T, h event.Header, payloads ...event.Payload) (event.Commit, []byte) {
	t.Helper()
	h.CommitID, h.Now, h.FoldVersion = "c1", time.Unix(1_700_000_000, 0).UTC(), 1
	c := event.Commit{Ref: ref, Header: h}
	for i, p := range payloads {
		e := event.New(ref, fmt.Sprint("e", i), event.Source, p)
		e.Turn = "t7"
		c.Events = append(c.Events, e)
	}
	body, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return c, body
}

func TestWhatIsPickedFromACommit(t *testing.T) {
	by := func(kind subject.CauseKind, w subject.Writer) event.Header {
		return event.Header{Trigger: event.Trigger{Kind: event.ByCause, Sequence: 7, Cause: kind, Writer: w}}
	}
	long := strings.Repeat("x", 1000)
	for name, c := range map[string]struct {
		header event.Header
		events []event.Payload
		want   []string // kind name via/from, verb, what, detail
	}{
		"an input of a person": {by(subject.Input, "ui-ann"), []event.Payload{event.Perceived{Sequence: 7, Writer: "ui-ann", Text: "hello", Disposition: event.Started}}, []string{"person ann asked : hello"}},
		"an input of a listener": {
			by(subject.Input, "irc"),
			[]event.Payload{event.Perceived{Sequence: 7, Writer: "irc", From: "bob", Origin: "email:x@example.org", Text: long, Disposition: event.Queued}},
			[]string{"listener irc/bob asked email:x@example.org: " + long[:80] + "…"},
		},
		"an input from the queue was picked": {by(subject.Input, "irc"), []event.Payload{event.Perceived{Sequence: 5, Writer: "irc", Text: "x", Disposition: event.FromQueue}}, nil},
		"a scheduled input":                  {by(subject.Input, "schedule"), []event.Payload{event.Perceived{Sequence: 7, Writer: "schedule", Text: "x", Disposition: event.Started}}, []string{"core schedule asked : x"}},
		"a slash command":                    {by(subject.Command, "cli"), []event.Payload{event.Perceived{Sequence: 7, Writer: "cli", Text: "/tools", Disposition: event.EndedAtOnce}}, []string{"listener cli commanded : /tools"}},
		"a request for approval": {
			event.Header{},
			[]event.Payload{event.ToolCallRequest{ToolName: "mail:send", Args: json.RawMessage(`{}`), ConfirmationID: "t7-p1-c0", Approval: &event.Approval{Rule: "approvals.rules[0]", People: 2}}},
			[]string{"agent main requested mail:send: 2 people must approve it (approvals.rules[0])"},
		},
		"its warning": {
			event.Header{},
			[]event.Payload{event.ToolCallRequest{ToolName: "mail:send", Args: json.RawMessage(`{}`), ConfirmationID: "t7-p1-c0", SecurityWarning: &hook.Warning{Message: "high risk"}}},
			[]string{"agent main requested mail:send: high risk"},
		},
		"the first of two approvals": {
			event.Header{},
			[]event.Payload{event.ActApproved{Call: "t7-p1-c0", By: "irc", From: "bob", Person: "bob", Left: 1, Passkey: true}},
			[]string{"person bob via irc/bob approved : 1 more must approve; with a passkey"},
		},
		"the last one": {
			event.Header{},
			[]event.Payload{event.ActConfirmed{Call: "t7-p1-c0", Outcome: event.Approved, By: "ui-ann", Person: "ann", Others: []string{"bob"}, For: "eve", Always: &event.Grant{}}},
			[]string{"person ann approved : after bob; for eve; for later calls, too"},
		},
		"a denial by somebody unknown": {event.Header{}, []event.Payload{event.ActConfirmed{Call: "t7-p1-c0", Outcome: event.Denied, By: "cli", Reason: "no"}}, []string{"listener cli refused : no"}},
		"nobody answered":              {event.Header{}, []event.Payload{event.ActConfirmed{Call: "t7-p1-c0", Outcome: event.Expired, By: "core"}}, []string{"core core expired : "}},
		"policy denies":                {event.Header{}, []event.Payload{event.Audited{Principal: "cli", Action: event.ActionCall, Resource: "fs:write", Effect: event.EffectDeny, Rule: "policy[3]", Reason: "never"}}, []string{"core core denied fs:write: policy[3]; never"}},
		"an answer does not count": {
			event.Header{},
			[]event.Payload{event.Audited{Principal: "irc", From: "eve", Action: event.ActionConfirmation, Call: "t7-p1-c0", Effect: event.EffectDeny, Reason: "may not"}},
			[]string{"core core denied an answer by irc/eve: may not"},
		},
		"what is allowed is executed later": {event.Header{}, []event.Payload{event.Audited{Principal: "cli", Action: event.ActionCall, Effect: event.EffectAllow}, event.Audited{Principal: "cli", Action: event.ActionCall, Effect: event.EffectConfirm}}, nil},
		"a hook denies": {
			event.Header{Hooks: []hook.Verdict{{Point: hook.BeforeAct, Plugin: "judge", Verb: hook.DenyVerb, Reason: "not today"}, {Point: hook.BeforeAct, Plugin: "other", Verb: hook.Continue}}},
			nil,
			[]string{"plugin judge denied before_act: not today"},
		},
		"a hook that is down denies": {
			event.Header{Hooks: []hook.Verdict{{Point: hook.BeforeAct, Plugin: "judge", Verb: hook.DenyVerb, Error: "timeout"}}},
			nil,
			[]string{"plugin judge denied before_act: the plugin gave no valid answer, which denies: timeout"},
		},
		"a tool ran": {event.Header{}, []event.Payload{event.ActCompleted{Call: "t7-p1-c0", Tool: "mail:send", Attempt: "a1", Runner: "r1", Result: tool.OK("sent")}}, []string{"agent main via r1 executed mail:send: ok"}},
		"a tool may have run": {
			event.Header{},
			[]event.Payload{event.ActCompleted{Call: "t7-p1-c0", Tool: "mail:send", Attempt: "a1", Runner: "r1", Result: tool.Failure(tool.CodeOutcomeUnknown, "lost")}},
			[]string{"agent main via r1 executed mail:send: outcome_unknown"},
		},
		"a tool that never ran":   {event.Header{}, []event.Payload{event.ActCompleted{Call: "t7-p1-c0", Tool: "mail:send", Result: tool.Failure(tool.CodeDenied, "no")}}, nil},
		"a turn is cancelled":     {by(subject.Cancel, "ui-ann"), []event.Payload{event.TurnFailed{Sequence: 7, Code: event.FailCancelled, Reason: "by ann"}}, []string{"person ann cancelled : cancelled; by ann"}},
		"a turn fails otherwise":  {by(subject.Cancel, "ui-ann"), []event.Payload{event.TurnFailed{Sequence: 7, Code: event.FailProvider, Reason: "x"}}, nil},
		"a session is locked":     {event.Header{}, []event.Payload{event.SessionLocked{Reason: "damaged"}}, []string{"core core locked : damaged"}},
		"a conversation is reset": {event.Header{}, []event.Payload{event.SessionReset{By: "ui-ann"}}, []string{"person ann reset : "}},
		"nothing of interest":     {event.Header{}, []event.Payload{event.UIReady{}, event.Recorded{Sequence: 7}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			commit, body := commit(t, c.header, c.events...)
			var got []string
			for _, e := range audit.Pick(commit, 9, body) {
				who := string(e.By.Kind) + " " + e.By.String()
				if e.By.Via != "" {
					who += " via " + e.By.Via
				}
				got = append(got, fmt.Sprintf("%s %s %s: %s", who, e.Verb, e.What, e.Detail))
				if e.Agent != "main" || e.Session != "kitchen" || e.Source == nil || e.Source.Sequence != 9 || e.Source.Digest != audit.Digest(body) || !e.Time.Equal(commit.Header.Now) {
					t.Errorf("%+v", e)
				}
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("picked\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// The log of decisions shows what the chain does not: that entries were changed and sealed again, left out or put in.
func TestEntriesAreComparedWithCommits(t *testing.T) {
	log := time.Unix(1_600_000_000, 0).UTC()
	perceived := func(text string) event.Payload {
		return event.Perceived{Sequence: 7, Writer: "ui-ann", Text: text, Disposition: event.Started}
	}
	first, body1 := commit(t, event.Header{}, perceived("one"), perceived("two"))
	second, body2 := commit(t, event.Header{}, perceived("three"))
	written := append(audit.Pick(first, 3, body1), audit.Pick(second, 5, body2)...)
	for name, c := range map[string]struct {
		change func([]audit.Entry) []audit.Entry
		says   string // empty: nothing is wrong
	}{
		"as it was": {func(e []audit.Entry) []audit.Entry { return e }, ""},
		"changed":   {func(e []audit.Entry) []audit.Entry { e[1].By.Name = "bob"; return e }, "entry 2 was changed: it is not what commit 3"},
		"left out":  {func(e []audit.Entry) []audit.Entry { return append(e[:1:1], e[2]) }, "an entry is missing: commit 3"},
		"put in": {func(e []audit.Entry) []audit.Entry {
			x := e[2]
			s := *x.Source
			s.Part = "events[9]"
			x.Source = &s
			return append(e, x)
		}, "entry 4 was put in: commit 5"},
		"another body": {func(e []audit.Entry) []audit.Entry {
			s := *e[2].Source
			s.Digest = audit.Digest(nil)
			e[2].Source = &s
			return e
		}, "entry 3 was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			v, chain := audit.NewVerifier(log, nil), audit.Chain{}
			for _, e := range c.change(append([]audit.Entry{}, written...)) {
				e.N, e.Prev, e.Log = chain.N+1, chain.Digest, audit.Position{Log: log, Sequence: 5}
				line, err := e.Seal()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := chain.Add(line); err != nil {
					t.Fatal(err)
				}
				v.Line(line)
			}
			v.Commit(first, 3, body1)
			v.Commit(second, 5, body2)
			breaks := v.Breaks()
			if c.says == "" && (len(breaks) > 0 || v.Compared != 3) || c.says != "" && (len(breaks) != 1 || !strings.Contains(breaks[0].Reason, c.says)) {
				t.Errorf("%v, %d compared; want %s", breaks, v.Compared, c.says)
			}
		})
	}
}

func TestHeadsAreCompared(t *testing.T) {
	lines := chain(t, 1, 5, "call ")
	c, _ := read(lines)
	for says, heads := range map[string][]audit.Head{
		"":                                    {c.Head()},
		"entry 5 is not the one whose digest": {{N: 5, Digest: "x"}},
		"entries 6 to 8 were removed":         {c.Head(), {N: 8, Digest: "x"}},
		"two different heads of entry 9":      {{N: 9, Digest: "x"}, {N: 9, Digest: "y"}},
	} {
		v := audit.NewVerifier(time.Time{}, heads)
		for _, line := range lines {
			v.Line(line)
		}
		var all []string
		for _, b := range v.Breaks() {
			all = append(all, b.Reason)
		}
		if got := strings.Join(all, "; "); !strings.Contains(got, says) || says == "" && (got != "" || v.Heads != 1) {
			t.Errorf("%+v: %s, want %s", heads, got, says)
		}
	}
}
