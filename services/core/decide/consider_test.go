package decide_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/planner/engine"
)

// words matches tools by the words of their names and descriptions.
type words struct{}

// Match implements engine.Matcher.
func (words) Match(in engine.Intent, _ string, among []tool.Spec, limit int) engine.Ranking {
	r := engine.Ranking{Method: event.MethodLexical}
	said := strings.FieldsFunc(in.Text, func(r rune) bool { return strings.ContainsRune(" ,\n", r) })
	for _, s := range among {
		c := event.Candidate{Tool: s.Name}
		for _, w := range strings.Fields(s.Name + " " + s.Description) {
			if len(w) > 2 && slices.Contains(said, w) {
				c.Fit = min(1, c.Fit+0.5)
			}
		}
		c.Score = c.Fit
		r.Candidates = append(r.Candidates, c)
	}
	slices.SortStableFunc(r.Candidates, func(a, b event.Candidate) int { return cmp.Compare(b.Score, a.Score) })
	r.Candidates = r.Candidates[:min(limit, len(r.Candidates))]
	return r
}

// shortlisting returns a world whose agent is shown n of its five tools.
func shortlisting(t *testing.T, n int) *world {
	w := newWorld(t)
	w.matcher, w.agent.Shortlist = words{}, n
	return w
}

func (w *world) offers() string {
	w.t.Helper()
	if w.state.Turn == nil || w.state.Turn.Plan == nil {
		w.fail("no plan is in progress")
	}
	return strings.Join(w.state.Turn.Plan.Tools, " ")
}

func TestAShortlistOffersWhatFits(t *testing.T) {
	w := shortlisting(t, 1)
	w.say("writes, please")
	if got := w.offers(); got != "write plan:execute tools:find" {
		t.Fatal(got)
	}
	why := events[event.PlanConsidered](w)
	if len(why) != 1 || why[0].Offered != 3 || why[0].Of != 6 || why[0].Mode != "native" || why[0].Method != "lexical" ||
		why[0].Candidates[0].Tool != "write" || why[0].Plan != w.state.Turn.Plan.ID {
		t.Fatalf("%+v", why)
	}
	w.calls("read", `{}`) // was not offered
	if r := w.resultOf("c0"); r.Error == nil || r.Error.Code != tool.CodeUnknownTool {
		t.Fatalf("%+v", r)
	}
}

func TestFewToolsAreAllOffered(t *testing.T) {
	for _, n := range []int{0, 5, 100} {
		w := shortlisting(t, n)
		w.say("writes, please")
		got := w.offers()
		if got != "forbidden keep mail:send read write plan:execute" || len(events[event.PlanConsidered](w)) > 0 {
			t.Fatalf("with %d: %s", n, got)
		}
	}
}

func TestWithoutAMatcherAllToolsAreOffered(t *testing.T) {
	w := shortlisting(t, 1)
	w.matcher = nil
	w.say("writes, please")
	if got := w.offers(); got != "forbidden keep mail:send read write plan:execute" {
		t.Fatal(got)
	}
}

// What the turn has used or found stays, and people ask why once.
func TestToolsAreFound(t *testing.T) {
	w := shortlisting(t, 1)
	in := w.say("writes, please")
	w.calls("tools:find", `{"query":"reads"}`, "write", `{"text":"x"}`)
	if r := w.resultOf("c0"); !r.Success || string(r.Data) != `{"tools":[{"name":"read","description":"reads"}]}` {
		t.Fatalf("%s", mustJSON(r))
	}
	w.succeed("c1", `1`)
	if got := w.offers(); got != "read write plan:execute tools:find" {
		t.Fatal(got)
	}
	w.calls("read", `{"path":"a"}`)
	w.succeed("c0", `1`)
	w.final("done")
	w.ends(in.Sequence, "recorded")
	why := events[event.PlanConsidered](w)
	if len(why) != 2 || why[1].Call != "t1-p1-c0" || why[1].Plan != "t1-p1" || why[1].Candidates[0].Tool != "read" {
		t.Fatalf("%+v", why)
	}
	w.say("writes, please")
	if got := w.offers(); got != "write plan:execute tools:find" {
		t.Fatalf("in the next turn: %s", got)
	}
}

