package inspect_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/timeline"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/inspect"
)

// A person denies a call, asks again and approves it: lists and waterfalls show it.
func TestWhatHappenedCanBeSeen(t *testing.T) {
	w := newWorld(t)
	w.join("guard")
	w.say(kitchen, "call time:now {}", false)
	approved := w.say(kitchen, "call time:now {}", true)
	w.say(kitchen, "fail unavailable")
	w.say(kitchen, "hello")

	page := call[timeline.TurnsPage](w, "listTurns", names{Agent: "main", Session: "kitchen", Limit: 3})
	if len(page.Turns) != 3 || page.Turns[0].Outcome != "answered" || page.Turns[0].Text != "hello" ||
		page.Turns[1].Outcome != "provider_failed" || page.Turns[1].Rounds != 1 {
		t.Fatalf("got %+v", page)
	}
	if r := page.Turns[2]; r.Sequence != approved || r.Rounds != 2 || r.Calls != 1 || r.Writer != "ui-ada" ||
		r.Started.IsZero() {
		t.Errorf("got %+v", r)
	}
	page = call[timeline.TurnsPage](w, "listTurns", names{Agent: "main", Session: "kitchen", Before: page.Next})
	if len(page.Turns) != 1 || page.Next != "" {
		t.Fatalf("the second page: %+v", page)
	}
	refusedTurn := page.Turns[0].Turn

	find := func(turn string, k timeline.Kind) timeline.Span {
		t.Helper()
		tl := call[timeline.Timeline](w, "getTimeline", names{Agent: "main", Session: "kitchen", Turn: turn})
		i := slices.IndexFunc(tl.Spans, func(s timeline.Span) bool { return s.Kind == k })
		if i < 0 {
			t.Fatalf("turn %s has no span of kind %s: %+v", turn, k, tl)
		}
		return tl.Spans[i]
	}
	if s := find(refusedTurn, timeline.KindConfirm); s.Status != timeline.StatusDenied || s.Detail.By != "ui-ada" ||
		!strings.Contains(s.Detail.Reason, "as the test says") {
		t.Errorf("refused: %+v", s)
	}
	turn := "t" + jsonText(approved)
	if s := find(turn, timeline.KindConfirm); s.Status != timeline.StatusOK || s.Detail.Outcome != event.Approved {
		t.Errorf("approved: %+v", s)
	}
	if s := find(turn, timeline.KindStep); s.Name != "time:now" || s.Status != timeline.StatusOK ||
		s.Detail.ApprovedBy != "ui-ada" || len(s.Detail.Result) == 0 {
		t.Errorf("the step: %+v", s)
	}
	if s := find(turn, timeline.KindHook); s.Detail.Plugin != "guard" || s.Detail.Point != hook.BeforeAct ||
		s.Lane != timeline.LaneHook {
		t.Errorf("the hook: %+v", s)
	}
	if s := find(turn, timeline.KindPolicy); s.Status != timeline.StatusAsked ||
		!strings.Contains(s.Detail.Reason, "the time is precious") || s.Detail.Rule == "" {
		t.Errorf("the policy: %+v", s)
	}
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func TestATurnThatGoesOnIsOpen(t *testing.T) {
	w := newWorld(t)
	ctx := natstest.Context(t)
	seq, err := w.client.Say(ctx, kitchen, event.Input{Text: "hang"})
	if err != nil {
		t.Fatal(err)
	}
	turn := names{Agent: "main", Session: "kitchen", Turn: "t" + jsonText(seq)}
	natstest.Eventually(t, "the model is asked", func() bool {
		tl, err := try[timeline.Timeline](w, ada, "getTimeline", turn)
		return err == nil && len(tl.Spans) > 1 && tl.Outcome == timeline.OutcomeRunning &&
			tl.Spans[1].Kind == timeline.KindPlan && tl.Spans[1].Status == timeline.StatusOpen
	})
	if rows := call[timeline.TurnsPage](w, "listTurns", names{Agent: "main", Session: "kitchen"}).Turns; len(rows) != 1 ||
		rows[0].Outcome != timeline.OutcomeRunning || rows[0].Text != "hang" {
		t.Errorf("got %+v", rows)
	}
	if err := w.client.Cancel(ctx, kitchen, seq, "enough"); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the turn is cancelled", func() bool {
		tl := call[timeline.Timeline](w, "getTimeline", turn)
		return tl.Outcome == string(event.FailCancelled) &&
			!slices.ContainsFunc(tl.Spans, func(s timeline.Span) bool { return s.Status == timeline.StatusOpen })
	})
}

