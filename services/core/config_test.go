package core_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/security"
	"skandha.dev/services/internal/configfile"
	"skandha.dev/services/internal/journal"
)

func policyOf(t *testing.T, yaml string) (*security.Policy, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "skandha.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := core.ReadConfig(path)
	if err != nil {
		return nil, err
	}
	_, policy, err := cfg.Build()
	return policy, err
}

// An agent has the permissions of the built-in tools unless its configuration lists others.
func TestPermissionsOfAnAgent(t *testing.T) {
	for yaml, want := range map[string][]string{
		"agents: {main: {}}":                                   security.DefaultPermissions(),
		"agents: {main: {permissions: []}}":                    {},
		"agents: {main: {permissions: [fs.read, \"mail.*\"]}}": {"fs.read", "mail.*"},
	} {
		agents, _, err := config(t, yaml).Build()
		if err != nil || !slices.EqualFunc(agents["main"].Granted, [][]string{want}, slices.Equal) {
			t.Errorf("%s: %q (%v), want %q", yaml, agents["main"].Granted, err, want)
		}
	}
	for _, p := range []string{"", "a b", "*.read", "fs*", "fs.*.x"} {
		if _, _, err := (core.Config{
			Agents: map[string]core.AgentConfig{"main": {Permissions: []string{p}}},
		}).Build(); err == nil ||
			!strings.Contains(err.Error(), "agents.main.permissions[0] is ") {
			t.Errorf("%q: %v", p, err)
		}
	}
}

