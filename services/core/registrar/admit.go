package registrar

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/registry"
	"skandha.dev/services/internal/toolschema"
)

// reserved lists the names that no plugin may have, because core answers under them.
var reserved = []subject.Plugin{ServiceName}

// refusal lists everything that is wrong with a manifest.
type refusal struct {
	invalid   plugin.Problems // faults of the manifest itself
	conflicts plugin.Problems // conflicts with plugins that are registered now
}

func (f *refusal) conflict(path, format string, args ...any) {
	f.conflicts = append(f.conflicts, plugin.Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

// err returns the refusal as an error, or nil if nothing is wrong.
func (f *refusal) err() error {
	all := slices.Concat(f.invalid, f.conflicts)
	switch {
	case len(f.invalid) > 0:
		return bus.Errorf(bus.CodeInvalidArgument, "the manifest is refused: %v", all)
	case len(f.conflicts) > 0:
		return bus.Errorf(bus.CodeConflict, "the manifest is refused: %v", all)
	}
	return nil
}

// inspect finds the faults of the manifest itself, including names that belong to built-in
// services.
func (r *Registrar) inspect(body []byte, name subject.Plugin) (plugin.Manifest, plugin.Problems) {
	m, err := plugin.DecodeManifest(body)
	var found plugin.Problems
	if err != nil && !errors.As(err, &found) {
		found = plugin.Problems{{Message: err.Error()}}
	}
	add := func(path, format string, args ...any) {
		if !found.At(path) {
			found = append(found, plugin.Problem{Path: path, Message: fmt.Sprintf(format, args...)})
		}
	}
	if m.Name != "" && m.Name != name {
		add("name", "is %q, but the subject belongs to plugin %s", m.Name, name)
	}
	if slices.Contains(reserved, m.Name) {
		add("name", "%q is reserved", m.Name)
	}
	for i, l := range slices.Concat(m.Listeners, m.Sensors) {
		what := "listeners"
		if i >= len(m.Listeners) {
			what, i = "sensors", i-len(m.Listeners)
		}
		if strings.HasPrefix(string(l.Name), string(subject.Person(""))) {
			add(fmt.Sprintf("%s[%d].name", what, i),
				"%q is reserved: names that begin with ui- belong to users of the UI bridge", l.Name)
		}
	}
	for i, t := range m.Tools {
		if _, err := toolschema.Compile(t); err != nil {
			prefix := fmt.Sprintf("%v of %q: ", toolschema.ErrSchema, t.Name)
			add(fmt.Sprintf("tools[%d].args", i), "%s", strings.TrimPrefix(err.Error(), prefix))
		}
	}
	for _, n := range names(m) {
		if owner, taken := r.cfg.Owner(n.kind, n.name); taken && n.name != "" {
			add(n.path, "%q is a built-in %s, of %s; choose another name", n.name, n.kind, owner)
		}
	}
	return m, found
}

// name is one name that a manifest claims.
type name struct {
	kind Kind
	name string
	path string
}

// key returns the form in which names are compared: names with equal keys conflict.
func (n name) key() string {
	if n.kind == KindTool {
		return tool.FoldName(n.name)
	}
	return n.name
}

// names lists all names that a manifest claims.
func names(m plugin.Manifest) []name {
	out := []name{{KindPlugin, string(m.Name), "name"}}
	for i, t := range m.Tools {
		out = append(out, name{KindTool, t.Name, fmt.Sprintf("tools[%d].name", i)})
	}
	for i, p := range m.Providers {
		out = append(out, name{KindProvider, p.Name, fmt.Sprintf("providers[%d].name", i)})
	}
	for i, l := range m.Listeners {
		out = append(out, name{KindListener, string(l.Name), fmt.Sprintf("listeners[%d].name", i)})
	}
	for i, l := range m.Sensors {
		out = append(out, name{KindListener, string(l.Name), fmt.Sprintf("sensors[%d].name", i)})
	}
	for i, g := range m.Guides {
		out = append(out, name{KindGuide, g, fmt.Sprintf("guides[%d]", i)})
	}
	return out
}

// compare checks a manifest against the plugins that own their names, except some.
func compare(c *registry.Content, m plugin.Manifest, hash string, except []subject.Plugin) (f refusal) {
	type owned struct {
		kind Kind
		name string
	}
	owners := map[owned]subject.Plugin{}
	order := []plugin.Manifest{m}
	for p, rec := range c.Records {
		if p == m.Name || !c.Owns(p) || slices.Contains(except, p) {
			continue
		}
		order = append(order, rec.Manifest)
		for _, n := range names(rec.Manifest) {
			owners[owned{n.kind, n.key()}] = p
		}
	}
	for _, n := range names(m) {
		if p, taken := owners[owned{n.kind, n.key()}]; taken {
			f.conflict(n.path, "%q is a %s of plugin %s; choose another name, or unload that plugin", n.name, n.kind, p)
		}
	}
	old := c.Records[m.Name]
	if old != nil && old.Hash != hash && c.Owns(m.Name) && !slices.Contains(except, m.Name) {
		f.conflict("version", "plugin %s %s is registered with another manifest (this one is %s) and has %d replicas; "+
			"unload it first (skandha plugins unload %s), or rename this one",
			m.Name, old.Manifest.Version, m.Version, len(c.Live(m.Name)), m.Name)
	}
	var cycle *registry.CycleError
	if _, err := registry.Order(order); errors.As(err, &cycle) {
		f.conflict(edgePath(m, cycle), "%v", cycle)
	}
	return f
}

// edgePath returns the path of the manifest's field that makes one of the cycle's edges.
func edgePath(m plugin.Manifest, cycle *registry.CycleError) string {
	for _, e := range cycle.Edges {
		if e.Of != m.Name {
			continue
		}
		list, other := m.Dependencies, e.Before
		switch e.Field {
		case "run_after":
			list = m.RunAfter
		case "run_before":
			list, other = m.RunBefore, e.After
		}
		return fmt.Sprintf("%s[%d]", e.Field, slices.Index(list, other))
	}
	return "" // the cycle is among the other plugins, which admission does not allow
}