func TestWhatCoreSaysIsPassedOn(t *testing.T) {
	w := newWorld(t)
	w.join("guard")
	w.say(kitchen, "hello")
	if tools := call[[]coreapi.ToolInfo](w, "listTools", nil); !slices.ContainsFunc(tools,
		func(i coreapi.ToolInfo) bool { return i.Name == "time:now" && i.Live && i.SuccessRate == 0.5 }) {
		t.Errorf("tools: %+v", tools)
	}
	var known []coreapi.ToolInfo
	if err := w.client.Ask(natstest.Context(t), coreapi.VerbTools, nil, &known); err != nil {
		t.Fatal(err)
	}
	internal := func(i coreapi.ToolInfo) bool { return i.Internal }
	if !slices.ContainsFunc(known, internal) ||
		slices.ContainsFunc(call[[]coreapi.ToolInfo](w, "listTools", nil), internal) {
		t.Errorf("core has the tools %+v; those that are internal are not for UIs", known)
	}
	type pluginState struct{ Name, Version, State, Reason string }
	if p := call[[]pluginState](w, "listPlugins", nil); len(p) != 1 ||
		p[0] != (pluginState{"guard", "1.2.3", "active", ""}) {
		t.Errorf("plugins: %+v", p)
	}
	if st := call[coreapi.Status](w, "getStatus", nil); len(st.Agents) != 3 || len(st.Executors) == 0 ||
		st.Instance == "" {
		t.Errorf("status: %+v", st)
	}
	if s := call[struct{ State struct{ Ref subject.Ref } }](w, "getSession",
		names{Agent: "main", Session: "kitchen"}); s.State.Ref != kitchen {
		t.Errorf("session: %+v", s)
	}
	suspended := call[pluginState](w, "pluginAction",
		map[string]any{"op": "suspend", "plugin": "guard", "reason": "I want to see what happens"})
	if suspended.State != "suspended" || !strings.Contains(suspended.Reason, "ui-ada") ||
		!strings.Contains(suspended.Reason, "I want to see what happens") {
		t.Errorf("suspended: %+v", suspended)
	}
	if resumed := call[pluginState](w, "pluginAction",
		map[string]any{"op": "resume", "plugin": "guard"}); resumed.State == "suspended" {
		t.Errorf("resumed: %+v", resumed)
	}
}

