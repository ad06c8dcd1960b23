package plugins

import (
	"cmp"
	"slices"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/core/dispatch"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/registry"
)

// Info returns the hook points and the plugins there, for operators.
func (p *Host) Info() coreapi.HooksInfo {
	out := coreapi.HooksInfo{Instance: p.deps.Bus.Instance()}
	t := p.pin.Load().Hooks
	for _, point := range hook.Points() {
		i := coreapi.PointInfo{
			Point: point, Mode: cmp.Or(p.cfg.Points[point].Mode, point.DefaultMode()),
			BudgetMS: cmp.Or(p.cfg.Points[point].Budget, dispatch.DefaultBudget).Milliseconds(), Plugins: []coreapi.HookInfo{},
		}
		for _, h := range t.Hooks(point) {
			u := p.engine.Use(point, h.Plugin)
			i.Plugins = append(i.Plugins, coreapi.HookInfo{
				Plugin: h.Plugin, Mode: h.Mode, OnError: h.OnError, OnSilence: h.OnSilence, Judge: h.Judge,
				DeadlineMS: h.Deadline.Milliseconds(), Unasked: h.Unasked,
				Asked: u.Asked, Failed: u.Failed, P50US: u.P50.Microseconds(), P99US: u.P99.Microseconds(), LastError: u.LastError,
			})
		}
		out.Points = append(out.Points, i)
	}
	return out
}

// HookUse returns what /metrics shows of the hooks.
func (p *Host) HookUse() []commands.HookUse {
	var out []commands.HookUse
	for _, point := range p.Info().Points {
		for _, h := range point.Plugins {
			if h.Asked > 0 {
				out = append(out, commands.HookUse{
					Point: string(point.Point), Plugin: string(h.Plugin), Asked: h.Asked, Failed: h.Failed, P50US: h.P50US,
					P99US: h.P99US,
				})
			}
		}
	}
	return out
}

// List returns what /plugins lists, in the order of execution.
func List(s *registry.Snapshot) []commands.Plugin {
	var out []commands.Plugin
	for _, p := range s.Plugins() {
		m := p.Manifest
		u := commands.Plugin{Name: m.Name, Version: m.Version, State: string(p.State), Reason: p.Reason}
		for _, h := range m.Hooks {
			u.Hooks = append(u.Hooks, string(h.Point))
		}
		for _, t := range m.Tools {
			u.Tools = append(u.Tools, t.Name)
		}
		for _, i := range m.Providers {
			u.Other = append(u.Other, "provider "+i.Name)
		}
		if m.Storage != nil {
			u.Other = append(u.Other, "storage")
		}
		for _, l := range slices.Concat(m.Listeners, m.Sensors) {
			u.Other = append(u.Other, "listener "+string(l.Name))
		}
		for _, g := range m.Guides {
			u.Other = append(u.Other, "guide "+g)
		}
		out = append(out, u)
	}
	return out
}

// Brings returns what reports whether a writer is a listener or a sensor from outside: one that a plugin has declared, or
// that somebody was invited for, whether they register or not.
func (p *Host) Brings(s *registry.Snapshot) func(subject.Writer) bool {
	return func(w subject.Writer) bool {
		return p.deps.Charters != nil && p.deps.Charters.Listens(w) || declared(s, w)
	}
}

func declared(s *registry.Snapshot, w subject.Writer) bool {
	return slices.ContainsFunc(s.Plugins(), func(p *registry.Plugin) bool {
		return slices.ContainsFunc(slices.Concat(p.Manifest.Listeners, p.Manifest.Sensors),
			func(l plugin.Listener) bool { return l.Name == w })
	})
}
