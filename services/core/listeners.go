package core

import (
	"gopkg.in/yaml.v3"

	"skandha.dev/pkg/subject"
)

// listenerNames returns the names of the listeners of the same file, by kind. The listener service
// checks the section.
func (c Config) listenerNames() (out []subject.Writer) {
	for kind, all := range pairs(&c.Listeners) {
		if kind == "http" { // the server of those that are reached by HTTP
			continue
		}
		for name := range pairs(all) {
			out = append(out, subject.Writer(name))
		}
	}
	return out
}

// pairs yields the keys and values of a mapping, and nothing of another node.
func pairs(n *yaml.Node) func(yield func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		for n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, n.Content[i+1]) {
				return
			}
		}
	}
}
