package decide_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
)

// skilled is a world with the tool that loads skills.
func skilled(t *testing.T) *world {
	w := newWorld(t)
	w.offer(executor.LoadSkill)
	return w
}

// limiting returns a result of skills:load, as it comes over the wire.
func limiting(name string, allowed any) executor.Answer {
	b, err := json.Marshal(tool.Result{
		Success: true, Data: json.RawMessage(`{"instructions":"x"}`),
		Metadata: map[string]any{executor.MetadataSkill: map[string]any{"name": name, "allowed_tools": allowed}},
	})
	var r tool.Result
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		panic(err)
	}
	return executor.Answer{State: executor.Finished, Result: &r}
}

// load loads a skill in the open turn.
func (w *world) load(name string, allowed any) {
	w.t.Helper()
	w.calls(executor.LoadSkill, `{"name":"`+name+`"}`)
	w.replied("c0", limiting(name, allowed))
}

func (w *world) lastResult() event.ActCompleted {
	all := events[event.ActCompleted](w)
	return all[len(all)-1]
}

func TestASkillNarrowsTheTurn(t *testing.T) {
	w := skilled(t)
	w.agent.Tools = []string{"read", "write", executor.LoadSkill, "plan:execute"}
	w.say("do it")
	w.load("pdf", []string{"read", "mail:*", "not-a-tool"})
	if s := w.lastResult().Skill; s == nil || s.Name != "pdf" ||
		!slices.Equal(s.AllowedTools, []string{"read", "mail:*", "not-a-tool"}) {
		t.Errorf("the log has %+v", s)
	}
	// mail:send is allowed by the skill, but the agent does not have it
	if got := w.offers(); got != "read skills:load plan:execute" {
		t.Errorf("offered are %q", got)
	}
	w.reload()
	w.calls("write", `{"text":"x"}`)
	if r := w.lastResult().Result; r.Error == nil || r.Error.Code != tool.CodeDenied ||
		r.Error.Message != "the skill pdf allows only these tools until the turn ends: read, mail:*, not-a-tool, skills:*" {
		t.Errorf("got %+v", r.Error)
	}
	w.calls("mail:send", `{"to":"you"}`)
	if r := w.lastResult().Result; r.Error == nil || r.Error.Code != tool.CodeUnknownTool {
		t.Errorf("a skill widens: %+v", r.Error)
	}
	w.calls("read", `{}`)
	w.succeed("c0", `1`)
	w.final("done")
	w.say("another turn")
	if !strings.Contains(w.offers(), "write") {
		t.Errorf("the limit outlives the turn: %q", w.offers())
	}
}

// Calls that were offered before the skill was loaded meet the gate, which audits the denial.
func TestTheGateEnforcesASkill(t *testing.T) {
	for name, steps := range map[string]string{
		"a plan": `{"steps":[{"id":"s","tool":"skills:load","params":{}},` +
			`{"id":"w","tool":"write","params":{"text":"x"},"depends_on":["s"]}]}`,
		"an approval": "",
	} {
		w := skilled(t)
		w.say("do it")
		denied := "write"
		if steps != "" {
			w.calls("plan:execute", steps)
			w.replied("c0-s0", limiting("pdf", []string{"read"}))
		} else {
			denied = "mail:send"
			w.calls("mail:send", `{"to":"you"}`, executor.LoadSkill, `{}`)
			w.replied("c1", limiting("pdf", []string{"read"}))
			w.confirm("c0", true)
		}
		all := events[event.Audited](w)
		a := all[len(all)-1]
		if a.Effect != event.EffectDeny || a.Rule != "skill" || a.Resource != denied ||
			!strings.Contains(a.Reason, "the skill pdf allows only") {
			t.Errorf("%s: audited is %+v", name, a)
		}
		for _, p := range events[event.ActRequested](w) {
			if p.Tool == denied {
				t.Errorf("%s: the call ran", name)
			}
		}
	}
}

func TestSkillsAreIntersected(t *testing.T) {
	w := skilled(t)
	w.say("do it")
	w.load("one", []string{"read", "write"})
	w.load("two", []string{"read", "mail:send"})
	w.load("one", []string{"*"}) // it has changed since: what it said before still holds
	if got := w.offers(); got != "read skills:load plan:execute" {
		t.Errorf("offered are %q", got)
	}
}

// A limit that cannot be read allows nothing, and without a limit there is none.
func TestAnUnreadableLimit(t *testing.T) {
	for _, allowed := range []any{nil, "read", 7, []any{}, []any{"read", 7}, map[string]any{}} {
		w := skilled(t)
		w.say("do it")
		w.load("pdf", allowed)
		if got := w.offers(); got != "skills:load plan:execute" {
			t.Errorf("%v: offered are %q", allowed, got)
		}
	}
	w := skilled(t)
	w.say("do it")
	w.calls(executor.LoadSkill, `{}`)
	w.succeed("c0", `{"allowed_tools":["read"]}`)
	w.calls("read", `{}`)
	w.replied("c0", limiting("pdf", []string{"read"})) // of another tool
	if w.calls(executor.LoadSkill, `{}`); len(w.state.Turn.Skills) > 0 {
		t.Errorf("limited by %+v", w.state.Turn.Skills)
	}
	w.replied("c0", failed("no such skill"))
	if !strings.Contains(w.offers(), "write") {
		t.Errorf("offered are %q", w.offers())
	}
}

// A plugin that changes or withholds the result does not remove the limit.
func TestAPluginCannotLiftASkill(t *testing.T) {
	for _, verb := range []hook.Verb{hook.Replace, hook.DenyVerb} {
		w := skilled(t)
		w.on(hook.AfterAct, func(hook.Envelope) hook.Decision {
			b, _ := json.Marshal(hook.AfterActData{Result: tool.OK("changed")})
			return hook.Decision{Verb: verb, Data: b, Reason: "no"}
		})
		w.say("do it")
		w.load("pdf", []string{"read"})
		if strings.Contains(w.offers(), "write") {
			t.Errorf("%s: offered are %q", verb, w.offers())
		}
	}
}
