package decide_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
)

// plan lets the model call plan:execute.
func (w *world) plan(args string) {
	w.t.Helper()
	w.calls("plan:execute", args)
}

// assigned lists the calls that are assigned to runners, by the suffixes of their ids.
func (w *world) assigned() string {
	var out []string
	for _, st := range w.state.Assigned() {
		out = append(out, st.Call[strings.Index(st.Call, "-c")+1:])
	}
	return strings.Join(out, " ")
}

func (w *world) runs(want string) {
	w.t.Helper()
	if got := w.assigned(); got != want {
		w.fail("%q run, want %q", got, want)
	}
}

func TestStepsRunWhenWhatTheyDependOnHasSucceeded(t *testing.T) {
	w := newWorld(t)
	in := w.say("x")
	w.plan(`{"steps":[
		{"id":"a","tool":"read"},
		{"id":"b","tool":"read"},
		{"id":"c","tool":"read","depends_on":["a","b"]},
		{"id":"d","tool":"read","depends_on":["a"]},
		{"id":"e","tool":"read","depends_on":["c","d"]}]}`)
	w.runs("c0-s0 c0-s1") // steps without dependencies run at the same time
	w.succeed("c0-s0", `1`)
	w.runs("c0-s1 c0-s3")
	w.succeed("c0-s1", `2`)
	w.runs("c0-s2 c0-s3")
	w.succeed("c0-s3", `3`)
	w.succeed("c0-s2", `4`)
	w.runs("c0-s4")
	w.succeed("c0-s4", `5`)
	want := `{"steps":{"a":{"tool":"read","success":true,"data":1},"b":{"tool":"read","success":true,"data":2},` +
		`"c":{"tool":"read","success":true,"data":4},"d":{"tool":"read","success":true,"data":3},"e":{"tool":"read","success":true,"data":5}}}`
	if r := w.resultOf("c0"); !r.Success || string(r.Data) != want {
		t.Fatalf("%s", r.Data)
	}
	if m := w.said(); m[len(m)-1].Text != want || m[len(m)-1].CallID != "c0" {
		t.Fatalf("the model sees %+v", m[len(m)-1])
	}
	w.final("done")
	w.ends(in.Sequence, "recorded")
	if n := len(events[event.Recorded](w)[0].Actions); n != 6 {
		t.Fatalf("%d actions are recorded", n)
	}
}