// How an agent chooses its tools.
func TestTheDecisionOfAnAgent(t *testing.T) {
	agents, _, err := config(t, "agents: {a: {}, b: {decision: engine, shortlist: 0, confidence: 0.9}}").Build()
	if err != nil {
		t.Fatal(err)
	}
	a, b := agents["a"], agents["b"]
	if a.Guide.Decision != "" || a.Shortlist != 40 || a.Confidence != 0.7 {
		t.Errorf("by default: %q, %d, %g", a.Guide.Decision, a.Shortlist, a.Confidence)
	}
	if b.Guide.Decision != "engine" || b.Shortlist != 0 || b.Confidence != 0.9 {
		t.Errorf("configured: %q, %d, %g", b.Guide.Decision, b.Shortlist, b.Confidence)
	}
	negative, none, much, nan := -1, 0.0, 1.5, math.NaN()
	for want, bad := range map[string]core.AgentConfig{
		`decision is "guess"`: {Decision: "guess"}, "agents.main.shortlist is -1": {Shortlist: &negative},
		"agents.main.confidence is 0": {Confidence: &none}, "agents.main.confidence is 1.5": {Confidence: &much},
		"agents.main.confidence is NaN": {Confidence: &nan},
	} {
		cfg := core.Config{Agents: map[string]core.AgentConfig{"main": bad}}
		if _, _, err := cfg.Build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Every condition and obligation can be configured, and has its effect.
func TestAPolicyIsReadFromTheConfiguration(t *testing.T) {
	policy, err := policyOf(t, `
policy:
  - {effect: allow}
  - tool: "http:*"
    permission: network.request
    principal: "web*"
    agent: main
    risk: high
    idempotent: false
    args: {method: GET, url: "https://docs.example.com/*"}
    effect: confirm
    reason: it contacts other machines
    obligations: {max_duration: 10s, max_result_bytes: 65536, note: it comes from outside}
`)
	if err != nil {
		t.Fatal(err)
	}
	sound := func() decide.Access {
		return decide.Access{
			Principal: "web-1", Action: event.ActionCall,
			Resource: tool.Spec{Name: "http:request", Permissions: []string{"network.request"}, Risk: tool.RiskHigh},
			Context: decide.Context{
				Ref:  subject.Ref{Agent: "main", Session: "s"},
				Args: json.RawMessage(`{"method":"GET","url":"https://docs.example.com/a"}`),
			},
		}
	}
	r := policy.Evaluate(sound())
	if r.Effect != decide.Ask || r.Rule != "policy[1]" || !strings.Contains(r.Reason, "it contacts other machines") ||
		*r.Obligations != (event.Obligations{MaxDurationMS: 10_000, MaxResultBytes: 65536, Note: "it comes from outside"}) {
		t.Fatalf("%+v %+v", r, r.Obligations)
	}
	for name, change := range map[string]func(*decide.Access){
		"another tool":       func(a *decide.Access) { a.Resource.Name = "mail:send" },
		"another permission": func(a *decide.Access) { a.Resource.Permissions = nil },
		"another principal":  func(a *decide.Access) { a.Principal = "cron" },
		"another agent":      func(a *decide.Access) { a.Context.Ref.Agent = "other" },
		"another risk":       func(a *decide.Access) { a.Resource.Risk = tool.RiskLow },
		"idempotent":         func(a *decide.Access) { a.Resource.Idempotent = true },
		"another argument": func(a *decide.Access) {
			a.Context.Args = json.RawMessage(`{"method":"POST","url":"https://docs.example.com/a"}`)
		},
	} {
		a := sound()
		change(&a)
		if r := policy.Evaluate(a); r.Effect != decide.Allow || r.Rule != "policy[0]" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestAPolicyThatMakesNoSenseIsRefused(t *testing.T) {
	for rule, want := range map[string]string{
		`{effect: maybe}`:                                               "policy[0].effect",
		`{effect: allow, risk: huge}`:                                   "policy[0].risk",
		`{effect: allow, tool: "[a"}`:                                   "policy[0].tool",
		`{effect: allow, args: {path: ""}}`:                             "policy[0].args.path",
		`{effect: allow, tools: "*"}`:                                   "tools",
		`{effect: allow, idempotent: sometimes}`:                        "sometimes",
		`{effect: allow, obligations: {max_durration: 3s}}`:             "max_durration",
		`{effect: allow, obligations: {max_duration: 3ms}}`:             "policy[0].obligations.max_duration",
		`{effect: allow, obligations: {max_duration: soon}}`:            "soon",
		`{effect: allow, obligations: {max_result_bytes: 1}}`:           "policy[0].obligations.max_result_bytes",
		`{effect: allow, obligations: {max_result_bytes: lots}}`:        "lots",
		`{effect: allow, obligations: {note: ""}}`:                      "policy[0].obligations.note",
		`{effect: deny, obligations: {note: "x"}}`:                      "policy[0].obligations",
		`{effect: allow, obligations: {require_shouting: very loudly}}`: "require_shouting",
	} {
		if _, err := policyOf(t, "policy: ["+rule+"]\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to mention %s", rule, err, want)
		}
	}
}

// The examples in the documentation of package security are valid configuration.
func TestThePolicyOfTheDocumentationIsSound(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("security", "doc.go"))
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, block := range strings.Split(string(source), "\n//\n") {
		block, is := strings.CutPrefix(block, "//\tpolicy:\n")
		if !is {
			continue
		}
		shown++
		if _, err := policyOf(t, "policy:\n"+strings.ReplaceAll(block, "//\t", "")); err != nil {
			t.Errorf("%v in:\n%s", err, block)
		}
	}
	if shown != 2 {
		t.Errorf("%d policies are shown, want 2", shown)
	}
}

func TestStreamsAreConfigured(t *testing.T) {
	cfg := config(t, "streams: {replicas: 3, max_bytes: 1073741824, dead_age: 48h}\n")
	got, err := cfg.BuildStreams()
	want := journal.StreamsConfig{Replicas: 3, MaxBytes: 1 << 30, DeadAge: 48 * time.Hour}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if got, err := config(t, "agents: {main: {}}\n").BuildStreams(); err != nil || got != (journal.StreamsConfig{}) {
		t.Errorf("without settings %+v, %v; want the existing values kept", got, err)
	}
	if err := refused(t, "streams: {replicas: 2}\n"); !strings.HasSuffix(err,
		"skandha.yaml:1: streams.replicas is 2, want 1, 3 or 5") {
		t.Errorf("%s, want an error that names the field", err)
	}
}

func config(t *testing.T, yaml string) core.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "skandha.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := core.ReadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestRequiredGuidesAreGuides(t *testing.T) {
	cfg := core.Config{
		Agents: map[string]core.AgentConfig{"main": {Guides: []string{"kind", "brief"}, Required: []string{"brief"}}},
	}
	agents, _, err := cfg.Build()
	if err != nil || !slices.Equal(agents["main"].Required, []string{"brief"}) {
		t.Errorf("got %+v, %v", agents, err)
	}
	cfg.Agents["main"] = core.AgentConfig{Guides: []string{"kind"}, Required: []string{"brief"}}
	if _, _, err := cfg.Build(); err == nil ||
		!strings.Contains(err.Error(), `agents.main.required_guides[0] is "brief", want one of guides ["kind"]`) {
		t.Errorf("got %v", err)
	}
}

// An agent without a system prompt begins with the default guide.
func TestTheDefaultGuide(t *testing.T) {
	for yaml, want := range map[string][]string{
		"agents: {main: {}}":                                              {"default"},
		"agents: {main: {guides: [coder]}}":                               {"default", "coder"},
		"agents: {main: {guides: [coder, default]}}":                      {"coder", "default"},
		"agents: {main: {guide: {system_prompt: Hi.}, guides: [coder]}}":  {"coder"},
		"agents: {main: {guide: {temperature: 0.5, decision: engine}}}":   {"default"},
		"agents: {main: {guide: {system_prompt: Hi., decision: native}}}": nil,
	} {
		agents, _, err := config(t, yaml).Build()
		if err != nil || !slices.Equal(agents["main"].Guides, want) {
			t.Errorf("%s: %q, %v", yaml, agents["main"].Guides, err)
		}
	}
	if got := refused(t, "agents:\n  main:\n    guide: {decision: perhaps}"); !strings.Contains(got,
		`skandha.yaml:3: agents.main.guide: guide "main": decision is "perhaps"`) {
		t.Error(got)
	}
}

func TestTheDirectoryOfGuides(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "skandha.yaml")
	read := func(yaml string) (core.Config, error) {
		if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		return core.ReadConfig(file)
	}
	elsewhere := t.TempDir()
	for yaml, want := range map[string]string{
		"agents: {main: {}}":                         filepath.Join(dir, "guides"),
		"guides_dir: .":                              dir,
		"guides_dir: " + elsewhere:                   elsewhere,
		"guides_dir: ../" + filepath.Base(dir) + "/": dir,
	} {
		if c, err := read(yaml); err != nil || c.GuidesDir != want {
			t.Errorf("%s: %s, %v, want %s", yaml, c.GuidesDir, err, want)
		}
	}
	if _, err := read("agents: {}\nguides_dir: none"); err == nil ||
		!strings.Contains(err.Error(), "skandha.yaml:2: guides_dir is "+filepath.Join(dir, "none")+", which is not") {
		t.Error(err)
	}
	if c, err := core.ReadConfig(""); err != nil || c.GuidesDir != "" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestTheFilesOfGuidesAreChecked(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "skandha.yaml")
	for name, text := range map[string]string{
		"skandha.yaml": "guides_dir: .\nagents: {a: {guides: [bad, far]}, b: {guides: [bad, far, good, of-a-plugin], provider: local}}",
		"bad.md":       "---\nx: 1\n---\nHi.", "far.md": "---\nprovider: openai\n---\nHi.", "good.md": "---\n---\nHi.",
		"unused.md": "wrong",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := core.CheckGuides(file)
	if err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), "bad.md:2: x: unknown key") ||
		!strings.Contains(err.Error(), `guide far of agent b: provider[0] is "openai"`) {
		t.Error(err)
	}
}

