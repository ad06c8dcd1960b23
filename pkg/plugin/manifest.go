package plugin

import (
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// Manifest is what a plugin declares when it registers. The registry rejects manifests with
// unknown fields. All replicas of a plugin send the same manifest, except for Instance.
type Manifest struct {
	Name        subject.Plugin   `json:"name"`                  // its queue group, and a token of its subjects
	Version     string           `json:"version"`               // SemVer 2.0.0
	Instance    subject.Instance `json:"instance"`              // this replica: new at each start
	Description string           `json:"description,omitempty"` // for people
	// higher runs first, among plugins that nothing else orders
	Priority     int32            `json:"priority,omitempty"`
	Dependencies []subject.Plugin `json:"dependencies,omitempty"` // it waits for them and runs after them
	RunAfter     []subject.Plugin `json:"run_after,omitempty"`    // these run before it, if they are registered
	RunBefore    []subject.Plugin `json:"run_before,omitempty"`   // these run after it, if they are registered
	Hooks        []Hook           `json:"hooks,omitempty"`        // served on hook.<point>.<name>
	Tools        []tool.Spec      `json:"tools,omitempty"`        // served on tool.<name>.<encoded tool name>
	Providers    []provider.Info  `json:"providers,omitempty"`    // served on llm.<name>.generate
	Storage      *Storage         `json:"storage,omitempty"`      // served on storage.<name>.<verb>
	Listeners    []Listener       `json:"listeners,omitempty"`    // what people and programs say
	Sensors      []Listener       `json:"sensors,omitempty"`      // what devices measure
	Guides       []string         `json:"guides,omitempty"`       // names; served on guide.<name>
}

// Hook declares that the plugin handles a hook point. A manifest may have each point once.
type Hook struct {
	Point      hook.Point       `json:"point"`
	Mode       hook.Mode        `json:"mode,omitempty"`        // default the point's; configuration overrides it
	DeadlineMS int64            `json:"deadline_ms,omitempty"` // default 2000, at most 60 000
	OnError    hook.OnErrorRule `json:"on_error,omitempty"`    // default the point's
}

// Listener is a source of perceptions.
type Listener struct {
	Name        subject.Writer `json:"name"` // the writer in the subjects of its causes
	Description string         `json:"description,omitempty"`
}

// Storage declares that the plugin is a storage backend.
type Storage struct {
	Verbs       []StorageVerb `json:"verbs,omitempty"` // the verbs that it serves
	Index       bool          `json:"index,omitempty"` // it serves all of IndexVerbs, too
	Description string        `json:"description,omitempty"`
}
