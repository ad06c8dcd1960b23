package decide

import (
	"encoding/json"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner"
	"skandha.dev/services/internal/text"
)

// Bounds of what a turn leaves for the memory.
const (
	maxAsked      = 2 << 10 // bytes of the input
	maxLessons    = 3
	maxLessonText = 400 // bytes of each of its texts
)

// learned returns what the turn leaves for the agent's memory, nil if the agent has none.
func (b *builder) learned() *event.Learned {
	t := b.s.Turn
	if b.env.Memory == nil || b.agent().Guide.MemoryPolicy != guide.VectorDB {
		return nil
	}
	l := &event.Learned{
		Asked: text.Cut(t.Text, maxAsked), Writer: t.Writer, Origin: Origin(b.s, b.env.Tools.Lookup), Lessons: b.s.lessons(),
	}
	if b.env.Outside != nil && b.env.Outside(t.Writer) {
		l.Origin = memory.FromWeb
	}
	return l
}

// Origin returns the least trusted origin of what the model sees in the open turn: other
// people's texts, if it has read an input from outside, the result of a tool that reaches the
// network or that brings such a text, or a memory of them since the last /reset, or a file, or if
// the input came by a webhook; a tool's, if it has read any result; otherwise its own words. A summary of such
// texts counts as they do; another one, the notes of a project and an answer of a plugin as a tool's.
func Origin(s *State, lookup func(name string) (tool.Spec, bool)) memory.Origin {
	worst := worse(memory.FromAgent, s.Recalled)
	if s.Summary != nil || s.Project.Text != "" {
		worst = worse(worst, memory.FromTool)
	}
	if s.Summary != nil && len(s.Summary.After) > 0 {
		worst = memory.FromWeb
	}
	if s.Turn != nil && event.Outside("", s.Turn.Source) != "" {
		worst = memory.FromWeb
	}
	for _, e := range s.Window {
		switch {
		case len(e.After) > 0:
			worst = memory.FromWeb
		case e.source.result:
			worst = worse(worst, originOf(e.source.tool, lookup))
		case e.source.files, e.source.outside != "":
			worst = memory.FromWeb
		}
	}
	if s.Turn != nil && slices.ContainsFunc(s.Turn.Steps, func(st Step) bool { return len(st.labels(lookup)) > 0 }) {
		worst = memory.FromWeb // a plugin's call may repeat it before the model sees it
	}
	return worst
}

// worse returns the less trusted of two origins; "" is none.
func worse(a, b memory.Origin) memory.Origin {
	if slices.Index(memory.Origins(), b) > slices.Index(memory.Origins(), a) {
		return b
	}
	return a
}

// originOf returns the origin of a tool's results. Of a tool that nobody offers any more, the
// worst is assumed. The result of a plan brings the labels of its steps.
func originOf(name string, lookup func(name string) (tool.Spec, bool)) memory.Origin {
	if _, own := planner.Own(name); own {
		return memory.FromTool
	}
	spec, known := lookup(name)
	if !known || slices.ContainsFunc(spec.Permissions, outward) {
		return memory.FromWeb
	}
	return memory.FromTool
}

// outward reports whether what a tool with the permission returns is what other people wrote, or
// hold before a camera.
func outward(permission string) bool {
	return strings.HasPrefix(permission, "network.") || strings.HasPrefix(permission, "camera.")
}

// messages returns the messages of a turn.
func (s *State) messages(turn string) []provider.Message {
	var out []provider.Message
	for _, e := range s.Window {
		var m provider.Message
		if e.Turn == turn && json.Unmarshal(e.Msg, &m) == nil {
			out = append(out, m)
		}
	}
	return out
}

// lessons returns how calls of the open turn were corrected: for each tool, its first call
// that failed, and the next one of it that succeeded.
func (s *State) lessons() (out []event.Lesson) {
	args := map[string]string{}
	open := map[string]event.Lesson{} // by tool
	for _, m := range s.messages(s.Turn.ID) {
		for _, c := range m.ToolCalls {
			args[c.ID] = text.Cut(string(c.Args), maxLessonText)
		}
		if m.Role != provider.RoleTool {
			continue
		}
		l, failed := open[m.Tool]
		switch {
		case m.Failed && !failed:
			open[m.Tool] = event.Lesson{
				Tool: m.Tool, Failed: args[m.CallID] + " → " + text.Cut(m.Text, maxLessonText),
			}
		case !m.Failed && failed && len(out) < maxLessons && l.Worked == "":
			l.Worked = args[m.CallID]
			out, open[m.Tool] = append(out, l), l
		}
	}
	return out
}
