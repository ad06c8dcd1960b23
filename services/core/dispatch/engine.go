// Package dispatch is the hook engine: it asks the plugins registered at a hook
// point and folds their answers into one decision.
//
// With no plugin at a point nothing is built, nothing is sent and nothing
// leaves the process.
package dispatch

import (
	"maps"
	"sync/atomic"

	"skandha.dev/pkg/hook"
)

// Engine runs hooks. The zero value has no plugins.
type Engine struct {
	table atomic.Pointer[table]
}

// table is what is registered; it is replaced as a whole, never changed.
type table struct {
	points map[hook.Point]Runner
}

// Runner asks the plugins of one point, in the point's mode.
type Runner func(hook.Envelope) hook.Decision

// Set replaces what is registered at every point, at once.
func (e *Engine) Set(points map[hook.Point]Runner) { e.table.Store(&table{maps.Clone(points)}) }

// Any implements decide.Hooks.
func (e *Engine) Any(p hook.Point) bool {
	t := e.table.Load()
	return t != nil && t.points[p] != nil
}

// Run implements decide.Hooks.
func (e *Engine) Run(env hook.Envelope) hook.Decision {
	if t := e.table.Load(); t != nil {
		if run := t.points[env.Point]; run != nil {
			return run(env)
		}
	}
	return hook.Decision{Verb: hook.Continue}
}