// refused returns the error of an invalid configuration.
func refused(t *testing.T, yaml string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "skandha.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := core.ReadConfig(path)
	if err == nil {
		t.Fatalf("%s is accepted", yaml)
	}
	return err.Error()
}

// All mistakes are reported at once, each with its line, its path, its value and what is
// expected.
func TestEveryErrorOfAFileIsReported(t *testing.T) {
	for file, want := range map[string][]string{
		"agents:\n  main:\n    limits: {rounds: many, wall: 5}\n    confirm: 15\nagnets: {}\nplugins: {lease: 1ms}\n": {
			`:3: agents.main.limits.rounds is "many", want a whole number`,
			`:3: agents.main.limits.wall is 5, want a duration such as 15m`,
			`:4: agents.main.confirm is 15, want a duration such as 15m`,
			`:5: agnets: unknown key, did you mean agents?`,
			`:6: plugins.lease is 1ms, want`,
		},
		"agents:\n  b:\n    limits:\n      rounds: -1\n      cost_usd: .nan\n      turns: -1\n      inputs_per_minute: -2\n      session_inputs_per_minute: -3\n  a: {confirm: -5m, guides: [x, x]}\nhooks:\n  befor_act: {}\nopen_sessions: -1\nplugins:\n  lease: 1ms\nlimits: {backlog: -1}\nstreams: {replicas: 2}\npolicy:\n  - {effect: maybe}\n": {
			`:4: agents.b.limits.rounds is -1, want 0`,
			`:5: agents.b.limits.cost_usd is NaN, want 0`,
			`:6: agents.b.limits.turns is -1, want 0 (no limit) or more`,
			`:7: agents.b.limits.inputs_per_minute is -2, want 0 (no limit) or more`,
			`:8: agents.b.limits.session_inputs_per_minute is -3, want 0 (no limit) or more`,
			`:9: agents.a.confirm is -5m0s, want a positive duration`,
			`:9: agents.a.guides[1] is "x", want`,
			`:11: hooks.befor_act: unknown hook point, want one of [`,
			`:12: open_sessions is -1, want`,
			`:14: plugins.lease is 1ms, want`,
			`:15: limits.backlog is -1, want`,
			`:16: streams.replicas is 2, want`,
			`:18: policy[0].effect is "maybe", want`,
		},
	} {
		got := strings.Split(refused(t, file), "\n")
		if len(got) != len(want) {
			t.Fatalf("%q, want %q", got, want)
		}
		for i := range want {
			if !strings.Contains(got[i], "skandha.yaml"+want[i]) {
				t.Errorf("%s\nwant %s", got[i], want[i])
			}
		}
	}
}

func TestFlagsGoBeforeTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skandha.yaml")
	if err := os.WriteFile(file, []byte("streams: {replicas: 3}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[int]int{0: 3, 5: 5} {
		if c, err := (core.Flags{File: file, Replicas: flag}).Config(); err != nil || c.Streams.Replicas != want {
			t.Errorf("with %d: %d copies, %v, want %d", flag, c.Streams.Replicas, err, want)
		}
	}
	if _, err := (core.Flags{Replicas: 2}).Config(); err == nil ||
		!strings.HasPrefix(err.Error(), "--stream-replicas or SKANDHA_STREAM_REPLICAS: ") {
		t.Errorf("%v, want an error that names the flag", err)
	}
}

// A service that owns one section knows the names of the other sections.
func TestTheSectionsOfTheFileAreTheCores(t *testing.T) {
	var names []string
	for f := range reflect.TypeFor[core.Config]().Fields() {
		names = append(names, f.Tag.Get("yaml"))
	}
	if want := configfile.Sections(); !slices.Equal(names, want) {
		t.Errorf("the configuration has the keys %q, package configfile lists %q", names, want)
	}
}
