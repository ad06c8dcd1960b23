package shell

import (
	"context"
	"encoding/json"
	"fmt"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/planner/match"
	"skandha.dev/services/internal/toolschema"
)

// ownTool is an internal tool that core itself answers, because it needs what only core has.
type ownTool struct {
	spec      tool.Spec
	validator *toolschema.Validator
	run       func(ctx context.Context, n *internalCall) tool.Result
}

// ownTools returns the internal tools that core answers, by name.
func (c *Core) ownTools() (map[string]ownTool, error) {
	own := map[string]ownTool{}
	for _, t := range append(c.memoryTools(), ownTool{spec: matchSpec(), run: c.matchCapability}) {
		v, err := toolschema.Compile(t.spec)
		if err != nil {
			return nil, fmt.Errorf("core's own tool %s: %w", t.spec.Name, err)
		}
		t.validator = v
		own[t.spec.Name] = t
	}
	return own, nil
}

// lookupInternal returns a tool of core or of an executor.
func (c *Core) lookupInternal(name string) (tool.Spec, bool) {
	if t, own := c.own[name]; own {
		return t.spec, true
	}
	return c.dir.Lookup(name)
}

// validateInternal checks the arguments of a tool of core or of an executor.
func (c *Core) validateInternal(name string, args json.RawMessage) (json.RawMessage, []string) {
	if t, own := c.own[name]; own {
		return t.validator.Validate(args)
	}
	return c.dir.Validate(name, args)
}

// matchSpec describes capability:match, which finds tools for a request.
func matchSpec() tool.Spec {
	return tool.Spec{
		Name: "capability:match",
		Description: "Finds the tools that fit a request and that the agent may call, best first: with the score, its " +
			"factors, how the fit was found, and why.",
		Args: json.RawMessage(`{"type":"object","properties":{
			"query":{"type":"string","minLength":1,"description":"what is to be done, in any words"},
			"limit":{"type":"integer","minimum":1,"maximum":100,"default":10}},
			"required":["query"],"additionalProperties":false}`),
		Idempotent: true, Internal: true, Risk: tool.RiskLow, TimeoutMS: 10_000,
	}.Sealed()
}

// capability is a tool that fits a request. Scores are 0 to 1.
type capability struct {
	Tool       string       `json:"tool"`
	Score      float64      `json:"score"`
	Fit        float64      `json:"fit"`
	Success    float64      `json:"success"`
	Latency    float64      `json:"latency"`
	Risk       float64      `json:"risk"`
	Preference float64      `json:"preference"`
	Method     match.Method `json:"method"`
	Failing    bool         `json:"failing,omitempty"`
	Why        string       `json:"why"`
}

func (c *Core) matchCapability(_ context.Context, n *internalCall) tool.Result {
	var ask struct {
		Query string `json:"query"`
		Limit int    `json:"limit"`
	}
	if err := json.Unmarshal(n.Args, &ask); err != nil {
		return tool.Failure(tool.CodeInvalidArgs, err.Error())
	}
	found := []capability{}
	for _, m := range c.ranker.Rank(match.Request{Text: ask.Query, Limit: ask.Limit, Allowed: c.allowed(n)}) {
		if m.Fit > 0 {
			found = append(found, capability{
				m.Tool.Name, m.Score, m.Fit, m.Success, m.Latency, m.Risk, m.Preference, m.Method, m.Failing, m.Why,
			})
		}
	}
	return tool.OK(map[string]any{"tools": found})
}

// allowed reports whether the agent of a call is offered a tool and has the permissions for it.
// What policy says beyond that depends on the arguments.
func (c *Core) allowed(n *internalCall) func(tool.Spec) bool {
	agent := c.plugins.Agent(n.Agent)
	return func(spec tool.Spec) bool {
		return agent.Offers(spec.Name) && c.cfg.Policy.Evaluate(decide.Access{
			Principal: subject.Writer(internalPrincipal + string(n.Caller)), Action: event.ActionCall, Resource: spec,
			Granted: agent.Granted, Unguided: agent.Unguided,
			Context: decide.Context{
				Ref: n.ref, Turn: n.Turn, Call: n.id, Source: string(n.Caller), Args: json.RawMessage("{}"),
			},
		}).Effect != decide.Deny
	}
}
