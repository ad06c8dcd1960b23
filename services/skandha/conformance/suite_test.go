package conformance_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/services/skandha/conformance"
	"skandha.dev/services/test/natstest"
)

// together bounds how many runs there are at a time, most of which wait for a clock:
// more than there are processors.
var together = make(chan struct{}, 6)

// outcome is what came of a run.
type outcome struct {
	*conformance.Report
	err error
}

// What goes by the clock is tried where the clock is what matters. Elsewhere nothing
// ends a lease or a wait because the machine is slow.
const (
	beating  = 10 * time.Second // a lease whose renewals are watched
	longLife = 30 * time.Second
)

// watched are the faults of those who live by themselves; the others' heartbeats are
// not waited for.
var watched = map[string]func(*conformance.Options){
	"good": nil, "sdk": nil, "no heartbeats": nil, "slow heartbeats": nil, "heartbeat of another": nil,
	"ends by itself": func(o *conformance.Options) { o.Skip = []string{"hook", "tool", "provider", "storage", "guide"} },
}

// waited are those that are waited for in vain, or whose leases would be: nobody
// gives up that of a process which was killed.
var waited = map[string]func(*conformance.Options){
	"never connects":      func(o *conformance.Options) { o.Within = 8 * time.Second },
	"does not reconnect":  func(o *conformance.Options) { o.Within, o.Skip = 8*time.Second, dead },
	"deaf to SIGTERM":     func(o *conformance.Options) { o.Leave = 5 * time.Second },
	"ends with the bus":   func(o *conformance.Options) { o.Skip = dead },
	"garbage kills hooks": func(o *conformance.Options) { o.Skip = dead },
	"garbage kills tools": func(o *conformance.Options) { o.Skip = dead },
}

var dead = []string{"heartbeat", "leaves"}

// try runs the suite against this binary in a role, in the background.
func try(t *testing.T, role string, change func(*conformance.Options)) <-chan outcome {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := conformance.Options{
		Command: []string{
			"/usr/bin/env", roleVariable + "=" + role, "CONFORMANCE_TEST_ONCE=" + filepath.Join(t.TempDir(), "once"), self,
		},
		Within: natstest.Patience, Leave: natstest.Patience,
		Lease: longLife, Skip: []string{"heartbeat"},
	}
	more, is := watched[role]
	if is {
		o.Lease, o.Skip = beating, nil
	}
	for _, change := range []func(*conformance.Options){more, waited[role], change} {
		if change != nil {
			change(&o)
		}
	}
	done := make(chan outcome, 1)
	go func() {
		together <- struct{}{}
		defer func() { <-together }()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		r, err := conformance.Run(ctx, o)
		done <- outcome{r, err}
	}()
	return done
}

func report(t *testing.T, done <-chan outcome) *conformance.Report {
	t.Helper()
	o := <-done
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.Report
}

// failures are the names of the checks that failed, and a dump for the log.
func failures(r *conformance.Report) (names []string, dump string) {
	var b strings.Builder
	for _, c := range r.Checks {
		if c.Status == conformance.Failed {
			names = append(names, c.Check)
		}
		b.WriteString(string(c.Status) + " " + c.Check + " " + c.Why + "\n")
		for _, f := range c.Findings {
			b.WriteString("    expected: " + f.Expected + "\n    seen:     " + f.Seen + "\n    advice:   " + f.Advice + "\n")
		}
		for _, n := range c.Notes {
			b.WriteString("    note: " + n + "\n")
		}
	}
	return names, b.String() + r.Output
}

func TestGoodPluginsPass(t *testing.T) {
	least := map[string]int{"good": 29, "sdk": 55}
	runs := map[string]<-chan outcome{}
	for role := range least {
		runs[role] = try(t, role, nil)
	}
	for role, done := range runs {
		r := report(t, done)
		if bad, dump := failures(r); !r.OK() || r.Skipped > 0 || r.Passed < least[role] {
			t.Errorf("%s: %d passed, want %d or more; skipped %d; failed: %v\n%s", role, r.Passed, least[role], r.Skipped, bad,
				dump)
		}
	}
}

