package engine_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/services/core/planner"
	"skandha.dev/services/core/planner/engine"
)

// What the rules decide without a model, and what they leave to it.
func TestDecide(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // the calls; "?": a model is asked; "": neither
	}{
		{"read the file docs/a.md", `file_system:read_file {"path":"docs/a.md","limit":100}`},
		{"Please read a.txt, limit=5", `file_system:read_file {"path":"a.txt","limit":5}`},
		{"请读取文件 docs/a.md", `file_system:read_file {"path":"docs/a.md","limit":100}`},
		{"ファイル「予定.txt」を読んでください", `file_system:read_file {"path":"予定.txt","limit":100}`},
		{"fetch https://example.org within 2 seconds", `?`}, // "within" and "seconds" have no meaning for it
		{"fetch https://example.org", `http:fetch {"url":"https://example.org","method":"GET"}`},
		{`send a mail to ann@example.org, subject="Hi"`, `mail:send {"to":"ann@example.org","subject":"Hi","urgent":false}`},
		{"send a mail to ann@example.org", `?`},                                 // its subject is open
		{`send a mail to ann@example.org and bob@example.org, subject=Hi`, `?`}, // two recipients
		{"fetch https://example.org and summarize it", `?`},
		{"read a.txt; fetch https://example.org", `plan:execute {"steps":[
			{"id":"1","tool":"file_system:read_file","params":{"path":"a.txt","limit":100}},
			{"id":"2","tool":"http:fetch","params":{"url":"https://example.org","method":"GET"},"depends_on":["1"]}]}`},
		{"read a.txt, then fetch it", `?`},
		{"don't read the file a.txt", `?`},
		{"Don’t read the file a.txt", `?`},
		{"how do I read the file a.txt?", `?`},
		{"read the file a.txt if you can", `?`},
		{"不要读取文件 a.txt", `?`},
		{"ファイル「a.txt」を読まないで", `?`},
		{"delete the file a.txt", `?`},
		{"hello", ""},
		{"", ""},
	} {
		out := engine.Decide(request(c.text))
		switch {
		case out.Selection != nil:
			call := out.Selection.Call()
			tool, args, _ := strings.Cut(c.want, " ")
			if call.Tool != tool || out.Selection.By != event.ByRules {
				t.Errorf("%q: %s %s, want %s", c.text, call.Tool, call.Args, c.want)
				continue
			}
			same(t, c.text, call.Args, args)
		case out.Question != nil:
			if c.want != "?" || !slices.Contains(out.Question.Tools, out.Candidates[0].Tool) {
				t.Errorf("%q: the model is asked, because %s; want %s", c.text, out.Reasoning, c.want)
			}
		case c.want != "":
			t.Errorf("%q: nothing, because %s; want %s", c.text, out.Reasoning, c.want)
		}
		if out.Reasoning == "" || out.Clarify != "" || len(out.Candidates) > event.MaxCandidates {
			t.Errorf("%q: %+v", c.text, out)
		}
	}
}

func TestNothingToChooseFrom(t *testing.T) {
	r := request("read a.txt")
	r.Tools = nil
	if out := engine.Decide(r); out.Selection != nil || out.Question != nil || out.Clarify != "" {
		t.Fatalf("%+v", out)
	}
}

func TestAScenarioHidesNoToolThatFitsBetter(t *testing.T) {
	// "open" and "folder" say file_management, whose tool has no word in common with it.
	out := engine.Decide(request("open folder: fetches a web page"))
	if out.Scenario != "file_management" || out.Candidates[0].Tool != "http:fetch" {
		t.Fatalf("%+v", out)
	}
}

func TestTheQuestionHasWhatTheModelNeeds(t *testing.T) {
	r := request("send a mail to ann@example.org " + strings.Repeat("long ", 10_000))
	r.Before = []string{"user: hi", "assistant: hello"}
	q := engine.Decide(r).Question
	for _, want := range []string{
		"user: hi\nassistant: hello\n", "Request:\nsend a mail", "- mail:send: Sends a mail", `"to":"ann@example.org"`,
		"parameters: {",
	} {
		if !strings.Contains(q.User, want) {
			t.Errorf("%q is missing in %.2000s", want, q.User)
		}
	}
	var schema map[string]any
	if len(q.User) > 64<<10 || json.Unmarshal(q.Schema, &schema) != nil || schema["type"] != "object" {
		t.Fatalf("%d bytes, %s", len(q.User), q.Schema)
	}
}

// answered returns the outcome of a model's answer to the question about a request.
func answered(t *testing.T, text, answer string, last bool) engine.Outcome {
	t.Helper()
	r := request(text)
	q := engine.Decide(r).Question
	if q == nil {
		t.Fatalf("%q needs no model", text)
	}
	return engine.Conclude(r, *q, answer, last)
}

