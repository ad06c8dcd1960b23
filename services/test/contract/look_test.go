package contract

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/timeline"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	ui "skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/inspect"
	"skandha.dev/services/uibridge/request"
)

// desk accepts requests for all methods. Those that only read use a bus without a core: a
// request with valid parameters is answered unavailable, or not_found, and nothing else.
func desk(t *testing.T) *request.Desk {
	t.Helper()
	c, err := client.New(natstest.Connect(t, natstest.Start(t)), "ui-ann", natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	b := transporttest.New()
	for _, m := range inspect.Methods(inspect.Deps{Client: c, Log: natstest.Logger(t)}) {
		b.Add(m)
	}
	return request.NewDesk(b, natstest.Logger(t), "attach", "detach")
}

// Every method has a schema of its parameters, and every method that looks one of its
// answer; there are no others.
func TestEveryMethodHasItsSchemas(t *testing.T) {
	looks := slices.Sorted(maps.Keys(transporttest.Methods()))
	var own []string
	for _, m := range inspect.Methods(inspect.Deps{}) {
		own = append(own, m.Name)
		if right := transporttest.Methods()[m.Name]; right != m.Right {
			t.Errorf("%s needs the right to %q, transporttest says %q", m.Name, m.Right, right)
		}
	}
	if own = sorted(own); !slices.Equal(own, looks) {
		t.Errorf("package inspect has %v, transporttest says %v", own, looks)
	}
	below := func(dir string) (out []string) {
		for _, name := range files(t).names() {
			if m, ok := strings.CutPrefix(name, dir); ok {
				out = append(out, m)
			}
		}
		return sorted(out)
	}
	if all := desk(t).Names(); !slices.Equal(below("ui/methods/"), all) {
		t.Errorf("the handlers have %v, schemas/ui/methods %v", all, below("ui/methods/"))
	}
	if have := below("ui/results/"); !slices.Equal(have, looks) {
		t.Errorf("there look %v, schemas/ui/results has %v", looks, have)
	}
}

// Of methods that look, too, each parameter is read by its name, wanted where the
// schema requires it, and bounded as the schema says.
func TestParametersOfMethodsThatLook(t *testing.T) {
	c, d := files(t), desk(t)
	full := map[string]map[string]any{}
	for _, e := range examples(t, "valid") {
		if m, ok := strings.CutPrefix(e.schema, "ui/methods/"); ok {
			if v := decode(t, e.body).(map[string]any); full[m] == nil || len(v) > len(full[m]) {
				full[m] = v
			}
		}
	}
	for method := range transporttest.Methods() {
		n := c.node(t, "ui/methods/"+method)
		schema := c.schema(t, "ui/methods/"+method)
		props, _ := n.child("properties")
		// check calls the method with one parameter changed, and holds what it and the
		// schema say of it against each other.
		check := func(name string, v any, want bool) {
			t.Helper()
			params := maps.Clone(full[method])
			if params[name] = v; v == nil {
				delete(params, name)
			}
			b := mustJSON(t, params)
			if err := schema.Validate(decode(t, b)); (err == nil) != want {
				t.Errorf("%s %s: the schema says %v", method, b, err)
			}
			err := paramsOf(t, d, method, b)
			var e *ui.Error
			if want && err != nil ||
				!want &&
					(!errors.As(err, &e) || e.Code != ui.CodeInvalid || e.Field != name && !strings.HasPrefix(e.Field, name+".")) {
				t.Errorf("%s %.200s is answered %v, which names %+v", method, b, err, e)
			}
		}
		for name := range props.m {
			if full[method][name] == nil {
				t.Errorf("ui/methods/%s: no valid example has all parameters, such as %s", method, name)
			}
			check(name, nil, !slices.Contains(n.strings("required"), name))
			check(name, map[string]int{"nonsense": 1}, false)
			p, _ := props.child(name)
			if high, ok := p.int("maximum"); ok {
				low, _ := p.int("minimum")
				check(name, low-1, false)
				check(name, low, true)
				check(name, high, true)
				check(name, high+1, false)
			}
			if most, ok := p.int("maxLength"); ok && p.m["$ref"] == nil {
				check(name, strings.Repeat("x", int(most)), true)
				check(name, strings.Repeat("x", int(most)+1), false)
			}
			for _, v := range c.follow(t, p).strings("enum") {
				check(name, v, true)
				check(name, v+"s", false)
			}
		}
		if len(props.m) > 0 {
			var list []any
			for _, name := range positional(t, c, n) {
				list = append(list, full[method][name])
			}
			if err := paramsOf(t, d, method, mustJSON(t, list)); err != nil {
				t.Errorf("%s %v is answered %v", method, list, err)
			}
		}
	}
}

// A page holds as much as one may ask for, and a turn in a list and a waterfall end as
// the code says.
func TestAnswersAreBoundedAsTheirQuestions(t *testing.T) {
	c := files(t)
	for method, list := range map[string]string{"listSessions": "sessions", "listTurns": "turns"} {
		limit, _ := c.node(t, "ui/methods/"+method).child("properties", "limit")
		page, _ := node{m: c.docs[base+"ui/results/"+method+".json"]}.child("properties", list)
		most, ok := limit.int("maximum")
		if have, _ := page.int("maxItems"); !ok || have != most {
			t.Errorf("%s: one may ask for %d, and is answered with at most %d", method, most, have)
		}
		schema := c.schema(t, "ui/results/"+method)
		for _, e := range examples(t, "valid") {
			if e.schema != "ui/results/"+method || e.name != "page" {
				continue
			}
			v := decode(t, e.body).(map[string]any)
			row := v[list].([]any)[0]
			for n, ok := range map[int64]bool{most: true, most + 1: false} {
				v[list] = slices.Repeat([]any{row}, int(n))
				if err := schema.Validate(v); (err == nil) != ok {
					t.Errorf("%s with %d: %v", method, n, err)
				}
			}
		}
	}
	outcome, _ := c.node(t, "ui/results/listTurns").child("$defs", "turn", "properties", "outcome")
	either, _ := outcome.m["anyOf"].([]any)
	code := c.follow(t, node{outcome.doc, either[1].(map[string]any)})
	have := append(node{m: either[0].(map[string]any)}.strings("enum"), code.strings("enum")...)
	want := append([]string{
		timeline.OutcomeAnswered, timeline.OutcomeCommand, timeline.OutcomeRunning, timeline.OutcomeQueued,
	}, newComparer(t).enums["event.FailCode"]...)
	if !slices.Equal(sorted(have), sorted(want)) {
		t.Errorf("the schema's outcomes are %v, the code's %v", sorted(have), sorted(want))
	}
}

// consistentSpan gives a span the lane of its kind, and what its detail always has.
func consistentSpan(_ *filler, p any) {
	s := p.(*timeline.Span)
	d := &s.Detail
	switch s.Kind {
	case timeline.KindSense, timeline.KindQueue:
		s.Lane = timeline.LaneSense
	case timeline.KindPlan, timeline.KindAttempt:
		s.Lane, d.Attempt, d.Attempts, d.Provider = timeline.LanePlan, "n1", 1, "provider-1"
	case timeline.KindStep, timeline.KindWait, timeline.KindRun:
		s.Lane, d.Call = timeline.LaneAct, "t4-p1-c0"
	case timeline.KindConfirm:
		s.Lane, d.Call, d.Tool, d.Hash, d.ExpiresAt = timeline.LaneConfirm, "t4-p1-c0", "python:execute",
			"9b74c9897bac770ffc029102a200c5de", time.UnixMilli(1795249800000).UTC()
	case timeline.KindPolicy:
		s.Lane, d.Principal, d.Action, d.Effect = timeline.LaneConfirm, "ui-ada", event.ActionCall, event.EffectAllow
	case timeline.KindHook:
		s.Lane, d.Plugin, d.Point, d.Verb = timeline.LaneHook, "policy", hook.BeforeAct, hook.Continue
	case timeline.KindReflect, timeline.KindEnd:
		s.Lane = timeline.LaneReflect
	}
}