// Each of these plugins has one fault, and one check is to see it.
func TestEachFaultIsSeenByItsCheck(t *testing.T) {
	faults := map[string]struct{ check, says string }{
		"never connects":         {"registers", "it never connected"},
		"answers to an inbox":    {"registers", ".core.<instance>.<n>"},
		"bad manifest":           {"manifest", `hooks[0].deadline_ms: is 90000`},
		"bad schema":             {"manifest", "tools[0].args"},
		"unknown field":          {"manifest", "colour"},
		"name of another":        {"manifest", "math:evaluate"},
		"no heartbeats":          {"heartbeat", "0 in "},
		"slow heartbeats":        {"heartbeat", "every third"},
		"heartbeat of another":   {"heartbeat", "instance"},
		"hook not answered":      {"hook/before_act/answers", "no subscriber"},
		"late":                   {"hook/before_act/answers", "an answer after 3."},
		"silent":                 {"hook/before_act/answers", "no answer in "},
		"no JSON":                {"hook/before_act/answers", "it is not JSON"},
		"unknown verb":           {"hook/before_act/answers", "/verb: "},
		"deny without reason":    {"hook/before_act/answers", "missing property 'reason'"},
		"confirm elsewhere":      {"hook/before_sense/answers", "confirm is not valid at before_sense"},
		"bad replacement":        {"hook/before_sense/answers", "colour"},
		"observer denies":        {"hook/after_reflect/answers", "deny is not valid at after_reflect"},
		"forgets hooks":          {"hook/before_act/repeats", "then"},
		"garbage kills hooks":    {"hook/before_sense/garbage", "what is that?"},
		"garbage stuns hooks":    {"hook/before_sense/garbage", "none on hook.before_sense.plain"},
		"tool not answered":      {"tool/plain:add/answers", "an answer to tool.plain.plain--add within 2s"},
		"slow tool":              {"tool/plain:add/answers", "timeout_ms"},
		"bad result":             {"tool/plain:add/answers", "missing property 'success'"},
		"core's code":            {"tool/plain:add/answers", "denied"},
		"runs twice":             {"tool/plain:add/repeats", `"run":`},
		"forgets with the bus":   {"tool/plain:add/remembers", `"run":`},
		"garbage kills tools":    {"tool/plain:add/garbage", "the process ended: exit status 2"},
		"model says both":        {"provider/parrot", "oneOf"},
		"model says nothing":     {"provider/parrot", "garbage"},
		"one agent's storage":    {"storage", "belongs to the agent main"},
		"storage is a string":    {"storage", "keep the value as it was put"},
		"keeps what was deleted": {"storage", "it was deleted"},
		"another guide":          {"guide/teacher", "pupil"},
		"any guide":              {"guide/teacher", "not_found"},
		"says nonsense":          {"listener/plain-ear", "sense.input"},
		"does not reconnect":     {"restart", "neither a heartbeat nor a registration"},
		"ends with the bus":      {"restart", "exit status 3"},
		"constant instance":      {"replicas", "always-the-same"},
		"no queue group":         {"replicas", "both got"},
		"deaf to SIGTERM":        {"leaves", "it still runs"},
		"leaves silently":        {"leaves", "it ended without"},
		"unregisters another":    {"leaves", "somebody"},
		"bad status":             {"leaves", "exit status 4"},
		"ends by itself":         {"stays", "I have had enough"},
		"overhears":              {"subjects", "SUB hook.before_plan.*"},
		"speaks as core":         {"subjects", "only core writes"},
		"speaks undeclared":      {"subjects", "declare somebody"},
		"answers twice":          {"replies", "2 on reply."},
		"answers others":         {"replies", "no question gave"},
	}
	runs := map[string]<-chan outcome{}
	for fault := range faults {
		runs[fault] = try(t, fault, nil)
	}
	for fault, want := range faults {
		t.Run(fault, func(t *testing.T) {
			r := report(t, runs[fault])
			bad, dump := failures(r)
			if !slices.Equal(bad, []string{want.check}) {
				t.Fatalf("failed: %v, want %s\n%s", bad, want.check, dump)
			}
			if !strings.Contains(dump, want.says) {
				t.Errorf("the report does not say %q\n%s", want.says, dump)
			}
			if r.OK() || r.Failed != 1 || r.Output == "" && strings.Contains(want.says, "enough") {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestChecksCanBeLeftOut(t *testing.T) {
	r := report(t, try(t, "bad result", func(o *conformance.Options) {
		o.NoTools, o.Lease, o.Skip = true, beating, []string{"restart", "hook/*/garbage", "hook/after_sense", "registers"}
	}))
	_, dump := failures(r)
	if !r.OK() {
		t.Errorf("with the bad tool left out it fails\n%s", dump)
	}
	var left []string
	for _, c := range r.Checks {
		if c.Status == conformance.Skipped {
			left = append(left, c.Check+": "+c.Why)
		}
	}
	want := []string{
		"hook/before_act/garbage: as asked", "hook/before_sense/garbage: as asked",
		"hook/after_sense/answers: as asked", "hook/after_sense/repeats: as asked", "hook/after_sense/garbage: as asked",
		"hook/after_reflect/garbage: as asked",
		"tool/plain:add/answers: tools are not called, as asked", "tool/plain:add/repeats: tools are not called, as asked",
		"tool/plain:add/remembers: tools are not called, as asked", "tool/plain:add/garbage: tools are not called, as asked",
		"restart: as asked",
	}
	if !slices.Equal(left, want) {
		t.Errorf("left out:\n%s\nwant:\n%s", strings.Join(left, "\n"), strings.Join(want, "\n"))
	}
}

func TestWhatCannotBeTriedIsAnError(t *testing.T) {
	for want, o := range map[string]conformance.Options{
		"no command":         {},
		"no such file":       {Command: []string{"./no-such-plugin"}},
		"lease is 10ms":      {Command: []string{"x"}, Lease: 10 * time.Millisecond},
		`skip: "["`:          {Command: []string{"x"}, Skip: []string{"["}},
		"starting ./no-such": {Command: []string{"./no-such-plugin"}},
	} {
		if r, err := conformance.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v", want, r, err)
		}
	}
}

// A plugin that garbage ends: the report names every case, not the first alone.
func TestEachCaseOfGarbageIsNamed(t *testing.T) {
	_, dump := failures(report(t,
		try(t, "garbage kills hooks", only("hook/before_sense/answers", "hook/before_sense/garbage"))))
	for _, want := range []string{"after (empty): ", "after no JSON at all: ", "after null: ", "after {}: ", "after [[["} {
		if !strings.Contains(dump, want) {
			t.Errorf("the report does not say %q\n%s", want, dump)
		}
	}
}

// The answers to an author's own cases are held against the contract.
func TestOwnCasesAreAsked(t *testing.T) {
	for _, c := range []struct{ fault, point, data, failed, says string }{
		{
			"good", "before_act", `{"call": "t1-p1-c0", "tool": "own:tool", "args": {}}`, "",
			`your case {"call": "t1-p1-c0", "tool": "own:tool", "args": {}}: it answers {"verb": "deny"`,
		},
		{"good", "before_act", `{"tool": 7}`, "", "schemas/hooks/before_act.json: /"},
		{"good", "on_error", `{}`, "", `point is "on_error", where the plugin has no hook`},
		{
			"own case", "before_act", `{"call": "t1-p1-c0", "tool": "own:tool", "args": {}}`, "hook/before_act/answers", "level",
		},
	} {
		o := <-try(t, c.fault, func(o *conformance.Options) {
			only("hook/before_act/answers")(o)
			o.Cases = []hook.Envelope{{Point: hook.Point(c.point), Data: json.RawMessage(c.data)}}
		})
		var bad []string
		var dump string
		if o.err != nil {
			dump = o.err.Error()
		} else {
			bad, dump = failures(o.Report)
		}
		if strings.Join(bad, " ") != c.failed || !strings.Contains(dump, c.says) {
			t.Errorf("%s at %s: failed %v, want %s and %q\n%s", c.data, c.point, bad, c.failed, c.says, dump)
		}
	}
}

// only leaves out the checks of a plugin's hooks but for some, and all others.
func only(checks ...string) func(*conformance.Options) {
	return func(o *conformance.Options) {
		o.NoTools, o.Skip = true, []string{
			"heartbeat", "turn", "restart", "replicas", "leaves", "provider", "storage", "guide", "tool", "listener", "stays",
		}
		for _, at := range []string{"before_act", "before_sense", "after_sense", "after_reflect"} {
			for _, what := range []string{"answers", "repeats", "garbage"} {
				if name := "hook/" + at + "/" + what; !slices.Contains(checks, name) {
					o.Skip = append(o.Skip, name)
				}
			}
		}
	}
}
