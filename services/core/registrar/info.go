package registrar

import (
	"time"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/registry"
)

// Op is an operator's operation on a plugin.
type Op string

// The operations.
const (
	OpSuspend Op = "suspend" // see Registrar.Suspend
	OpResume  Op = "resume"  // see Registrar.Resume
	OpUnload  Op = "unload"  // see Registrar.Unload
)

// PluginRequest is an operator's request to service.admin.plugin.
type PluginRequest struct {
	Op     Op             `json:"op"`
	Plugin subject.Plugin `json:"plugin"`
	Force  bool           `json:"force,omitempty"`  // unload: even if others depend on it
	Reason string         `json:"reason,omitempty"` // suspend, unload: shown to users
	Caller subject.Writer `json:"caller,omitempty"` // on whose behalf
}

// PluginInfo describes a plugin for operators.
type PluginInfo struct {
	Name        subject.Plugin    `json:"name"`
	Version     string            `json:"version"`
	Description string            `json:"description,omitempty"`
	Hash        string            `json:"hash"`
	State       plugin.LeaseState `json:"state"`
	Reason      string            `json:"reason,omitempty"` // with waiting, suspended and draining
	Registered  time.Time         `json:"registered"`       // when this manifest was first registered
	// Why lists the reasons why it runs after others in the order of execution; absent
	// for a plugin that is gone.
	Why          []string             `json:"why,omitempty"`
	Instances    []registry.Lease     `json:"instances"`
	Suspended    *registry.Suspension `json:"suspended,omitempty"`
	Priority     int32                `json:"priority,omitempty"`
	Dependencies []subject.Plugin     `json:"dependencies,omitempty"`
	RunAfter     []subject.Plugin     `json:"run_after,omitempty"`
	RunBefore    []subject.Plugin     `json:"run_before,omitempty"`
	Hooks        []plugin.Hook        `json:"hooks,omitempty"`
	Tools        []tool.Spec          `json:"tools,omitempty"`
	Providers    []provider.Info      `json:"providers,omitempty"`
	Storage      *plugin.Storage      `json:"storage,omitempty"`
	Listeners    []plugin.Listener    `json:"listeners,omitempty"`
	Sensors      []plugin.Listener    `json:"sensors,omitempty"`
	Guides       []string             `json:"guides,omitempty"`
}

// Infos describes all plugins: first those that are registered, in the order of execution,
// then those that are gone.
func Infos(s *registry.Snapshot) []PluginInfo {
	plugins := s.Plugins()
	var there []plugin.Manifest
	for _, p := range plugins {
		if p.State != plugin.Gone {
			there = append(there, p.Manifest)
		}
	}
	why := map[subject.Plugin][]string{}
	if positions, err := registry.Explain(there); err == nil { // otherwise Reason names the cycle
		for _, p := range positions {
			why[p.Plugin] = p.Why
		}
	}
	out := make([]PluginInfo, len(plugins))
	for i, p := range plugins {
		out[i] = info(p, why[p.Name()])
	}
	return out
}

func info(p *registry.Plugin, why []string) PluginInfo {
	m := p.Manifest
	i := PluginInfo{
		Name: m.Name, Version: m.Version, Description: m.Description, Hash: p.Hash, State: p.State, Reason: p.Reason,
		Registered: p.Registered, Why: why, Instances: p.Instances, Suspended: p.Suspended, Priority: m.Priority,
		Dependencies: m.Dependencies, RunAfter: m.RunAfter, RunBefore: m.RunBefore, Hooks: m.Hooks, Tools: m.Tools,
		Providers: m.Providers, Storage: m.Storage, Listeners: m.Listeners, Sensors: m.Sensors, Guides: m.Guides,
	}
	if i.Instances == nil {
		i.Instances = []registry.Lease{}
	}
	return i
}
