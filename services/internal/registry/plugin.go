package registry

import (
	"slices"
	"time"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// Plugin is a registered plugin in one [Snapshot]. It never changes and must not be
// changed.
type Plugin struct {
	Manifest   plugin.Manifest   // Instance is empty
	Hash       string            // of the manifest
	State      plugin.LeaseState // Active, Waiting, Suspended, Draining or Gone
	Reason     string            // with Waiting: for what; with Suspended and Draining: why
	Instances  []Lease           // its replicas, by instance; none when it is Gone
	Suspended  *Suspension       // nil unless it is suspended; kept while it is Gone
	Registered time.Time         // when this manifest was accepted first
	Lost       bool              // it is Gone without having unregistered, and no operator has unloaded it since
}

// Name returns the plugin's name.
func (p *Plugin) Name() subject.Plugin { return p.Manifest.Name }

// Lease is one replica of a plugin.
type Lease struct {
	Instance subject.Instance `json:"instance"`
	Since    time.Time        `json:"since"`              // when it registered
	Draining bool             `json:"draining,omitempty"` // it gets no new calls
	Reason   string           `json:"reason,omitempty"`   // why it drains
}

// Suspension records who suspended a plugin, and why. A suspended plugin is not asked.
type Suspension struct {
	By     By        `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// By is the party that suspended a plugin.
type By string

// The parties that may suspend a plugin.
const (
	ByCore     By = "core"     // because it kept failing; lifted when a new instance registers
	ByOperator By = "operator" // only an operator can lift it
)

// Snapshot is the registry at one moment. It never changes.
type Snapshot struct {
	// Revision is the sequence of the bucket's last message that is included. It
	// increases, unless the bucket is lost.
	Revision uint64

	*derived
}

// derived is computed from the bucket's content. Lease renewals do not change it.
type derived struct {
	plugins []*Plugin // first those that are present, in the order of execution, then those that are gone, by name
	byName  map[subject.Plugin]*Plugin
	tools   map[string]*Plugin // active owners
}

// Plugins lists all plugins: first those that are present, in the order in which
// they are asked, then those that are gone, by name.
func (s *Snapshot) Plugins() []*Plugin { return slices.Clone(s.plugins) }

// Get returns the plugin with the name, or nil.
func (s *Snapshot) Get(name subject.Plugin) *Plugin { return s.byName[name] }

// Active reports whether the plugin is active.
func (s *Snapshot) Active(name subject.Plugin) bool {
	p := s.byName[name]
	return p != nil && p.State == plugin.Active
}

// Tool returns the active plugin that owns a tool, and the tool's spec.
func (s *Snapshot) Tool(name string) (*Plugin, tool.Spec, bool) {
	p := s.tools[name]
	if p == nil {
		return nil, tool.Spec{}, false
	}
	for _, t := range p.Manifest.Tools {
		if t.Name == name {
			return p, t, true
		}
	}
	return nil, tool.Spec{}, false
}