// A principal sees nothing of agents that it may not access.
func TestOnlyTheAgentsThatOneMayReach(t *testing.T) {
	w := newWorld(t)
	w.say(subject.Ref{Agent: "main", Session: "one"}, "call time:now {}", true) // a figure
	all := map[subject.Ref]uint64{}                                             // sequences of last commits
	for _, a := range []subject.Agent{"main", "other", "secret", "main", "secret", "other"} {
		for _, s := range []subject.Session{"one", "two"} {
			ref := subject.Ref{Agent: a, Session: s}
			w.say(ref, "hello")
			var err error
			if all[ref], err = w.client.Journal.LastCommitSeq(natstest.Context(t), ref); err != nil {
				t.Fatal(err)
			}
		}
	}
	bob := contract.Principal{
		Name: "bob", Writer: "ui-bob", Rights: []contract.Right{contract.See}, Agents: []subject.Agent{"main", "other"},
	}
	natstest.Eventually(t, "the sessions are listed as they are now", func() bool { // or else they move between pages
		rows := call[coreapi.SessionsPage](w, "listSessions", nil).Sessions
		return len(rows) == len(all) &&
			!slices.ContainsFunc(rows, func(r coreapi.SessionRow) bool { return r.Revision != all[r.Ref] })
	})
	var seen []string
	after := ""
	for range 10 {
		page, err := try[coreapi.SessionsPage](w, bob, "listSessions", map[string]any{"limit": 1, "after": after})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Sessions {
			seen = append(seen, s.Ref.String())
		}
		if after = page.Next; after == "" {
			break
		}
	}
	slices.Sort(seen)
	if want := []string{"main/one", "main/two", "other/one", "other/two"}; !slices.Equal(seen, want) {
		t.Errorf("it sees %v", seen)
	}
	st, err := try[coreapi.Status](w, bob, "getStatus", nil)
	if err != nil || !slices.Equal(st.Agents, []subject.Agent{"main", "other"}) {
		t.Errorf("it sees the agents %v, %v", st.Agents, err)
	}
	// What concerns all agents is not for it, and figures would reveal others.
	if len(st.Executors) != 0 || len(st.Counters) != 0 || st.Open != 0 || st.View.Sessions != 0 {
		t.Errorf("it sees of the system %+v", st)
	}
	tools, err := try[[]coreapi.ToolInfo](w, bob, "listTools", nil)
	if err != nil || len(tools) == 0 ||
		slices.ContainsFunc(tools,
			func(i coreapi.ToolInfo) bool { return i.Used != 0 || i.Succeeded != 0 || i.MeanLatencyMS != 0 }) {
		t.Errorf("it sees the tools %+v, %v", tools, err)
	}
	boss := bob
	boss.Rights = contract.AllRights()
	for method, params := range map[string]any{
		"listPlugins": nil, "getHooks": nil, "pluginAction": map[string]any{"op": "suspend", "plugin": "guard"},
	} {
		if got := w.refused(boss, method, params); got != "forbidden" {
			t.Errorf("%s: %s", method, got)
		}
	}
	hidden := names{Agent: "secret", Session: "one"}
	for _, method := range []string{"getSession", "listTurns", "listArtifacts"} {
		if got := w.refused(bob, method, hidden); got != "forbidden" {
			t.Errorf("%s: %s", method, got)
		}
	}
	hidden.Turn = "t1"
	if got := w.refused(bob, "getTimeline", hidden); got != "forbidden" {
		t.Errorf("getTimeline: %s", got)
	}
	if got := w.refused(bob, "listSessions", names{Agent: "secret"}); got != "forbidden" {
		t.Errorf("listSessions: %s", got)
	}
	if got := w.refused(bob, "pluginAction", map[string]any{"op": "resume", "plugin": "guard"}); got != "forbidden" {
		t.Errorf("pluginAction: %s", got)
	}
	for name := range w.methods {
		if got := w.refused(contract.Principal{Name: "nobody"}, name, nil); got != "forbidden" {
			t.Errorf("%s for nobody: %s", name, got)
		}
	}
}

