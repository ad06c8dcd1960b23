package core

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"skandha.dev/services/core/guidefile"
)

// CheckGuides reads the files of all guides that the agents of a configuration file name, and
// reports what is wrong with them, with their lines. Guides without a file may be of plugins.
func CheckGuides(path string) error {
	c, err := ReadConfig(path)
	if err != nil {
		return err
	}
	agents, _, err := c.Build()
	if err != nil {
		return err
	}
	var errs []error
	checked := map[string]bool{}
	for _, agent := range slices.Sorted(maps.Keys(agents)) {
		a := agents[agent]
		for _, name := range a.Guides {
			g, _, err := guidefile.Read(c.GuidesDir, name)
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil && !checked[name]:
				errs = append(errs, err)
			case err == nil:
				if err = a.Accepts(g); err != nil {
					errs = append(errs, fmt.Errorf("guide %s of agent %s: %w", name, agent, err))
				}
			}
			checked[name] = true
		}
	}
	return errors.Join(errs...)
}