func TestReferencesStandForResults(t *testing.T) {
	data := `{"text":"hi <b>","n":12345678901234567890,"f":1.50,"list":[{"n":7},[8,9]],"nil":null,"yes":true,"obj":{"k":"v"}}`
	for _, c := range []struct{ name, params, want string }{
		{"a field, with its type", `{"text":"t","n":"${a.n}"}`, `{"n":12345678901234567890,"text":"t"}`},
		{"a number as it was written", `{"text":"t","n":"${a.f}"}`, `{"n":1.50,"text":"t"}`},
		{"a boolean", `{"text":"t","n":"${a.yes}"}`, `{"n":true,"text":"t"}`},
		{"null", `{"text":"t","n":"${a.nil}"}`, `{"n":null,"text":"t"}`},
		{"an object", `{"text":"t","n":"${a.obj}"}`, `{"n":{"k":"v"},"text":"t"}`},
		{"everything", `{"text":"t","n":"${a}"}`, ""},
		{"a nested field", `{"text":"${a.obj.k}"}`, `{"text":"v"}`},
		{"an element", `{"text":"t","n":"${a.list.0.n}"}`, `{"n":7,"text":"t"}`},
		{"an element of an element", `{"text":"t","n":"${a.list.1.1}"}`, `{"n":9,"text":"t"}`},
		{
			"inside a text", `{"text":"got ${a.text} and ${a.n}, ${a.obj}"}`,
			`{"text":"got hi \u003cb\u003e and 12345678901234567890, {\"k\":\"v\"}"}`,
		},
		{"deep inside", `{"text":"t","n":[{"x":["${a.text}"]}]}`, `{"n":[{"x":["hi \u003cb\u003e"]}],"text":"t"}`},
		{"no step", `{"text":"${HOME} ${b.x}"}`, `{"text":"${HOME} ${b.x}"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.say("x")
			w.plan(`{"steps":[{"id":"a","tool":"read"},{"id":"z","tool":"write","params":` + c.params + `}]}`)
			if strings.Contains(c.params, "${a") {
				w.runs("c0-s0") // a reference is a dependency
			}
			w.succeed("c0-s0", data)
			if got := string(w.step("c0-s1").Final); c.want != "" && got != c.want {
				t.Fatalf("it runs with %s, want %s", got, c.want)
			}
			w.runs("c0-s1")
		})
	}
}

func TestReferencesThatCannotBeResolved(t *testing.T) {
	for _, c := range []struct{ name, data, ref string }{
		{"no such field", `{"a":1}`, "${a.b}"},
		{"no such element", `[1]`, "${a.1}"},
		{"a negative index", `[1]`, "${a.-1}"},
		{"no index", `[1]`, "${a.first}"},
		{"a field of a text", `"x"`, "${a.b}"},
		{"a field of nothing", ``, "${a.b}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.say("x")
			w.plan(`{"steps":[{"id":"a","tool":"read"},{"id":"b","tool":"write","params":{"text":"x ` + c.ref + `"}}]}`)
			w.succeed("c0-s0", c.data)
			w.codes(map[string]tool.Code{"c0-s1": tool.CodeInvalidArgs, "c0": tool.CodeFailed})
		})
	}
	t.Run("or whose value does not fit", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		w.plan(`{"steps":[{"id":"a","tool":"read"},{"id":"b","tool":"write","params":{"text":"${a}"}}]}`)
		w.succeed("c0-s0", `7`)
		w.codes(map[string]tool.Code{"c0-s1": tool.CodeInvalidArgs})
	})
}

// A result is data: a reference in it is not resolved.
func TestAResultCannotRefer(t *testing.T) {
	w := newWorld(t)
	w.say("x")
	w.plan(`{"steps":[{"id":"a","tool":"read"},{"id":"b","tool":"read"},
		{"id":"c","tool":"write","params":{"text":"${a} ${b.x}"}},{"id":"d","tool":"write","params":{"text":"${a}","n":"${b.x}"}}]}`)
	w.succeed("c0-s0", `"${b.secret}"`)
	w.succeed("c0-s1", `{"secret":"s3cret","x":"${a}"}`)
	if got := string(w.step("c0-s2").Final); got != `{"text":"${b.secret} ${a}"}` {
		t.Fatal(got)
	}
	if got := string(w.step("c0-s3").Final); got != `{"n":"${a}","text":"${b.secret}"}` {
		t.Fatal(got)
	}
}

func TestAPlanMayReferToCallsBesideIt(t *testing.T) {
	w := newWorld(t)
	w.say("x")
	w.answer(provider.Response{ToolCalls: []provider.ToolCall{
		{ID: "first", Tool: "read", Args: json.RawMessage(`{}`)},
		{ID: "a", Tool: "read", Args: json.RawMessage(`{}`)},
		{ID: "p", Tool: "plan:execute", Args: json.RawMessage(
			`{"steps":[{"id":"a","tool":"read"},{"id":"b","tool":"write","params":{"text":"${first.x} ${a.x}"}}]}`)},
	}})
	w.runs("c0 c1") // the plan waits for the calls that it refers to
	w.succeed("c1", `{"x":"of the other a"}`)
	w.runs("c0")
	w.succeed("c0", `{"x":"1"}`)
	w.runs("c2-s0")
	w.succeed("c2-s0", `{"x":"of the plan's own a"}`)
	if got := string(w.step("c2-s1").Final); got != `{"text":"1 of the plan's own a"}` {
		t.Fatal(got)
	}
}

func TestStepsWhoseDependenciesFailAreSkipped(t *testing.T) {
	w := newWorld(t)
	in := w.say("x")
	w.plan(`{"steps":[
		{"id":"a","tool":"read"},
		{"id":"b","tool":"read","depends_on":["a"]},
		{"id":"c","tool":"write","params":{"text":"${b.x}"}},
		{"id":"d","tool":"read"}]}`)
	w.result("c0-s0", tool.Failure(tool.CodeFailed, "broken"))
	w.codes(map[string]tool.Code{"c0-s0": tool.CodeFailed, "c0-s1": tool.CodeSkipped, "c0-s2": tool.CodeSkipped})
	w.runs("c0-s3") // steps that do not depend on it continue
	w.succeed("c0-s3", `1`)
	w.codes(map[string]tool.Code{"c0": tool.CodeFailed})
	if r := w.resultOf("c0"); r.Error.Message != "3 of 4 steps did not succeed" ||
		!strings.Contains(string(r.Data), `"d":{"tool":"read","success":true,"data":1}`) {
		t.Fatalf("%s %s", r.Error.Message, r.Data)
	}
	w.final("well")
	w.ends(in.Sequence, "recorded")
}

func TestStopOnFailure(t *testing.T) {
	w := newWorld(t)
	w.say("x")
	w.plan(`{"stop_on_failure":true,"steps":[{"id":"a","tool":"read"},{"id":"b","tool":"write","params":{"text":"x"}},
		{"id":"c","tool":"read","depends_on":["b"]},{"id":"d","tool":"mail:send","params":{"to":"x"}}]}`)
	w.result("c0-s0", tool.Failure(tool.CodeFailed, "broken"))
	w.runs("c0-s1") // steps that have begun continue
	w.succeed("c0-s1", `1`)
	w.codes(map[string]tool.Code{"c0-s2": tool.CodeSkipped})
	if w.status("c0-s3") != decide.Confirming {
		t.Fatal("a request that a person sees was withdrawn")
	}
}

func TestPlansThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, args string
		want       []string
	}{
		{
			"unknown dependency", `{"steps":[{"id":"a","tool":"read","depends_on":["z"]}]}`,
			[]string{`unknown dependency: step "a" depends on "z"`},
		},
		{
			"self dependency", `{"steps":[{"id":"a","tool":"read","depends_on":["a"]}]}`,
			[]string{`step depends on itself: "a"`},
		},
		{
			"self reference", `{"steps":[{"id":"a","tool":"write","params":{"text":"${a.x}"}}]}`,
			[]string{`step depends on itself: "a"`},
		},
		{
			"cycle", `{"steps":[{"id":"a","tool":"read","depends_on":["b"]},{"id":"b","tool":"read","depends_on":["a"]}]}`,
			[]string{`cyclic dependency: among steps "a", "b"`},
		},
		{"duplicate id", `{"steps":[{"id":1,"tool":"read"},{"id":"1","tool":"read"}]}`, []string{`duplicate step id: "1"`}},
		{"no steps", `{"steps":[]}`, []string{"plan has no steps"}},
		{
			"malformed", `{"steps":7}`,
			[]string{"plan is malformed: json: cannot unmarshal number into Go struct field .steps of type []struct"},
		},
		{"unknown tool", `{"steps":[{"id":"a","tool":"nonsense"}]}`, []string{`step "a": tool "nonsense" was not offered`}},
		{"internal tool", `{"steps":[{"id":"a","tool":"internal"}]}`, []string{`step "a": tool "internal" was not offered`}},
		{
			"plan in a plan", `{"steps":[{"id":"a","tool":"plan:execute"}]}`,
			[]string{`step "a": a plan cannot contain plan:execute`},
		},
		{
			"arguments", `{"steps":[{"id":"a","tool":"write","params":{"txet":1}}]}`,
			[]string{`step "a": the arguments do not match the tool's schema`},
		},
		{
			"every reason at once",
			`{"steps":[{"id":"a","tool":"nonsense","depends_on":["a","z"]},{"id":"a","tool":"plan:execute"}]}`,
			[]string{
				`duplicate step id: "a"`, `step depends on itself: "a"`, `unknown dependency: step "a" depends on "z"`,
				`tool "nonsense" was not offered`, "cannot contain plan:execute",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			in := w.say("x")
			w.plan(c.args)
			r := w.resultOf("c0")
			if r.Success || r.Error.Code != tool.CodeInvalidPlan {
				t.Fatalf("%+v", r)
			}
			all := strings.Join(r.Error.Details, "\n")
			for _, want := range c.want {
				if !strings.Contains(all, want) {
					t.Errorf("no %q in\n%s", want, all)
				}
			}
			w.final("sorry")
			w.ends(in.Sequence, "recorded")
		})
	}
}

