package core

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"skandha.dev/services/internal/configfile"
)

// CheckNotify reports the rules of notifications that name no listener of the same file. A file
// without listeners says nothing about them. Nothing refuses to start for it: a plugin may deliver.
func CheckNotify(path string) error {
	c, err := ReadConfig(path)
	if err != nil {
		return err
	}
	_, err = configfile.Read(path, func([]byte) (Config, error) { return c, nil }, Config.undelivered)
	return err
}

func (c Config) undelivered() error {
	if c.Listeners.Kind != yaml.MappingNode {
		return nil
	}
	names := slices.Sorted(slices.Values(c.listenerNames()))
	var errs []error
	for i, r := range c.Notify.Rules {
		if !slices.Contains(names, r.Via) {
			errs = append(errs, fmt.Errorf("notify.rules[%d].via is %q, which is no listener of this file: want one of %s; "+
				"only a plugin could deliver it", i, r.Via, cmp.Or(strings.Join(names, ", "), "(none)")))
		}
	}
	return errors.Join(errs...)
}

// listenerNames returns the names of the listeners of the same file, by kind. The listener service
// checks the section.
func (c Config) listenerNames() (out []string) {
	for kind, all := range pairs(&c.Listeners) {
		if kind == "http" { // the server of those that are reached by HTTP
			continue
		}
		for name := range pairs(all) {
			out = append(out, name)
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
