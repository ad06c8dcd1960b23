package registry

import (
	"slices"
	"time"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// Plugin is a plugin that registered, as one [Snapshot] has it. It never changes
// and must not be changed.
type Plugin struct {
	Manifest   plugin.Manifest   // Instance is empty
	Hash       string            // of the manifest
	State      plugin.LeaseState // Active, Waiting, Suspended, Draining or Gone
	Reason     string            // with Waiting: for what; with Suspended and Draining: why
	Instances  []Lease           // its replicas, by instance; none when it is Gone
	Suspended  *Suspension       // nil unless it is suspended; kept while it is Gone
	Registered time.Time         // when this manifest was accepted first
	Lost       bool              // it is Gone without having said so, and nobody has unloaded it since
}

// Name is the plugin's name.
func (p *Plugin) Name() subject.Plugin { return p.Manifest.Name }

// Lease is one replica of a plugin.
type Lease struct {
	Instance subject.Instance `json:"instance"`
	Since    time.Time        `json:"since"`              // when it registered
	Draining bool             `json:"draining,omitempty"` // it gets no new calls
	Reason   string           `json:"reason,omitempty"`   // why it drains
}

// Suspension says that a plugin is not asked any more, and why.
type Suspension struct {
	By     By        `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// By is who suspended a plugin.
type By string

// Who may suspend.
const (
	ByCore     By = "core"     // it kept failing; lifted when a new instance registers
	ByOperator By = "operator" // a person; lifted by a person alone
)

// Snapshot is the registry at one moment. It never changes.
type Snapshot struct {
	// Revision is the sequence of the last message of the bucket that it takes
	// into account. It grows, but not over a loss of the bucket.
	Revision uint64

	*derived
}

// derived is what follows from the bucket's content; lease renewals leave it alone.
type derived struct {
	plugins []*Plugin // those that are not gone in the order of execution, then those that are, by name
	byName  map[subject.Plugin]*Plugin
	tools   map[string]*Plugin // active owners
}

// Plugins lists all plugins: first those that are there, in the order in which
// they are asked, then those that are gone, by name.
func (s *Snapshot) Plugins() []*Plugin { return slices.Clone(s.plugins) }

// Get returns the plugin of the name, or nil.
func (s *Snapshot) Get(name subject.Plugin) *Plugin { return s.byName[name] }

// Active reports whether the plugin is there and asked.
func (s *Snapshot) Active(name subject.Plugin) bool {
	p := s.byName[name]
	return p != nil && p.State == plugin.Active
}

// Tool finds the active plugin that owns a tool.
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