func TestCallsOfOneAnswer(t *testing.T) {
	call := func(id, name, args string, deps ...string) provider.ToolCall {
		return provider.ToolCall{ID: id, Tool: name, Args: json.RawMessage(args), DependsOn: deps}
	}
	t.Run("run at once, or in their order", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		w.answer(provider.Response{ToolCalls: []provider.ToolCall{
			call("a", "read", `{}`), call("b", "write", `{"text":"${a.text}"}`), call("c", "read", `{}`, "b"),
			call("d", "read", `{}`),
		}})
		w.runs("c0 c3")
		w.succeed("c0", `{"text":"hi"}`)
		w.runs("c1 c3")
		w.result("c1", tool.Failure(tool.CodeFailed, "broken"))
		w.succeed("c3", `4`)
		var results []string
		for _, m := range w.said()[2:] {
			results = append(results, fmt.Sprint(m.CallID, " ", m.Failed))
		}
		if got := strings.Join(results, ", "); got != "a false, b true, c true, d false" {
			t.Fatalf("results reach the model as %s", got)
		}
		w.codes(map[string]tool.Code{"c2": tool.CodeSkipped})
	})
	t.Run("an impossible order refuses them all", func(t *testing.T) {
		for name, cs := range map[string][]provider.ToolCall{
			"cycle":   {call("a", "read", `{}`, "b"), call("b", "read", `{}`, "a")},
			"self":    {call("a", "read", `{}`, "a"), call("b", "read", `{}`)},
			"unknown": {call("a", "read", `{}`, "z"), call("b", "read", `{}`)},
		} {
			w := newWorld(t)
			w.say(name)
			w.answer(provider.Response{ToolCalls: cs})
			w.codes(map[string]tool.Code{"c0": tool.CodeInvalidPlan, "c1": tool.CodeInvalidPlan})
		}
	})
	t.Run("every call gets a unique id", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		w.answer(provider.Response{ToolCalls: []provider.ToolCall{
			call("", "read", `{}`), call("call_0", "read", `{}`), call("call_0", "read", `{}`), call("", "read", `{}`),
			call("call_1", "read", `{}`),
		}})
		var ids []string
		for _, st := range w.state.Turn.Steps {
			ids = append(ids, st.CallID)
		}
		if ids[1] != "call_0" || ids[4] != "call_1" || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 5 {
			t.Fatalf("%v", ids)
		}
		w.runs("c0 c1 c2 c3 c4")
	})
	t.Run("absent arguments are none", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		w.answer(provider.Response{ToolCalls: []provider.ToolCall{{ID: "a", Tool: "read"}}})
		if got := string(w.step("c0").Final); got != `{"limit":10}` {
			t.Fatal(got)
		}
	})
}
