package shell_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	"skandha.dev/services/core/security"
	"skandha.dev/services/internal/coreapi"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/test/natstest"
)

// internally calls an internal tool as a plugin or a service does.
func internally(t *testing.T, caller *bus.Caller, query string) (r tool.Result, err error) {
	t.Helper()
	var q struct{ Caller subject.Writer }
	if json.Unmarshal([]byte(query), &q) != nil || !subject.Valid(q.Caller) {
		q.Caller = "test"
	}
	body, err := caller.Request(natstest.Context(t), subject.Call(q.Caller), coreapi.ServiceName, []byte(query))
	if err == nil {
		err = json.Unmarshal(body, &r)
	}
	return r, err
}

// A hook may call an internal tool while the session's decision waits for the hook.
func TestAHookCallsAnInternalTool(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	var ran atomic.Value
	s.tool = func(_ context.Context, c contract.ToolCall) tool.Result {
		ran.Store(c)
		return tool.OK("Ann likes tea")
	}
	var p *plugged
	p = s.plug(plugin.Manifest{Name: "memory", Hooks: []plugin.Hook{{Point: hook.BeforePlan}}},
		func(e hook.Envelope) string {
			r, err := internally(t, p.caller,
				`{"agent":"`+string(e.Agent)+`","session":"`+string(e.Session)+`","turn":"`+e.Turn+`",
			"caller":"memory","tool":"test:inner","args":{"query":"tea"}}`)
			if err != nil || !r.Success {
				t.Errorf("got %+v, %v", r, err)
			}
			return `{"verb":"replace","data":{"advice":[` + string(r.Data) + `]}}`
		})
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "hello"})
	var asked event.PlanRequested
	if err := s.await(ch, event.TypePlanRequested).DataAs(&asked); err != nil ||
		!strings.Contains(string(encoded(t, asked)), "Ann likes tea") {
		t.Errorf("the plan is %+v, %v", asked, err)
	}
	end := s.await(ch, event.TypeRecorded)
	if c := ran.Load().(contract.ToolCall); c.Name != "test:inner" || string(c.Args) != `{"query":"tea"}` ||
		c.Turn != end.Turn {
		t.Errorf("the runner got %+v", c)
	}
	if n := s.core.Counters()["internal_calls"]; n != 1 {
		t.Errorf("%d calls are counted", n)
	}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Policy judges an internal call. Calls of tools that are not internal are refused.
func TestInternalCallsAreJudged(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{Policy: []core.Rule{
		{Principal: "internal:spy", Effect: event.EffectDeny, Reason: "spies learn nothing"},
		{Principal: "internal:trusted", Tool: "test:grave", Effect: event.EffectAllow},
		{
			Principal: "internal:short", Effect: event.EffectAllow, Obligations: &security.Obligations{MaxResultBytes: new(256)},
		},
	}})
	var ran atomic.Int64
	s.tool = func(context.Context, contract.ToolCall) tool.Result {
		ran.Add(1)
		return tool.OK(strings.Repeat("x", 300))
	}
	p := s.connectPlugin(plugin.Manifest{Name: "caller"}, nil)
	for name, c := range map[string]struct {
		caller, tool, args string
		want               tool.Code
		message            string
	}{
		"an internal tool":  {"memory", "test:inner", `{"query":"tea"}`, "", ""},
		"without arguments": {"memory", "test:inner", `null`, "", ""},
		"wrong arguments":   {"memory", "test:inner", `{"q":1}`, tool.CodeInvalidArgs, "was not run"},
		"a public tool":     {"memory", "test:do", `{}`, tool.CodeDenied, "not internal"},
		"no tool":           {"memory", "test:none", `{}`, tool.CodeUnknownTool, "no runner offers"},
		"denied":            {"spy", "test:inner", `{}`, tool.CodeDenied, "spies learn nothing"},
		"nobody is asked": {
			"memory", "test:grave", `{}`, tool.CodeDenied, `a rule for the principal "internal:memory"`,
		},
		"allowed by a rule":          {"trusted", "test:grave", `{}`, "", ""},
		"a result that is withheld":  {"short", "test:inner", `{}`, tool.CodeTooLarge, "policy allows 256"},
		"no input has the principal": {"short", "test:grave", `{}`, tool.CodeTooLarge, "policy"},
	} {
		before := ran.Load()
		r, err := internally(t, p.caller,
			`{"agent":"main","session":"s1","caller":"`+c.caller+`","tool":"`+c.tool+`","args":`+c.args+`}`)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r.Success != (c.want == "") ||
			c.want != "" && (r.Error.Code != c.want || !strings.Contains(r.Error.Message, c.message)) {
			t.Errorf("%s: got %v %+v", name, r.Success, r.Error)
		}
		if did := ran.Load() > before; did != (c.want == "" || c.want == tool.CodeTooLarge) {
			t.Errorf("%s: it ran: %v", name, did)
		}
	}
	for query, want := range map[string]error{
		``: bus.ErrInvalidArgument,
		`{"agent":"main","session":"s1","caller":"a b","tool":"test:inner"}`:     bus.ErrDenied,
		`{"agent":"main","session":"*","caller":"memory","tool":"test:inner"}`:   bus.ErrInvalidArgument,
		`{"agent":"nobody","session":"s","caller":"memory","tool":"test:inner"}`: bus.ErrNotFound,
	} {
		if _, err := internally(t, p.caller, query); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", query, err, want)
		}
	}
}

func TestAnInternalCallWithoutARunnerDidNotRun(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	p := s.connectPlugin(plugin.Manifest{Name: "caller"}, nil)
	s.stopRunner()
	r, err := internally(t, p.caller, `{"agent":"main","session":"s1","caller":"caller","tool":"test:inner"}`)
	if err != nil || r.Success || r.Error.Code != tool.CodeNotRun && r.Error.Code != tool.CodeUnknownTool {
		t.Errorf("got %+v, %v", r.Error, err)
	}
}
