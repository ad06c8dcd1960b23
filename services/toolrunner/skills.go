package toolrunner

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/periodic"
	"skandha.dev/services/internal/toolschema"
	"skandha.dev/services/toolrunner/tools/agentsmd"
	"skandha.dev/services/toolrunner/tools/skills"
)

// workspaceCheck is the interval at which skills and project notes are read again.
const workspaceCheck = 2 * time.Second

// skillTools are the tools for skills. They are offered while there are skills, which are listed
// in the description of skills:load.
type skillTools struct {
	library *skills.Library
	names   []string // in the order of the offer
	tools   map[string]offered
}

func newSkillTools(cfg Config, root *os.Root) (*skillTools, error) {
	places := []skills.Place{skills.InDirectory(cfg.SkillsDir)}
	if cfg.instructs() {
		places = slices.Insert(places, 0, skills.InWorkspace(root, cfg.protected()...))
	}
	s := &skillTools{library: skills.New(places...), tools: map[string]offered{}}
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
		if name == executor.LoadSkill {
			spec.Description += list
		}
		out = append(out, spec)
	}
	return out
}

// followWorkspace offers the tools for skills and announces the project notes from now on, until
// the returned function is called.
func (r *runner) followWorkspace(ctx context.Context, root *os.Root, log *slog.Logger) (stop func()) {
	var known []string // faults that are logged
	var project *event.Project
	refresh := func() {
		offered, wrong := r.skills.offered()
		if r.cfg.instructs() && r.cfg.wants(executor.ReadFile) { // who cannot read the file does not get it
			now, err := agentsmd.Read(root, r.cfg.protected()...)
			if err != nil { // it may be half written: what was read before stays
				wrong = append(wrong, err)
			} else {
				project = now
			}
		}
		r.offers.put(func(o *offering) { o.skills, o.project = offered, project })
		var faults []string
		for _, err := range wrong {
			if faults = append(faults, err.Error()); !slices.Contains(known, err.Error()) {
				log.Warn("a skill or AGENTS.md is not used", "error", err)
			}
		}
		known = faults
	}
	refresh()
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { periodic.Every(ctx, workspaceCheck, refresh) })
	return func() { cancel(); done.Wait() }
}

// offered returns the tools for skills as they are offered now, and what is wrong with skills.
func (s *skillTools) offered() (specs []tool.Spec, wrong []error) {
	if len(s.names) == 0 {
		return nil, nil
	}
	list, wrong := s.library.List()
	if len(list) > 0 {
		specs = s.specs(skills.Describe(list))
	}
	return specs, wrong
}
