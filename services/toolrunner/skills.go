package toolrunner

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/periodic"
	"skandha.dev/services/internal/toolschema"
	"skandha.dev/services/toolrunner/tools/skills"
)

// skillsCheck is the interval at which the skills are read again.
const skillsCheck = 2 * time.Second

// skillTools are the tools for skills. They are offered while there are skills, which are listed
// in the description of skills:load.
type skillTools struct {
	library *skills.Library
	names   []string // in the order of the offer
	tools   map[string]offered
}

func newSkillTools(cfg Config, root *os.Root) (*skillTools, error) {
	s := &skillTools{
		library: skills.New(skills.InWorkspace(root, cfg.Protected...), skills.InDirectory(cfg.SkillsDir)),
		tools:   map[string]offered{},
	}
	var errs []error
	for _, t := range s.library.Tools() {
		if !cfg.wants(t.Spec.Name) {
			continue
		}
		v, err := toolschema.Compile(t.Spec)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		t.Spec.Args = v.Schema()
		s.tools[t.Spec.Name] = offered{t, v}
		s.names = append(s.names, t.Spec.Name)
	}
	return s, errors.Join(errs...)
}

// specs returns the specs with the list of skills.
func (s *skillTools) specs(list string) (out []tool.Spec) {
	for _, name := range s.names {
		spec := s.tools[name].Spec
		if name == skills.NameLoad {
			spec.Description += list
		}
		out = append(out, spec)
	}
	return out
}

// followSkills offers the tools for skills from now on, until the returned function is called.
func (r *runner) followSkills(ctx context.Context, log *slog.Logger) (stop func()) {
	if len(r.skills.names) == 0 {
		return func() {}
	}
	var known []string // faults that are logged
	refresh := func() {
		list, wrong := r.skills.library.List()
		var specs []tool.Spec
		if len(list) > 0 {
			specs = r.skills.specs(skills.Describe(list))
		}
		r.offers.put(func(o *offering) { o.skills = specs })
		var faults []string
		for _, err := range wrong {
			if faults = append(faults, err.Error()); !slices.Contains(known, err.Error()) {
				log.Warn("a skill is not offered", "error", err)
			}
		}
		known = faults
	}
	refresh()
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { periodic.Every(ctx, skillsCheck, refresh) })
	return func() { cancel(); done.Wait() }
}
