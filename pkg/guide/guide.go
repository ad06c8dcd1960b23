// Package guide defines the guide of an agent: its system prompt, its temperature and what it
// remembers.
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

// Guide is the guide of the specification, as data.
type Guide struct {
	Name            string       `json:"name"`
	SystemPrompt    string       `json:"system_prompt"`
	Temperature     *float64     `json:"temperature,omitempty"`      // absent: none is sent
	MemoryPolicy    MemoryPolicy `json:"memory_policy,omitempty"`    // default sliding-window
	InitialMemories []string     `json:"initial_memories,omitempty"` // always shown, never removed from the window
	// Permissions restrict those of the agent: a tool needs each of its permissions in both.
	// "fs.*" means a whole group. If nil, the agent has all of its permissions.
	Permissions []string `json:"permissions,omitzero"`
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

// Check validates the guide; the error names the field.
func (g Guide) Check() error {
	if g.MemoryPolicy != "" && !slices.Contains(MemoryPolicies(), g.MemoryPolicy) {
		return fmt.Errorf("guide %q: unknown memory_policy %q, want one of %q", g.Name, g.MemoryPolicy, MemoryPolicies())
	}
	if g.Temperature != nil && (*g.Temperature < 0 || *g.Temperature > 2) {
		return fmt.Errorf("guide %q: temperature %g is outside 0 to 2", g.Name, *g.Temperature)
	}
	if strings.TrimSpace(g.SystemPrompt) == "" {
		return fmt.Errorf("guide %q: system_prompt is empty", g.Name)
	}
	return nil
}

// And returns g followed by other: the prompt and the memories of other are appended, and its
// temperature, if it sets one, overrides that of g.
func (g Guide) And(other Guide) Guide {
	switch {
	case g.SystemPrompt == "":
		g.SystemPrompt = other.SystemPrompt
	case other.SystemPrompt != "":
		g.SystemPrompt += "\n\n" + other.SystemPrompt
	}
	if other.Temperature != nil {
		g.Temperature = other.Temperature
	}
	g.InitialMemories = slices.Concat(g.InitialMemories, other.InitialMemories)
	return g
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
