package plugins

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/services/core/dispatch"
	"skandha.dev/services/internal/registry"
)

func budgets(points map[hook.Point]PointConfig) map[hook.Point]time.Duration {
	out := map[hook.Point]time.Duration{}
	for point, c := range points {
		out[point] = c.Budget
	}
	return out
}

// hooked lists the plugins of each hook point, in order. Those that the configuration
// requires come last, in its order. At before_act they are the judges.
func hooked(s *registry.Snapshot, points map[hook.Point]PointConfig) []dispatch.Hooked {
	out := absent(s, points)
	for _, pl := range s.Plugins() {
		var unasked string
		switch {
		case pl.State == plugin.Active:
		case pl.State == plugin.Suspended:
			unasked = "it is " + pl.Reason
		case pl.Lost:
			unasked = "it is gone without having unregistered; start it again, or unload it if it should not return"
		default:
			continue
		}
		for _, h := range pl.Manifest.Hooks {
			c := points[h.Point]
			required := slices.Contains(c.Required, pl.Name())
			if pl.State == plugin.Gone && (required || h.Point != hook.BeforeAct) {
				continue // absent reports it, or nobody needs to know
			}
			entry := dispatch.Hooked{
				Plugin: pl.Name(), Point: h.Point, Mode: cmp.Or(c.Mode, h.Mode), OnError: cmp.Or(c.OnError, h.OnError),
				OnSilence: cmp.Or(c.OnError, hook.Allow), // a plugin that is not required blocks no call by its silence
				Deadline:  time.Duration(h.DeadlineMS) * time.Millisecond, Unasked: unasked,
			}
			if required {
				entry.OnError, entry.OnSilence = hook.Deny, hook.Deny
				entry.Judge, entry.Required = h.Point == hook.BeforeAct, h.Point != hook.BeforeAct
			}
			out = append(out, entry)
		}
	}
	place := func(h dispatch.Hooked) int {
		return slices.Index(points[h.Point].Required, h.Plugin) // -1: the others, which come first
	}
	slices.SortStableFunc(out, func(a, b dispatch.Hooked) int { return place(a) - place(b) })
	return out
}

// absent lists the plugins that a point requires and that are missing.
func absent(s *registry.Snapshot, points map[hook.Point]PointConfig) []dispatch.Hooked {
	var out []dispatch.Hooked
	for _, point := range hook.Points() {
		for _, name := range points[point].Required {
			pl := s.Get(name)
			why := "it is required but not registered"
			switch {
			case pl == nil:
			case pl.State != plugin.Active && pl.State != plugin.Suspended:
				why = fmt.Sprintf("it is required but %s", pl.State)
			case !slices.ContainsFunc(pl.Manifest.Hooks, func(h plugin.Hook) bool { return h.Point == point }):
				why = "it is required but declares no hook here"
			default:
				continue
			}
			out = append(out, dispatch.Hooked{
				Plugin: name, Point: point, Mode: points[point].Mode, OnError: hook.Deny, Unasked: why,
				Judge: point == hook.BeforeAct, Required: point != hook.BeforeAct,
			})
		}
	}
	return out
}
