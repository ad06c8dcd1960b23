// Package guide defines the guide of an agent: its system prompt, its settings and what it
// remembers.
//
// Guarantee: however guides are composed, a guide never widens what its agent may do. Tools and
// permissions are intersected, and of each limit the lowest value applies.
package guide

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"skandha.dev/pkg/strictjson"
)

// MemoryPolicy is how the part of the conversation that the model sees is chosen.
type MemoryPolicy string

// The memory policies.
const (
	// SlidingWindow shows the latest complete turns that fit the window.
	SlidingWindow MemoryPolicy = "sliding-window"
	// Summary shows the conversation since the last summary, and that summary. A model
	// summarises the oldest turns when the conversation becomes too long.
	Summary MemoryPolicy = "summary"
	// VectorDB is SlidingWindow, with what the agent's memory holds about the input: facts,
	// notes and experiences, also of other sessions.
	VectorDB MemoryPolicy = "vector-db"
	// None shows the current turn alone.
	None MemoryPolicy = "none"
)

// MemoryPolicies returns all policies.
func MemoryPolicies() []MemoryPolicy { return []MemoryPolicy{SlidingWindow, Summary, VectorDB, None} }

// Decision is how an agent chooses its tools.
type Decision string

// The ways to decide.
const (
	// Native lets the model call tools itself. If there are many, core chooses those that the
	// model is shown. It is the default.
	Native Decision = "native"
	// Engine lets core choose the tool and its arguments; the model fills what core leaves open.
	Engine Decision = "engine"
)

// Guide is the guide of the specification, as data.
type Guide struct {
	Name            string       `json:"name"`
	Description     string       `json:"description,omitempty"` // for people, in one line
	SystemPrompt    string       `json:"system_prompt"`
	Temperature     *float64     `json:"temperature,omitempty"`      // absent: none is sent
	MemoryPolicy    MemoryPolicy `json:"memory_policy,omitempty"`    // default sliding-window
	InitialMemories []string     `json:"initial_memories,omitempty"` // always shown, never removed from the window
	Decision        Decision     `json:"decision,omitempty"`         // default native
	// Providers may answer, each as "provider" or "provider/model", in order of preference.
	// Core accepts only those that the agent has, if the agent has any. Absent: the agent's.
	Providers []string `json:"provider,omitempty"`
	Model     string   `json:"model,omitempty"` // of the first provider
	// Tools restrict those that are offered to the model. If nil, they are not restricted.
	Tools []string `json:"tools,omitzero"`
	// Permissions restrict those of the agent: a tool needs each of its permissions in both.
	// "fs.*" means a whole group. If nil, the agent has all of its permissions.
	Permissions []string `json:"permissions,omitzero"`
	Limits      Limits   `json:"limits,omitzero"` // lower those of the agent
	// IgnoreAgentsMD leaves out the project notes in the file AGENTS.md of the workspace.
	IgnoreAgentsMD bool `json:"ignore_agents_md,omitempty"`
}

// Limits bound one turn. Zero leaves the agent's limit as it is.
type Limits struct {
	Rounds         int     `json:"rounds,omitempty"`           // model calls per turn
	Calls          int     `json:"calls,omitempty"`            // tool calls per model answer
	Tokens         int64   `json:"tokens,omitempty"`           // input and output tokens per turn
	CostUSD        float64 `json:"cost_usd,omitempty"`         // per turn
	SessionCostUSD float64 `json:"session_cost_usd,omitempty"` // per session
	WallMS         int64   `json:"wall_ms,omitempty"`          // per turn, not counting the time that people take
	ModelCallMS    int64   `json:"model_call_ms,omitempty"`    // one model call
	WindowTurns    int     `json:"window_turns,omitempty"`     // latest turns that the model sees
}

