package planner_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/core/planner"
)

func TestReferences(t *testing.T) {
	for _, c := range []struct{ name, args, want string }{
		{"none", `{"x":"plain"}`, ""},
		{"one", `{"x":"${a.b}"}`, "a"},
		{"without a field", `{"x":"${a}"}`, "a"},
		{"several in a text, each once", `{"x":"${b} ${a.1.c} ${b.x}"}`, "b a"},
		{"deep", `{"x":[{"y":"${a.b}"},["${b}"]]}`, "a b"},
		{"unknown ids are text", `{"x":"${HOME} ${PATH}"}`, ""},
		{"keys are no references", `{"${a}":"x ${b}"}`, "b"},
		{"an escaped dollar is a dollar", `{"x":"\u0024{a} ${b}"}`, "a b"},
		{"no braces", `{"x":"$a $(a) {a}"}`, ""},
		{"unclosed", `{"x":"${a"}`, ""},
		{"empty", `{"x":"${} ${.a}"}`, ""},
		{"a trailing dot", `{"x":"${a.}"}`, ""},
		{"spaces", `{"x":"${ a }"}`, ""},
		{"nested braces: the inner one", `{"x":"${${a}}"}`, "a"},
		{"across strings", `{"x":"${a","y":"}"}`, ""},
		{"numbers as ids", `{"x":"${1.y}"}`, "1"},
		{"no JSON", `{"x":"${a}`, ""},
		{"a bare string", `"${a}"`, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := planner.References(json.RawMessage(c.args),
				func(id string) bool { return id == "a" || id == "b" || id == "1" })
			if strings.Join(got, " ") != c.want {
				t.Fatalf("%v, want %s", got, c.want)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	data := map[string]string{
		"a": `{"s":"text \"quoted\"","n":1.50,"big":123456789012345678901234567890,"nil":null,"t":true,"l":[10,{"k":"v"},[]],"":"empty","0":"zero","x-y_z":"dashed"}`,
		"l": `[1,"two"]`, "s": `"just ${a.s} text"`, "e": ``, "1": `{"x":"of step 1"}`, "h": `"<b>&"`,
	}
	value := func(id string) (json.RawMessage, bool) { v, ok := data[id]; return json.RawMessage(v), ok }
	for _, c := range []struct{ name, args, want, err string }{
		{"nothing to do: the bytes stay as they are", `{ "b" : 1, "a" : "x" }`, `{ "b" : 1, "a" : "x" }`, ""},
		{"text", `{"x":"${a.s}"}`, `{"x":"text \"quoted\""}`, ""},
		{"number as written", `{"x":"${a.n}","y":"${a.big}"}`, `{"x":1.50,"y":123456789012345678901234567890}`, ""},
		{"null and true", `["${a.nil}","${a.t}"]`, `[null,true]`, ""},
		{"object", `{"x":"${a.l.1}"}`, `{"x":{"k":"v"}}`, ""},
		{"everything", `{"x":"${l}"}`, `{"x":[1,"two"]}`, ""},
		{"index", `{"x":"${a.l.0} ${l.1}"}`, `{"x":"10 two"}`, ""},
		{"types inside text", `{"x":"${a.n}|${a.nil}|${a.t}|${a.l}"}`, `{"x":"1.50|null|true|[10,{\"k\":\"v\"},[]]"}`, ""},
		{"a field that looks like an index", `{"x":"${a.0}"}`, `{"x":"zero"}`, ""},
		{"dashes", `{"x":"${a.x-y_z}"}`, `{"x":"dashed"}`, ""},
		{"step 1", `{"x":"${1.x}"}`, `{"x":"of step 1"}`, ""},
		{
			"a value is not resolved again", `{"x":"${s}","y":"got ${s}"}`,
			`{"x":"just ${a.s} text","y":"got just ${a.s} text"}`, "",
		},
		{"nothing is null", `{"x":"${e}"}`, `{"x":null}`, ""},
		{"no HTML escapes", `{"x":"${h}","y":"<${h}>"}`, `{"x":"<b>&","y":"<<b>&>"}`, ""},
		{"unknown ids are text", `{"x":"${HOME}/bin"}`, `{"x":"${HOME}/bin"}`, ""},
		{"keys stay", `{"${a.s}":"${a.t}"}`, `{"${a.s}":true}`, ""},
		{"beside unknown ids", `{"x":"${HOME} ${a.t}"}`, `{"x":"${HOME} true"}`, ""},
		{"a bare string", `"${a.n}"`, `1.50`, ""},
		{"no field", `{"x":"${a.zz}"}`, "", `${a.zz}: the result of step "a" has no "zz"`},
		{"no element", `{"x":"${l.2}"}`, "", `has no "2"`},
		{"no element before the first", `{"x":"${l.-1}"}`, "", `has no "-1"`},
		{"a field of a number", `{"x":"${a.n.y}"}`, "", `has no "y"`},
		{"a field of null", `{"x":"in ${a.nil.y}"}`, "", `has no "y"`},
		{"every reason", `{"x":"${a.q} ${l.9}","y":"${a.r}"}`, "", `has no "q"` + "|" + `has no "9"` + "|" + `has no "r"`},
		{"no JSON", `{"x":"${a}`, "", "arguments are not JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := planner.Resolve(json.RawMessage(c.args), value)
			if c.err == "" {
				if err != nil || string(got) != c.want {
					t.Fatalf("%s, %v; want %s", got, err, c.want)
				}
				return
			}
			for _, want := range strings.Split(c.err, "|") {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
			if c.name != "no JSON" && !errors.Is(err, planner.ErrReference) {
				t.Errorf("%v is not an ErrReference", err)
			}
		})
	}
	t.Run("a result that is no JSON", func(t *testing.T) {
		_, err := planner.Resolve(json.RawMessage(`"${a}"`),
			func(string) (json.RawMessage, bool) { return json.RawMessage(`{`), true })
		if !errors.Is(err, planner.ErrReference) {
			t.Fatal(err)
		}
	})
}

// A short text may refer to a long result many times.
func TestWhatReferencesComeToIsBounded(t *testing.T) {
	long, err := json.Marshal(map[string]string{"x": strings.Repeat("x", 300<<10), "y": "y"})
	if err != nil {
		t.Fatal(err)
	}
	value := func(string) (json.RawMessage, bool) { return long, true }
	for name, args := range map[string]string{
		"in a text":   `{"x":"` + strings.Repeat("${a.x} ", 30_000) + `"}`,
		"as values":   `{"x":[` + strings.TrimSuffix(strings.Repeat(`"${a}",`, 30_000), ",") + `]}`,
		"four of 300": `["${a.x}","${a.x}","${a.x}","${a.x}"]`,
	} {
		got, err := planner.Resolve(json.RawMessage(args), value)
		if !errors.Is(err, planner.ErrReference) || !strings.Contains(err.Error(), "exceed 1048576 bytes") || got != nil {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if n := len(planner.Reasons(err)); n != 1 {
			t.Errorf("%s: said %d times", name, n)
		}
	}
	if got, err := planner.Resolve(json.RawMessage(`["${a.x}","${a.x}","${a.x}","`+strings.Repeat("${a.y}", 10_000)+`"]`),
		value); err != nil || len(got) < 900<<10 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Random arguments: Resolve looks up exactly the steps that References returns, and
// returns JSON. Resolving its result again, without steps, changes nothing.
func TestReferencesAndResolveAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	known := func(id string) bool { return id == "a" || id == "b" || id == "c" }
	found := 0
	for range 20_000 {
		args, err := json.Marshal(randomValue(r, 3))
		if err != nil {
			t.Fatal(err)
		}
		want := planner.References(args, known)
		found += len(want)
		var looked []string
		got, err := planner.Resolve(args, func(id string) (json.RawMessage, bool) {
			if !known(id) {
				return nil, false
			}
			if !slices.Contains(looked, id) {
				looked = append(looked, id)
			}
			return json.RawMessage(`{"f":["<x>",2]}`), true
		})
		slices.Sort(looked)
		slices.Sort(want)
		if !slices.Equal(looked, want) {
			t.Fatalf("%s: References names %v, Resolve looks up %v", args, want, looked)
		}
		if err != nil {
			if !errors.Is(err, planner.ErrReference) {
				t.Fatalf("%s: %v", args, err)
			}
			continue
		}
		if !json.Valid(got) {
			t.Fatalf("%s became %s", args, got)
		}
		if left := planner.References(got, known); len(left) > 0 {
			t.Fatalf("%s became %s, which still refers to %v", args, got, left)
		}
	}
	if found < 10_000 {
		t.Fatalf("only %d references were tried", found)
	}
}

func randomValue(r *rand.Rand, depth int) any {
	kind := r.IntN(8)
	if depth == 0 {
		kind = r.IntN(6)
	}
	switch kind {
	case 6:
		m := map[string]any{}
		for i := range r.IntN(4) {
			m[fmt.Sprint("k", i)] = randomValue(r, depth-1)
		}
		return m
	case 7:
		var l []any
		for range r.IntN(4) {
			l = append(l, randomValue(r, depth-1))
		}
		return l
	case 0:
		return r.IntN(100)
	}
	parts := []string{
		"${a}", "${a.f}", "${b.f.0}", "${c.f.1}", "${b.g}", "${z.f}", "$", "{", "}", "${", "text ", `\u0024{a}`, "<&>", "é",
		".", "${c.}",
	}
	var s strings.Builder
	for range 1 + r.IntN(3) {
		s.WriteString(parts[r.IntN(len(parts))])
	}
	return s.String()
}

func FuzzResolve(f *testing.F) {
	for _, s := range []string{
		`{"x":"${a.b}"}`, `"${a}"`, `{"x":"${a.b.0} ${HOME}"}`, `[1e999,"${a}"]`, "{\"x\":\"\xff${a}\"}",
	} {
		f.Add(s, `{"b":[1]}`)
	}
	f.Fuzz(func(t *testing.T, args, data string) {
		got, err := planner.Resolve(json.RawMessage(args),
			func(id string) (json.RawMessage, bool) { return json.RawMessage(data), id == "a" })
		if err == nil && json.Valid([]byte(args)) && !json.Valid(got) {
			t.Fatalf("%s became %s", args, got)
		}
	})
}
