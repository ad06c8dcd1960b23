package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/registrar"
	"skandha.dev/services/internal/coreapi"
	view "skandha.dev/services/internal/registry"
	"skandha.dev/services/skandha/conformance"
)

// some are two plugins, one of which waits.
func some() []registrar.PluginInfo {
	long := time.Now().Add(-9*time.Hour - 30*time.Minute)
	return []registrar.PluginInfo{
		{
			Name: "no-secrets", Version: "1.0.0", Description: "Keeps secrets.\x1b[31m", Hash: "0123456789abcdef",
			State:      plugin.Active,
			Registered: long, Priority: 5,
			Instances: []view.Lease{{Instance: "py-1", Since: long}, {Instance: "py-2", Since: long, Draining: true}},
			Hooks:     []plugin.Hook{{Point: hook.BeforeAct, DeadlineMS: 500}, {Point: hook.AfterSense, OnError: hook.Deny}},
		},
		{
			Name: "house", Version: "0.3.1-beta.2+linux", Hash: "0123456789abcdef", State: plugin.Waiting,
			Reason:     "plugin gate is not registered",
			Registered: long, Dependencies: []subject.Plugin{"gate"}, RunAfter: []subject.Plugin{"no-secrets"},
			Hooks:     []plugin.Hook{{Point: hook.BeforeAct}},
			Tools:     []tool.Spec{{Name: "house:rooms", Description: "Lists the rooms of a floor."}},
			Storage:   &plugin.Storage{Verbs: []plugin.StorageVerb{plugin.Put, plugin.Get}},
			Listeners: []plugin.Listener{{Name: "bell"}},
			Guides:    []string{"butler"}, Why: []string{"after no-secrets: run_after of house names no-secrets"},
		},
		{Name: "old", Version: "1.0.0", Hash: "00", State: plugin.Gone},
	}
}

// fits fails for lines that do not fit into a terminal, and for what would move its cursor.
func fits(t *testing.T, out string) {
	t.Helper()
	for l := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimRight(l, "\n")); n > 80 {
			t.Errorf("a line has %d columns: %s", n, l)
		}
	}
	if strings.ContainsRune(out, '\x1b') {
		t.Errorf("an escape sequence reaches the terminal: %q", out)
	}
}

func equal(t *testing.T, got, want string) {
	t.Helper()
	fits(t, got)
	same(t, got, want)
}