// Decode decodes a plugin's reply to a request for the guide with that name. An unknown
// field, another name and an empty prompt are errors. The field names of the specification
// (systemPrompt, memoryPolicy, initialMemories) are accepted too; then the name may be
// missing.
func Decode(body []byte, name string) (Guide, error) {
	var w struct {
		Guide
		Prompt   *string       `json:"systemPrompt"`
		Policy   *MemoryPolicy `json:"memoryPolicy"`
		Memories *[]string     `json:"initialMemories"`
	}
	if err := strictjson.Names(body, &w); err != nil {
		return Guide{}, fmt.Errorf("not a guide: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return Guide{}, fmt.Errorf("not a guide: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Guide{}, errors.New("not a guide: unexpected data after the JSON object")
	}
	if err := noNull(body); err != nil {
		return Guide{}, fmt.Errorf("not a guide: %w", err)
	}
	g := w.Guide
	if w.Prompt != nil || w.Policy != nil || w.Memories != nil {
		if g.SystemPrompt != "" || g.MemoryPolicy != "" || g.InitialMemories != nil {
			return Guide{}, errors.New("mixed field names; use either snake_case or camelCase")
		}
		g.SystemPrompt, g.MemoryPolicy, g.InitialMemories = value(w.Prompt), value(w.Policy), value(w.Memories)
		g.Name = cmp.Or(g.Name, name)
	}
	if g.Name != name {
		return Guide{}, fmt.Errorf("name is %q, want %q", g.Name, name)
	}
	return g, g.Check()
}

// noNull rejects null, which would be the same as a missing field: permissions that are null
// would not restrict anything.
func noNull(body []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return errors.New("want a JSON object")
	}
	for name, v := range fields {
		if string(v) == "null" {
			return fmt.Errorf("%s is null; leave it out", name)
		}
	}
	return nil
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// maxDescription bounds a description, in bytes.
const maxDescription = 1024

// Check validates the guide; the error names the field.
func (g Guide) Check() error {
	if err := g.check(); err != nil {
		return fmt.Errorf("guide %q: %w", g.Name, err)
	}
	return nil
}

// check returns the first fault; the error begins with the field.
func (g Guide) check() error {
	switch {
	case g.MemoryPolicy != "" && !slices.Contains(MemoryPolicies(), g.MemoryPolicy):
		return fmt.Errorf("memory_policy is %q, want one of %q", g.MemoryPolicy, MemoryPolicies())
	case g.Decision != "" && g.Decision != Native && g.Decision != Engine:
		return fmt.Errorf("decision is %q, want %q or %q", g.Decision, Native, Engine)
	case g.Temperature != nil && !(*g.Temperature >= 0 && *g.Temperature <= 2): // false for NaN
		return fmt.Errorf("temperature %g is outside 0 to 2", *g.Temperature)
	case len(g.Description) > maxDescription:
		return fmt.Errorf("description has %d bytes; the limit is %d", len(g.Description), maxDescription)
	case strings.TrimSpace(g.SystemPrompt) == "":
		return errors.New("system_prompt is empty")
	}
	for _, f := range []struct {
		field string
		list  []string
	}{{"provider", g.Providers}, {"tools", g.Tools}, {"permissions", g.Permissions}} {
		if i := slices.Index(f.list, ""); i >= 0 {
			return fmt.Errorf("%s[%d] is empty", f.field, i)
		}
	}
	return g.Limits.check()
}

func (l Limits) check() error {
	for _, f := range []struct {
		field string
		value float64
	}{
		{"rounds", float64(l.Rounds)},
		{"calls", float64(l.Calls)},
		{"tokens", float64(l.Tokens)},
		{"cost_usd", l.CostUSD},
		{"session_cost_usd", l.SessionCostUSD},
		{"wall_ms", float64(l.WallMS)},
		{"model_call_ms", float64(l.ModelCallMS)},
		{"window_turns", float64(l.WindowTurns)},
	} {
		if !(f.value >= 0) { // false for NaN
			return fmt.Errorf("limits.%s is %g, want more than 0", f.field, f.value)
		}
	}
	return nil
}

// System returns the system prompt for the model: the prompt, then the initial memories.
func (g Guide) System() string {
	if len(g.InitialMemories) == 0 {
		return g.SystemPrompt
	}
	var b strings.Builder
	b.WriteString(g.SystemPrompt)
	b.WriteString("\n\nWhat you remember:\n")
	for _, m := range g.InitialMemories {
		b.WriteString("- " + m + "\n")
	}
	return b.String()
}