func TestBadQuestionsAreRefusedByField(t *testing.T) {
	w := newWorld(t)
	w.say(kitchen, "hello")
	w.listens("irc", "irc", "")
	long, tooLong := strings.Repeat("x", 600), strings.Repeat("x", memory.MaxText+1)
	for _, c := range []struct {
		method string
		params any
		want   string
	}{
		{"listTools", map[string]any{"x": 1}, "invalid_argument x"},
		{"listSessions", map[string]any{"agent": "a.b"}, "invalid_argument agent"},
		{"listSessions", map[string]any{"limit": 201}, "invalid_argument limit"},
		{"listSessions", map[string]any{"limit": -1}, "invalid_argument limit"},
		{"listSessions", map[string]any{"limit": "ten"}, "invalid_argument limit"},
		{"listSessions", map[string]any{"after": "non sense!"}, "invalid_argument after"},
		{"getSession", map[string]any{"agent": "main"}, "invalid_argument session"},
		{"getSession", names{Agent: "main", Session: "nowhere"}, "not_found"},
		{"listTurns", names{Agent: "main", Session: "kitchen", Limit: 1000}, "invalid_argument limit"},
		{"listTurns", names{Agent: "main", Session: "kitchen", Before: "soon"}, "invalid_argument before"},
		// an input, no commit
		{"listTurns", names{Agent: "main", Session: "kitchen", Before: "1-9"}, "invalid_argument before"},
		{"getTimeline", names{Agent: "main", Session: "kitchen", Turn: "7"}, "invalid_argument turn"},
		{"getTimeline", names{Agent: "main", Session: "kitchen", Turn: "t0"}, "invalid_argument turn"},
		{"getTimeline", names{Agent: "main", Session: "kitchen", Turn: "t-1"}, "invalid_argument turn"},
		{"getTimeline", names{Agent: "main", Session: "kitchen", Turn: "t2"}, "not_found"},
		{"getTimeline", names{Agent: "main", Session: "kitchen", Turn: "t999999"}, "not_found"},
		{"pluginAction", map[string]any{"op": "love", "plugin": "p"}, "invalid_argument op"},
		{"pluginAction", map[string]any{"op": "suspend", "plugin": "p q"}, "invalid_argument plugin"},
		{"pluginAction", map[string]any{"op": "suspend", "plugin": "p", "reason": long}, "invalid_argument reason"},
		{"pluginAction", map[string]any{"op": "suspend", "plugin": "p", "force": true}, "invalid_argument force"},
		{"pluginAction", map[string]any{"op": "suspend", "plugin": "nobody"}, "not_found"},
		{"listMemories", map[string]any{"agent": "a.b"}, "invalid_argument agent"},
		{"listMemories", map[string]any{"agent": "main", "kinds": []string{"thought"}}, "invalid_argument kinds"},
		{"searchMemories", map[string]any{"agent": "main", "text": "tea", "limit": 101}, "invalid_argument limit"},
		{"addMemory", map[string]any{"agent": "main", "text": "x", "kind": "lesson"}, "invalid_argument kind"},
		{"addMemory", map[string]any{"agent": "main", "text": tooLong}, "invalid_argument text"},
		{"addMemory", map[string]any{"agent": "main", "text": "x", "id": long}, "invalid_argument id"},
		{"correctMemory", map[string]any{"agent": "main", "id": "m-1"}, "invalid_argument text"},
		{"correctMemory", map[string]any{"agent": "main", "id": "m-1", "pinned": "yes"}, "invalid_argument pinned"},
		{"correctMemory", map[string]any{"agent": "main", "id": "m-1", "text": "x"}, "not_found"},
		{"forgetMemory", map[string]any{"agent": "main", "id": ""}, "invalid_argument id"},
		{"forgetMemory", map[string]any{"agent": "main", "id": "m-1"}, "not_found"},
		{"switchListener", map[string]any{"listener": "a.b", "on": true}, "invalid_argument listener"},
		{"switchListener", map[string]any{"listener": "hall"}, "invalid_argument on"},
		{"switchListener", map[string]any{"listener": "hall", "on": true}, "not_found"},
		{"switchListener", map[string]any{"listener": "irc", "on": true}, "invalid_argument listener"},
		{"listOutbox", map[string]any{"state": "lost"}, "invalid_argument state"},
		{"listOutbox", map[string]any{"limit": 201}, "invalid_argument limit"},
		{"listAudit", map[string]any{"verb": "liked"}, "invalid_argument verb"},
		{"listAudit", map[string]any{"since": "today"}, "invalid_argument since"},
		{"listAudit", map[string]any{"session": "a.b"}, "invalid_argument session"},
		{"listAudit", map[string]any{"limit": 201}, "invalid_argument limit"},
		{"outboxAction", map[string]any{"op": "love", "id": "x"}, "invalid_argument op"},
		{"outboxAction", map[string]any{"op": "drop", "id": long}, "invalid_argument id"},
		{"outboxAction", map[string]any{"op": "drop", "id": "*"}, "invalid_argument"},
		{"outboxAction", map[string]any{"op": "drop", "id": "irc.0123456789abcdef.00000000000000000001-000"}, "not_found"},
	} {
		if got := w.refused(ada, c.method, c.params); got != c.want {
			t.Errorf("%s %v: %s, want %s", c.method, c.params, got, c.want)
		}
	}
	if page := call[timeline.TurnsPage](w, "listTurns", names{Agent: "main", Session: "nowhere"}); len(page.Turns) != 0 ||
		page.Turns == nil {
		t.Errorf("a session that is not there: %+v", page)
	}
}

func TestNobodyAnswers(t *testing.T) {
	b := natstest.Dial(t, bus.Config{InProcess: natstest.Start(t), Name: "uibridge"})
	c, err := client.New(b, "ui-ada", natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, client: c, methods: map[string]contract.Method{}}
	for _, m := range inspect.Methods(inspect.Deps{Client: c}) {
		w.methods[m.Name] = m
	}
	for method, params := range map[string]any{"listTools": nil, "listMemories": map[string]any{"agent": "main"}} {
		if got := w.refused(ada, method, params); got != "unavailable" {
			t.Errorf("%s without a core: %s", method, got)
		}
	}
}