const ask = "send a mail to Ann"

func TestConclude(t *testing.T) {
	good := `{"scenario":"communication","intent":{"action":"send","object":"a mail"},"steps":[{"id":"1","tool":"mail:send",` +
		`"parameters":{"to":"ann@example.org","subject":"Hi"}}],"ask":"","confidence":0.9,"reasoning":"a mail"}`
	for name, c := range map[string]struct {
		answer string
		want   string // the call's arguments, "ask: …", or "" for none
	}{
		"plain":              {good, `{"to":"ann@example.org","subject":"Hi","urgent":false}`},
		"fenced":             {"```json\n" + good + "\n```", `{"to":"ann@example.org","subject":"Hi","urgent":false}`},
		"with words around":  {"Sure! {as asked}\n" + good + "\nDone.", `{"to":"ann@example.org","subject":"Hi","urgent":false}`},
		"it asks the person": {`{"steps":[],"ask":"What is the subject?","confidence":0.4}`, "ask: What is the subject?"},
		"asking comes first": {strings.Replace(good, `"ask":""`, `"ask":"Which Ann?"`, 1), "ask: Which Ann?"},
		"no tool helps":      {`{"steps":[],"ask":"","confidence":1,"reasoning":"small talk"}`, ""},
		"an unknown scenario is none": {
			strings.Replace(good, "communication", "gossip", 1), `{"to":"ann@example.org","subject":"Hi","urgent":false}`,
		},
		"numbers as ids": {strings.Replace(good, `"id":"1"`, `"id":7`, 1), `{"to":"ann@example.org","subject":"Hi","urgent":false}`},
	} {
		out := answered(t, ask, c.answer, false)
		switch want, asks := strings.CutPrefix(c.want, "ask: "); {
		case asks || want == "":
			if out.Clarify != want || out.Selection != nil || out.Question != nil {
				t.Errorf("%s: %+v", name, out)
			}
		case out.Selection == nil:
			t.Errorf("%s: %+v", name, out)
		default:
			call := out.Selection.Call()
			same(t, name, call.Args, c.want)
			if call.Tool != "mail:send" || out.Selection.By != event.ByModel || out.Selection.Confidence != 0.9 {
				t.Errorf("%s: %+v", name, out.Selection)
			}
		}
	}
}

// Answers that cannot be used: the model sees why, once; then the person is asked, or the model
// answers without the engine.
func TestRepair(t *testing.T) {
	steps := func(s string) string { return `{"steps":[` + s + `],"confidence":0.9}` }
	for name, c := range map[string]struct{ answer, wrong, then string }{
		"empty":           {"", "no complete JSON object", ""},
		"prose":           {"I would send a mail.", "no complete JSON object", ""},
		"half a JSON":     {`{"steps":[{"tool":"mail:send","parameters":{"to":"ann@ex`, "no complete JSON object", ""},
		"an array":        {`[1,2]`, "no complete JSON object", ""},
		"braces":          {strings.Repeat("{", 1<<16), "no complete JSON object", ""},
		"1 MB":            {`{"reasoning":"` + strings.Repeat("x", 1<<20) + `"}`, "at most", ""},
		"wrong types":     {`{"steps":"mail:send","confidence":0.9}`, "steps", ""},
		"a wrong number":  {`{"steps":[],"confidence":"high"}`, "confidence", ""},
		"no confidence":   {`{"steps":[]}`, "confidence is missing", ""},
		"too confident":   {`{"steps":[],"confidence":7}`, "want 0 to 1", ""},
		"an unknown tool": {steps(`{"tool":"rm","parameters":{}}`), `steps[0].tool is "rm", want one of`, ""},
		"a tool of Object": {
			steps(`{"tool":"__proto__","parameters":{}}`), `steps[0].tool is "__proto__"`, "",
		},
		"a prototype as an argument": {
			steps(`{"tool":"mail:send","parameters":{"to":"a@b.c","subject":"x","__proto__":{"to":1},"constructor":1}}`),
			"__proto__", "I could not work out how to use mail:send",
		},
		"arguments as text": {steps(`{"tool":"mail:send","parameters":"to ann"}`), "parameters is not an object", ""},
		"no arguments": {
			steps(`{"tool":"mail:send"}`), "steps[0].parameters: ", "mail:send I need one more thing: to (address of the recipient), subject",
		},
		"one is open": {
			steps(`{"tool":"mail:send","parameters":{"to":"ann@example.org"}}`), "subject", "subject (the subject line)",
		},
		"one is null": {
			steps(`{"tool":"mail:send","parameters":{"to":"ann@example.org","subject":null}}`), "subject", "subject (the subject line)",
		},
		"a wrong argument": {
			steps(`{"tool":"mail:send","parameters":{"to":7,"subject":"x"}}`), "to", "I could not work out how to use mail:send",
		},
		"unsure": {
			`{"steps":[{"tool":"mail:send","parameters":{"to":"a@b.c","subject":"x"}}],"confidence":0.2}`,
			"confidence is 0.2, below 0.7", "Should I use mail:send?",
		},
		"a cycle": {steps(`{"id":"a","tool":"time:now","depends_on":["b"]},{"id":"b","tool":"time:now","depends_on":["a"]}`), "cyclic", ""},
		"itself":  {steps(`{"id":"a","tool":"time:now","parameters":{"timezone":"${a.x}"}}`), "depends on itself", ""},
		"too many": {
			steps(strings.TrimSuffix(strings.Repeat(`{"tool":"time:now"},`, 17), ",")), "17 entries, at most 16", "",
		},
		"the same id twice": {steps(`{"id":"a","tool":"time:now"},{"id":"a","tool":"time:now"}`), "duplicate", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(ask + " now in a timezone")
			q := engine.Decide(r).Question
			out := engine.Conclude(r, *q, c.answer, false)
			if out.Question == nil || out.Selection != nil || out.Clarify != "" {
				t.Fatalf("%+v", out)
			}
			_, wrong, _ := strings.Cut(out.Question.User, "What is wrong with it:")
			if !strings.Contains(wrong, c.wrong) || len(out.Question.User) > len(q.User)+8<<10 {
				t.Errorf("the model sees %q, want %q", wrong, c.wrong)
			}
			out = engine.Conclude(r, *out.Question, c.answer, true)
			if out.Question != nil || out.Selection != nil || out.Reasoning == "" ||
				!strings.Contains(out.Clarify, c.then) || c.then == "" && out.Clarify != "" {
				t.Errorf("at the end %+v, want %q", out, c.then)
			}
		})
	}
}