// A search brings back no tool that a hook has removed.
func TestAHookJudgesWhatIsFound(t *testing.T) {
	deny := false
	w := shortlisting(t, 1)
	w.points[hook.BeforePlan] = true
	w.hooks = func(env hook.Envelope) hook.Decision {
		var data hook.PlanData
		if err := json.Unmarshal(env.Data, &data); err != nil {
			t.Error(err)
		}
		if deny && env.Step != "" {
			return hook.Decision{Verb: hook.DenyVerb, Reason: "no searches"}
		}
		data.Tools = slices.DeleteFunc(data.Tools, func(n string) bool { return n == "read" })
		return hook.Decision{Verb: hook.Replace, Data: mustJSON(data)}
	}
	w.say("writes, please")
	w.calls("tools:find", `{"query":"reads keep"}`)
	r := w.resultOf("c0")
	if found := string(r.Data); !r.Success || strings.Contains(found, `"read"`) || !strings.Contains(found, `"keep"`) {
		t.Fatalf("%s", mustJSON(r))
	}
	if found := w.state.Turn.Considered.Found; slices.Contains(found, "read") ||
		w.offers() != "keep write plan:execute tools:find" {
		t.Fatalf("found %q, offered %s", found, w.offers())
	}
	deny = true
	w.calls("tools:find", `{"query":"reads keep"}`)
	if r := w.resultOf("c0"); r.Error == nil || r.Error.Code != tool.CodeDenied {
		t.Fatalf("%s", mustJSON(r))
	}
}

// A search needs no runner, so a half-open breaker does not hold it back.
func TestASearchDoesNotWaitForTheBreaker(t *testing.T) {
	w := newWorld(t)
	lock(w)
	w.matcher, w.agent.Shortlist = words{}, 1
	w.now = w.state.Breaker.Until
	w.say("writes, please")
	w.calls("write", `{"text":"1"}`, "tools:find", `{"query":"reads"}`)
	if w.status("c0") != decide.Assigned || w.status("c1") != decide.Done || !w.state.Breaker.HalfOpen {
		t.Fatalf("%s, %s", w.status("c0"), w.status("c1"))
	}
}

func TestWhatIsFoundIsBounded(t *testing.T) {
	w := shortlisting(t, 1)
	w.say("writes, please")
	for range 20 {
		w.calls("tools:find", `{"query":"reads mail:send keep"}`)
	}
	if found := w.state.Turn.Considered.Found; len(found) != 3 {
		t.Fatal(found)
	}
}

func TestASearchMayFindNothing(t *testing.T) {
	w := shortlisting(t, 1)
	w.say("writes, please")
	w.calls("tools:find", `{"query":"nonsense"}`, "tools:find", `{"query":" "}`, "tools:find", `{"q":"reads"}`,
		"tools:find", `[]`)
	if r := w.resultOf("c0"); !r.Success || string(r.Data) != `{"tools":[]}` {
		t.Fatalf("%s", mustJSON(r))
	}
	for _, call := range []string{"c1", "c2", "c3"} {
		if r := w.resultOf(call); r.Error == nil || r.Error.Code != tool.CodeInvalidArgs {
			t.Errorf("%s: %s", call, mustJSON(r))
		}
	}
}

func TestAToolWithoutPermissionIsNoCandidate(t *testing.T) {
	w := shortlisting(t, 2)
	w.policy = func(a decide.Access) decide.Ruling {
		if a.Resource.Name == "write" {
			return decide.Ruling{Effect: decide.Deny, Rule: decide.RuleGranted, Reason: "no"}
		}
		return decide.Ruling{Effect: decide.Allow}
	}
	w.say("writes and reads")
	if got := w.offers(); strings.Contains(got, "write") || !strings.Contains(got, "read") {
		t.Fatal(got)
	}
	w.calls("tools:find", `{"query":"writes"}`)
	if r := w.resultOf("c0"); string(r.Data) != `{"tools":[]}` {
		t.Fatalf("%s", mustJSON(r))
	}
}

// "Yes" means what was said before.
func TestAShortInputIsReadWithTheOneBefore(t *testing.T) {
	w := shortlisting(t, 1)
	w.say("I wonder if you could do that which writes, at some time")
	w.final("Shall I?")
	w.say("yes")
	if got := w.offers(); got != "write plan:execute tools:find" {
		t.Fatal(got)
	}
}

func TestAHookOnlyNarrowsTheShortlist(t *testing.T) {
	w := shortlisting(t, 2)
	w.points[hook.BeforePlan] = true
	w.hooks = func(hook.Envelope) hook.Decision {
		return hook.Decision{Verb: hook.Replace, Data: mustJSON(hook.PlanData{Tools: []string{"read", "mail:send"}})}
	}
	w.say("writes and reads")
	if got := w.offers(); got != "read" {
		t.Fatal(got)
	}
	if why := events[event.PlanConsidered](w); len(why) != 1 || why[0].Offered != 1 {
		t.Fatalf("%+v", why)
	}
}