func same(t *testing.T, got, want string) {
	t.Helper()
	if got = strings.TrimSpace(got); got != strings.TrimSpace(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestPluginsAreListed(t *testing.T) {
	var out strings.Builder
	if err := printPlugins(&out, some()); err != nil {
		t.Fatal(err)
	}
	equal(t, out.String(), `
PLUGIN      VERSION       STATE    REPLICAS  DECLARES
no-secrets  1.0.0         active   2         2 hooks
house       0.3.1-beta.…  waiting  0         1 hook, 1 tool, 1 listener, 1 gu…
old         1.0.0         gone     0         nothing
house is waiting: plugin gate is not registered`)
}

func TestGuidesThatCouldNotBeLoadedAreListed(t *testing.T) {
	var out strings.Builder
	printGuides(&out, []coreapi.GuideTrouble{
		{Agent: "main", Guide: "kind", Required: true, Reason: "no active plugin declares it"},
		{Agent: "main", Guide: "style", Stale: true, Required: true, Reason: "its prompt\x1b is empty"},
		{Agent: "other", Guide: "style", Reason: "its prompt is empty"},
	})
	equal(t, out.String(), `
! guide "kind" of agent main: no active plugin declares it
  the agent does not answer without it
! guide "style" of agent main: its prompt� is empty
  the agent uses the previous version
! guide "style" of agent other: its prompt is empty
  the agent answers without it`)
}

func TestNoPluginsSaysHowToBegin(t *testing.T) {
	var out strings.Builder
	if err := printPlugins(&out, nil); err != nil || !strings.Contains(out.String(), "skandha plugins new --lang") {
		t.Errorf("%v, %s", err, out.String())
	}
}

func TestOnePluginIsShown(t *testing.T) {
	var out strings.Builder
	for _, p := range some()[:2] {
		printPlugin(&out, styles{}, p)
	}
	equal(t, out.String(), `
no-secrets 1.0.0  active
Keeps secrets.�[31m
registered 9 h ago, priority 5, manifest 0123456789ab
  replica   py-1, since 9 h ago
  replica   py-2, since 9 h ago, draining
  hook      before_act      chain, 500 ms, on error deny
  hook      after_sense     parallel, 2000 ms, on error deny
house 0.3.1-beta.2+linux  waiting: plugin gate is not registered
registered 9 h ago, priority 0, manifest 0123456789ab
depends on gate
runs after no-secrets
  hook      before_act      chain, 2000 ms, on error deny
  tool      house:rooms  Lists the rooms of a floor.
  storage   put, get
  listener  bell  
  guide     butler
reasons for its place in the order
  after no-secrets: run_after of house names no-secrets`)
}

func TestTheOrderIsExplained(t *testing.T) {
	var out strings.Builder
	printOrder(&out, styles{}, place(some(), hook.BeforeAct), "before_act")
	printOrder(&out, styles{}, place(some(), hook.AfterSense), "after_sense")
	printOrder(&out, styles{}, place(some(), hook.OnError), "on_error")
	equal(t, strings.ReplaceAll(out.String(), "unless configured otherwise; their answers are combined", "…"), `
 1. no-secrets
      no dependency puts it after others, priority 5
 2. house  waiting: plugin gate is not registered
      after no-secrets: run_after of house names no-secrets
 1. no-secrets
      no dependency puts it after others, priority 5
after_sense asks all plugins at once … in this order.
No plugin has a hook at on_error.`[1:])
	if n := len(place(some(), "")); n != 2 {
		t.Errorf("of the plugins that are there %d are in the order, want 2", n)
	}
}

func TestHooksAreShown(t *testing.T) {
	var out strings.Builder
	err := printHooks(&out, coreapi.HooksInfo{Instance: "core-1", Points: []coreapi.PointInfo{
		{Point: hook.BeforePlan, Mode: hook.Chain, BudgetMS: 10_000, Plugins: []coreapi.HookInfo{}},
		{Point: hook.BeforeAct, Mode: hook.Chain, BudgetMS: 10_000, Plugins: []coreapi.HookInfo{
			{
				Plugin: "no-secrets", Mode: hook.Chain, OnError: hook.Deny, OnSilence: hook.Allow, DeadlineMS: 500, Asked: 12345,
				Failed: 2, P50US: 420, P99US: 61_000, LastError: "no answer",
			},
			{
				Plugin: "house", Mode: hook.Chain, OnError: hook.Deny, OnSilence: hook.Deny, Judge: true, DeadlineMS: 2000,
				Unasked: "it is suspended by operator: x",
			},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, out.String(), `
POINT, PLUGIN  MODE   WITHIN  ON ERROR  ON SILENCE  ASKED  FAILED  P50     P99
before_plan    chain  10 s
before_act     chain  10 s
  no-secrets   chain  500 ms  deny      allow       12345  2       420 µs  61 ms
  house        judge  2 s     deny      deny        0      0       –       –
before_act: last error of no-secrets: no answer
before_act: house is not asked: it is suspended by operator: x
Figures from core core-1, since its start.`)
}

func TestVerdictsOfACommitAreShown(t *testing.T) {
	var out strings.Builder
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.Local)
	printVerdicts(&out, styles{}, "  ", at, "main/s1", []hook.Verdict{
		{Point: hook.BeforeAct, Plugin: "house", Step: "t1-p1-c0", Verb: hook.DenyVerb, Reason: "no", LatencyUS: 1500},
		{Point: hook.AfterSense, Plugin: "slow", Verb: hook.Continue, Error: "no answer in 2s", LatencyUS: 2_000_000},
	})
	same(t, out.String(), `
03:04:05.006 main/s1 hook.before_act        house: deny, 1.50 ms, t1-p1-c0: no
  03:04:05.006 main/s1 hook.after_sense       slow: continue, 2 s, failed: no answer in 2s`)
}

func TestAReportFitsATerminal(t *testing.T) {
	var out strings.Builder
	for _, r := range []conformance.Result{
		{
			Check: "registers", What: "sends its manifest to the registry", Status: conformance.Passed, Notes: []string{"quiet"},
		},
		{
			Check: "tool/house:rooms/answers", What: "fitting arguments have a valid result in time", Status: conformance.Failed,
			Findings: []conformance.Finding{{
				Expected: "a result by schemas/tool/answer.json",
				Seen:     `{"rooms": ["hall"]}, called with {"floor": 1}: /: missing property 'success'` + "\x1b[2J",
				Advice:   `answer {"success": true, "data": …}, or {"success": false, "error": {…}}`,
			}},
		},
		{Check: "tool/house:rooms/repeats", Status: conformance.Skipped, Why: "needs tool/house:rooms/answers, which failed"},
	} {
		printResult(&out, styles{}, r, false)
	}
	printReport(&out, styles{},
		&conformance.Report{
			Plugin: "house", Version: "1.0.0", Passed: 1, Failed: 1, Skipped: 1, TookMS: 9870, Output: "hello\n",
		}, false)
	equal(t, out.String(), `
ok    registers                  sends its manifest to the registry
FAIL  tool/house:rooms/answers   fitting arguments have a valid result in time
        expected  a result by schemas/tool/answer.json
        seen      {"rooms": ["hall"]}, called with {"floor": 1}: /: missing
                  property 'success'�[2J
        to do     answer {"success": true, "data": …}, or {"success": false,
                  "error": {…}}
–     tool/house:rooms/repeats   skipped: needs tool/house:rooms/answers, which
                                 failed

Last output of the plugin:
hello

house 1.0.0 failed: 1 checks passed, 1 failed, 1 skipped, in 9.9 s`)
}

func TestExamplesOfCallsAreRead(t *testing.T) {
	o, err := (&pluginsTestCmd{
		Command: []string{"--", "./house"}, Call: []string{`a:b={"x":"y=z"}`, `a:b={}`},
	}).options(&globals{Log: "warn"})
	if err != nil || len(o.Calls["a:b"]) != 2 || string(o.Calls["a:b"][0]) != `{"x":"y=z"}` || o.Command[0] != "./house" {
		t.Errorf("%v, %+v", err, o)
	}
	for _, bad := range []string{"a:b", "a:b=", "a:b={", ""} {
		if _, err := (&pluginsTestCmd{Call: []string{bad}}).options(&globals{Log: "warn"}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestEveryLanguageHasNextSteps(t *testing.T) {
	for _, lang := range []string{"go", "python", "node", "shell"} {
		steps := nextSteps(lang, "NAME")
		if len(steps) < 5 {
			t.Errorf("%s: %v", lang, steps)
		}
		for _, s := range steps {
			if s[0] == "" || s[1] == "" || len(s[0]) > 45 {
				t.Errorf("%s: %q", lang, s)
			}
		}
	}
}
