package rights

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
)

// Refuse returns what of a manifest the charter does not grant, with what would grant it.
func (c Charter) Refuse(m plugin.Manifest) (out plugin.Problems) {
	refuse := func(path, format string, args ...any) {
		out = append(out, plugin.Problem{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	for i, h := range m.Hooks {
		at := fmt.Sprintf("hooks[%d]", i)
		switch mark, granted := c.Mark(h.Point); {
		case !granted:
			refuse(at+".point", "the charter of %s does not grant %s; invite it again with --hooks %s", c.Name, h.Point, h.Point)
		case cmp.Or(h.OnError, h.Point.DefaultOnError()) == hook.Deny && mark != Judge:
			refuse(at+".on_error", "a hook that denies when it fails is a judge, which the charter of %s does not grant at %s; "+
				"set on_error to allow, or invite it again with --hooks %s:%s", c.Name, h.Point, h.Point, Judge)
		}
	}
	for i, t := range m.Tools {
		if space, _, _ := strings.Cut(t.Name, ":"); !includes(c.Tools, space) {
			refuse(fmt.Sprintf("tools[%d].name", i), "the charter of %s does not grant tools called %s:…; "+
				"invite it again with --tools %s", c.Name, space, space)
		}
	}
	for i, p := range m.Providers {
		if !includes(c.Providers, p.Name) {
			refuse(fmt.Sprintf("providers[%d].name", i), "the charter of %s does not grant the provider %s; "+
				"invite it again with --providers %s", c.Name, p.Name, p.Name)
		}
	}
	for field, list := range map[string][]plugin.Listener{"listeners": m.Listeners, "sensors": m.Sensors} {
		for i, l := range list {
			if !slices.Contains(c.Listeners, l.Name) {
				refuse(fmt.Sprintf("%s[%d].name", field, i), "the charter of %s does not grant the listener %s; "+
					"invite it again with --listener %s", c.Name, l.Name, l.Name)
			}
		}
	}
	if m.Storage != nil && !c.Storage {
		refuse("storage", "the charter of %s does not grant storage; invite it again with --storage", c.Name)
	}
	if len(m.Guides) > 0 && !c.Guides {
		refuse("guides", "the charter of %s does not grant guides; invite it again with --guides", c.Name)
	}
	if !c.Order {
		for path, set := range map[string]bool{
			"priority": m.Priority != 0, "run_after": len(m.RunAfter) > 0, "run_before": len(m.RunBefore) > 0,
		} {
			if set {
				refuse(path, "the charter of %s does not grant a place in the order; leave it out, or invite it again with --order",
					c.Name)
			}
		}
	}
	slices.SortFunc(out, func(a, b plugin.Problem) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// Mark returns the mark of a hook point: Judge, Observe or none; granted is false if the charter
// does not name the point.
func (c Charter) Mark(p hook.Point) (mark string, granted bool) {
	for _, h := range c.Hooks {
		point, m, _ := strings.Cut(h, ":")
		if point == string(p) {
			return m, true // it says more than *
		}
		if point == Any {
			mark, granted = m, true
		}
	}
	return mark, granted
}

// Allows reports whether a plugin with the charter may give a verdict at a hook point.
func (c Charter) Allows(p hook.Point, v hook.Verb) bool {
	mark, granted := c.Mark(p)
	switch {
	case !granted:
		return false
	case v == hook.Continue || mark == Judge:
		return true
	case mark == Observe:
		return false
	}
	return v != hook.DenyVerb && v != hook.Confirm
}

// Serves reports whether the charter names an agent.
func (c Charter) Serves(a subject.Agent) bool {
	return len(c.Agents) == 0 || slices.Contains(c.Agents, a)
}

func includes(list []string, name string) bool {
	return slices.Contains(list, name) || slices.Contains(list, Any)
}
