package decide

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner"
	"skandha.dev/services/internal/executor"
)

// skillOf returns the skill whose instructions a call has shown, if it limits the tools. A limit
// that cannot be read allows nothing. It is read before plugins and obligations may change the result.
func skillOf(name string, r tool.Result) *event.Skill {
	raw, limits := r.Metadata[executor.MetadataSkill]
	if name != executor.LoadSkill && name != executor.ReadSkill || !r.Success || !limits {
		return nil
	}
	var s event.Skill
	if b, err := json.Marshal(raw); err != nil || json.Unmarshal(b, &s) != nil || s.AllowedTools == nil {
		s.AllowedTools = []string{}
	}
	return &s
}

// limit limits the turn's tools by a loaded skill; nil does not.
func (t *Turn) limit(s *event.Skill) {
	if s == nil || slices.ContainsFunc(t.Skills, func(had event.Skill) bool {
		return had.Name == s.Name && slices.Equal(had.AllowedTools, s.AllowedTools)
	}) {
		return
	}
	t.Skills = append(t.Skills, *s)
}

// excludes returns why the turn may not call a tool because of a loaded skill, or "". The tools
// for skills and those of core itself remain: each step of a plan is a call. Without a turn there is
// no skill.
func (t *Turn) excludes(name string) string {
	if _, own := planner.Own(name); own || t == nil || name == executor.LoadSkill || name == executor.ReadSkill {
		return ""
	}
	for _, s := range t.Skills {
		if !slices.ContainsFunc(s.AllowedTools, func(p string) bool { return allows(p, name) }) {
			return fmt.Sprintf("the skill %s allows only these tools until the turn ends: %s",
				s.Name, strings.Join(append(slices.Clone(s.AllowedTools), "skills:*"), ", "))
		}
	}
	return ""
}

// allows reports whether an entry of allowed-tools is the tool's name, or its beginning and "*".
func allows(entry, name string) bool {
	start, open := strings.CutSuffix(entry, "*")
	return entry == name || open && strings.HasPrefix(name, start)
}
