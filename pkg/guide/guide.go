// Package guide is the contract of an agent's character: what it is told before
// everything else, how freely it thinks and what it remembers.
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

// MemoryPolicy is how the conversation is cut to what the model sees.
type MemoryPolicy string

// SlidingWindow shows the latest turns, whole, within the guide's window.
const SlidingWindow MemoryPolicy = "sliding-window"

// Guide is the specification's guide plugin as data.
type Guide struct {
	Name            string       `json:"name"`
	SystemPrompt    string       `json:"system_prompt"`
	Temperature     *float64     `json:"temperature,omitempty"`      // absent: none is sent
	MemoryPolicy    MemoryPolicy `json:"memory_policy,omitempty"`    // default sliding-window
	InitialMemories []string     `json:"initial_memories,omitempty"` // priming: pinned, never slides out
	// Permissions narrow those of the agent: a tool needs each of its permissions in both.
	// "fs.*" is all of a group. Nil: all that the agent has.
	Permissions []string `json:"permissions,omitzero"`
}

// Decode reads what a plugin answered when it was asked for the guide of that name. An
// unknown field, another name and an empty prompt are errors. The specification's own field
// names (systemPrompt, memoryPolicy, initialMemories) are accepted, too; it has no name.
func Decode(body []byte, name string) (Guide, error) {
	var w struct {
		Guide
		Prompt   *string       `json:"systemPrompt"`
		Policy   *MemoryPolicy `json:"memoryPolicy"`
		Memories *[]string     `json:"initialMemories"`
	}
	if err := strictjson.Names(body, &w); err != nil {
		return Guide{}, fmt.Errorf("it is no guide: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return Guide{}, fmt.Errorf("it is no guide: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Guide{}, errors.New("it is no guide: something follows the JSON object")
	}
	if err := noNull(body); err != nil {
		return Guide{}, fmt.Errorf("it is no guide: %w", err)
	}
	g := w.Guide
	if w.Prompt != nil || w.Policy != nil || w.Memories != nil {
		if g.SystemPrompt != "" || g.MemoryPolicy != "" || g.InitialMemories != nil {
			return Guide{}, errors.New("the field names are mixed; want either snake_case or camelCase")
		}
		g.SystemPrompt, g.MemoryPolicy, g.InitialMemories = value(w.Prompt), value(w.Policy), value(w.Memories)
		g.Name = cmp.Or(g.Name, name)
	}
	if g.Name != name {
		return Guide{}, fmt.Errorf("it is the guide %q, want %q", g.Name, name)
	}
	return g, g.Check()
}

// noNull refuses null, which would count as absent: of permissions it would give all.
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

// Check refuses what would only fail later; the error names the field.
func (g Guide) Check() error {
	if g.MemoryPolicy != "" && g.MemoryPolicy != SlidingWindow {
		return fmt.Errorf("guide %q: memory_policy %q is unknown, want %q", g.Name, g.MemoryPolicy, SlidingWindow)
	}
	if g.Temperature != nil && (*g.Temperature < 0 || *g.Temperature > 2) {
		return fmt.Errorf("guide %q: temperature %g is outside 0 to 2", g.Name, *g.Temperature)
	}
	if strings.TrimSpace(g.SystemPrompt) == "" {
		return fmt.Errorf("guide %q: system_prompt is empty", g.Name)
	}
	return nil
}

// And is g with other behind it: its prompt and its memories come later, and its
// temperature, if it sets one, wins.
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

// System is the text a model gets: the prompt, then the pinned memories.
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
