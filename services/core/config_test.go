package core_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/security"
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

// Every condition and obligation can be written down, and does what it says.
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
    reason: it talks to strangers
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
	if r.Effect != decide.Ask || r.Rule != "policy[1]" || !strings.Contains(r.Reason, "it talks to strangers") ||
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
			t.Errorf("%s: %v, want it to name %s", rule, err, want)
		}
	}
}

// What the package of the policy shows can be copied into a configuration.
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
	if want := (bus.StreamsConfig{Replicas: 3, MaxBytes: 1 << 30, DeadAge: 48 * time.Hour}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if got, err := config(t, "agents: {main: {}}\n").BuildStreams(); err != nil || got != (bus.StreamsConfig{}) {
		t.Errorf("without a word %+v, %v; it is to keep what is there", got, err)
	}
	if _, err := config(t, "streams: {replicas: 2}\n").BuildStreams(); err == nil || !strings.Contains(err.Error(), "streams.replicas is 2") {
		t.Errorf("%v, want an error that names the field", err)
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
	cfg := core.Config{Agents: map[string]core.AgentConfig{"main": {Guides: []string{"kind", "brief"}, Required: []string{"brief"}}}}
	agents, _, err := cfg.Build()
	if err != nil || !slices.Equal(agents["main"].Required, []string{"brief"}) {
		t.Errorf("got %+v, %v", agents, err)
	}
	cfg.Agents["main"] = core.AgentConfig{Guides: []string{"kind"}, Required: []string{"brief"}}
	if _, _, err := cfg.Build(); err == nil || !strings.Contains(err.Error(), `agents.main: required_guides[0] is "brief", want one of guides ["kind"]`) {
		t.Errorf("got %v", err)
	}
}
