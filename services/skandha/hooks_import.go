package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/program"
	"skandha.dev/services/internal/toolschema"
	"skandha.dev/services/skandha/hookscript"
)

// hooksImportCmd runs the commands of a hooks.json as a plugin.
type hooksImportCmd struct {
	Dir    string `arg:"" type:"existingdir" help:"Directory with hooks.json, hooks/hooks.json or .claude/settings.json. Commands run in it."`
	Name   string `default:"hook-scripts" help:"Name of the plugin."`
	DryRun bool   `help:"Only print what would be served, and what cannot be."`

	Optional bool `help:"Serve PreToolUse hooks although the configuration does not require the plugin: while it is away, calls pass. Also serve the others if some hooks cannot be."`
}

// Run implements the command.
func (h *hooksImportCmd) Run(ctx context.Context, g *globals) error {
	name, err := subject.Parse[subject.Plugin](h.Name)
	if err != nil {
		return fmt.Errorf("--name: %w", err)
	}
	shaper, err := subject.Parse[subject.Plugin](h.Name + "-shape")
	if err != nil {
		return fmt.Errorf("--name: with -shape, which is the plugin that changes arguments: %w", err)
	}
	s, err := hookscript.Read(h.Dir)
	if err != nil {
		return err
	}
	if err := printScript(os.Stdout, s); err != nil || h.DryRun {
		return err
	}
	switch {
	case len(s.Broken) > 0 && !h.Optional:
		return fmt.Errorf("nothing is served, because these hooks would be missing: %s; mend them, "+
			"or serve the others with --optional", line(strings.Join(s.Broken, "; "), 1000))
	case len(s.Commands) == 0:
		return fmt.Errorf("%s has no hooks that can be served", h.Dir)
	}
	if err := h.required(ctx, g, s); err != nil {
		return err
	}
	at, data, err := g.bus()
	if err != nil {
		return err
	}
	if err := program.Adopt(); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "What commands start in a session apart is not ended with them: %v.\n", err)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	judge, shape := s.Handlers(g.fill)
	m := plugin.Manifest{Name: name, Version: "1.0.0"}
	if len(shape) == 0 {
		return h.serve(ctx, g, at, data, m, judge, func() {})
	}
	m.RunAfter = []subject.Plugin{shaper}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	active, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		defer cancel()
		ended <- h.serve(ctx, g, at, data, plugin.Manifest{Name: shaper, Version: "1.0.0"}, shape, sync.OnceFunc(func() { close(active) }))
	}()
	select {
	case <-active:
		err = h.serve(ctx, g, at, data, m, judge, func() {})
	case <-ctx.Done():
	}
	cancel()
	return errors.Join(err, <-ended)
}

// serve serves hooks as a plugin until ctx ends. It calls active whenever the plugin becomes so.
func (h *hooksImportCmd) serve(
	ctx context.Context, g *globals, at, data string, m plugin.Manifest, hooks plugin.Handlers, active func(),
) error {
	token, err := (&envCmd{Name: string(m.Name)}).token(ctx, g)
	if err == nil {
		at, err = withToken(at, token)
	}
	if err != nil {
		return err
	}
	return plugin.Serve(ctx, m, hooks, plugin.WithLogger(g.logger()),
		plugin.WithConfig(bus.Config{URL: at, Data: data, TLS: bus.TLS{CA: g.CA}}),
		plugin.OnState(func(state plugin.LeaseState, why string) {
			fmt.Println(strings.TrimSpace(fmt.Sprintf("%s is %s %s", m.Name, state, why)))
			if state == plugin.Active {
				active()
			}
		}))
}

// fill is a [hookscript.Fill] that asks core for the tool.
func (g *globals) fill(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	var tools []coreapi.ToolInfo
	if err := ask(ctx, g, coreapi.VerbTools, nil, &tools); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(tools, func(t coreapi.ToolInfo) bool { return t.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("the tool %s is not offered any more", name)
	}
	v, err := toolschema.Compile(tools[i].Spec)
	if err != nil {
		return nil, err
	}
	if filled, errs := v.Validate(args); len(errs) == 0 {
		return filled, nil
	}
	return args, nil
}

// required returns an error if calls pass when the plugin has ended, and nobody has agreed to that.
func (h *hooksImportCmd) required(ctx context.Context, g *globals, s *hookscript.Script) error {
	gates := slices.ContainsFunc(s.Commands, func(c hookscript.Command) bool { return c.Event == hookscript.PreToolUse })
	if h.Optional || !gates {
		return nil
	}
	var info coreapi.HooksInfo
	if err := ask(ctx, g, coreapi.VerbHooks, nil, &info); err != nil {
		return err
	}
	for _, p := range info.Points {
		if p.Point == hook.BeforeAct && slices.ContainsFunc(p.Plugins, func(q coreapi.HookInfo) bool {
			return string(q.Plugin) == h.Name && q.Judge
		}) {
			return nil
		}
	}
	return fmt.Errorf("the system does not require %[1]s, so calls would pass while it is away; add to the configuration\n"+
		"  hooks: {before_act: {required: [%[1]s]}}\nor, if that is what you want, use --optional", h.Name)
}

// printScript prints what of the files is served, and how tools are called in them.
func printScript(out io.Writer, s *hookscript.Script) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "EVENT\tPOINT\tTOOLS\tWITHIN\tCOMMAND")
	for _, c := range s.Commands {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", c.Event, hookscript.Points[c.Event], orElse(line(c.Matcher, 30), "all"),
			short(c.Timeout), line(c.Line, 60))
	}
	for _, c := range s.Commands {
		if c.Idle() {
			_, _ = fmt.Fprintf(w, "never runs\t%s matches no tool; see the names below\n", line(c.Matcher, 60))
		}
	}
	for _, left := range slices.Concat(s.Broken, s.Left) {
		_, _ = fmt.Fprintf(w, "not served\t%s\n", line(left, 100))
	}
	_, _ = fmt.Fprintln(w, "\nTOOL\tIN THE FILE")
	for _, t := range hookscript.Tools {
		_, _ = fmt.Fprintf(w, "%s\t%s\n", t.Ours, t.Theirs)
	}
	_, _ = fmt.Fprintf(w, "GROUP:NAME\tmcp__GROUP__NAME, for every other tool; %s tools lists them\n", buildinfo.Command())
	return w.Flush()
}