func TestSeveralStepsBecomeAPlan(t *testing.T) {
	out := answered(t, "fetch https://example.org and mail it to ann@example.org", `{"confidence":0.9,"steps":[
		{"id":"page","tool":"http:fetch","parameters":{"url":"https://example.org"}},
		{"id":2,"tool":"mail:send","parameters":{"to":"ann@example.org","subject":"${page.title}"}}]}`, false)
	if out.Selection == nil {
		t.Fatalf("%+v", out)
	}
	call := out.Selection.Call()
	plan, err := planner.Parse(call.Args)
	if err != nil || call.Tool != planner.ExecuteName || len(plan.Steps) != 2 ||
		!slices.Equal(plan.Steps[1].DependsOn, []string{"page"}) {
		t.Fatalf("%v, %+v", err, plan)
	}
	same(t, "defaults of the first step", plan.Steps[0].Params, `{"url":"https://example.org","method":"GET"}`)
	if !slices.Equal(out.Selection.Tools(), []string{"http:fetch", "mail:send"}) {
		t.Fatal(out.Selection.Tools())
	}
}

func TestThePersonIsAskedInTheirLanguage(t *testing.T) {
	for text, want := range map[string]string{
		"send a mail": "To use mail:send I need", "发送 mail": "要使用 mail:send", "mail を送って": "mail:send を使うには",
	} {
		out := answered(t, text, `{"steps":[{"tool":"mail:send"}],"confidence":1}`, true)
		if !strings.HasPrefix(out.Clarify, want) {
			t.Errorf("%q: %q", text, out.Clarify)
		}
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add("```json\n{\"steps\":[{\"tool\":\"a\"}],\"confidence\":1}\n```")
	f.Add(`{"steps":[{"tool":"b","parameters":{"x":"${1.y}"},"depends_on":[1]}],"ask":"?","confidence":0}`)
	f.Fuzz(func(t *testing.T, answer string) {
		r := request(ask)
		q := engine.Question{Tools: []string{"mail:send", "http:fetch"}}
		out := engine.Conclude(r, q, answer, false)
		if s := out.Selection; s != nil {
			for _, st := range s.Steps {
				if !slices.Contains(q.Tools, st.Tool) {
					t.Fatalf("%q selects %q", answer, st.Tool)
				}
			}
			if _, err := planner.Parse(s.Call().Args); len(s.Steps) > 1 && err != nil {
				t.Fatal(err)
			}
		}
		if last := engine.Conclude(r, q, answer, true); last.Question != nil {
			t.Fatal("there is no end of it")
		}
	})
}
