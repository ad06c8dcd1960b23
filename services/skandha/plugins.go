package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/registrar"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
)

// pluginsCmd manages plugins.
type pluginsCmd struct {
	List       pluginsListCmd       `cmd:"" default:"withargs" help:"List the plugins, in the order in which their hooks are asked."`
	Show       pluginsShowCmd       `cmd:"" help:"Show what a plugin declares, its replicas and the reasons for its place in the order."`
	Order      pluginsOrderCmd      `cmd:"" help:"Show the order of all plugins, or of those at a hook point, with the reasons."`
	Suspend    pluginsSuspendCmd    `cmd:"" help:"Stop using a plugin's hooks, tools and providers."`
	Resume     pluginsResumeCmd     `cmd:"" help:"Use a suspended plugin again."`
	Unload     pluginsUnloadCmd     `cmd:"" help:"Let a plugin finish its work in flight, then unregister it."`
	Invite     pluginsInviteCmd     `cmd:"" help:"Let a plugin, listener or program from outside connect, with credentials for what is named and nothing else."`
	Identities pluginsIdentitiesCmd `cmd:"" help:"List who was invited, what they may do and when they were last connected."`
	Rotate     pluginsRotateCmd     `cmd:"" help:"Make new credentials; the old ones stay valid for a while."`
	Revoke     pluginsRevokeCmd     `cmd:"" help:"End all credentials of an identity, and close its connections, now."`
	New        pluginsNewCmd        `cmd:"" help:"Write a working plugin with a test, as a starting point."`
	Test       pluginsTestCmd       `cmd:"" help:"Test a plugin against a separate system, and say what to change. Its tools ARE called."`
}

type pluginsListCmd struct {
	JSON bool `help:"Print JSON."`
}

// Run implements the command.
func (l *pluginsListCmd) Run(ctx context.Context, g *globals) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	var list []registrar.PluginInfo
	if err := c.Ask(ctx, coreapi.VerbPlugins, nil, &list); err != nil {
		return err
	}
	if l.JSON {
		return printJSON(os.Stdout, list, true)
	}
	var hooks coreapi.HooksInfo
	if err := c.Ask(ctx, coreapi.VerbHooks, nil, &hooks); err != nil {
		return err
	}
	var st coreapi.Status
	if err := c.Ask(ctx, coreapi.VerbStatus, nil, &st); err != nil {
		return err
	}
	if err := printPlugins(os.Stdout, list); err != nil {
		return err
	}
	printGuides(os.Stdout, st.Guides)
	return printMissing(os.Stdout, hooks, "")
}

// printMissing lists the plugins that are registered or required but not asked, at all
// points or at the named one.
func printMissing(out io.Writer, hooks coreapi.HooksInfo, at hook.Point) error {
	for _, p := range hooks.Points {
		if at != "" && p.Point != at {
			continue
		}
		for _, h := range p.Plugins {
			if h.Unasked == "" {
				continue
			}
			effect := "calls continue without it"
			if h.OnSilence == hook.Deny {
				effect = "all calls there are denied"
			}
			if _, err := fmt.Fprintf(out, "! %s is not asked at %s: %s; %s\n", h.Plugin, p.Point, line(h.Unasked, 200),
				effect); err != nil {
				return err
			}
		}
	}
	return nil
}

// printGuides lists the guides that could not be loaded.
func printGuides(w io.Writer, list []coreapi.GuideTrouble) {
	for _, t := range list {
		what, effect := guideTrouble(t)
		_, _ = fmt.Fprintf(w, "! %s\n  %s\n", what, effect)
	}
}

// guideTrouble says which guide could not be loaded and why, and what the agent does without it.
func guideTrouble(t coreapi.GuideTrouble) (what, effect string) {
	effect = "the agent answers without it"
	switch {
	case t.Stale:
		effect = "the agent uses the previous version"
	case t.Required:
		effect = "the agent does not answer without it"
	}
	return fmt.Sprintf("guide %q of agent %s: %s", line(t.Guide, 60), t.Agent, line(t.Reason, 300)), effect
}

func plugins(ctx context.Context, g *globals) (list []registrar.PluginInfo, err error) {
	return list, ask(ctx, g, coreapi.VerbPlugins, nil, &list)
}

func printPlugins(out io.Writer, list []registrar.PluginInfo) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out,
			"No plugins. To write one:  "+buildinfo.Command()+" plugins new --lang go|python|node|shell NAME")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "PLUGIN\tVERSION\tSTATE\tREPLICAS\tDECLARES")
	longest := len("PLUGIN")
	for _, p := range list {
		longest = max(longest, len(p.Name))
	}
	width := 80 - longest - len("  0.3.1-beta.2  suspended  REPLICAS  ") // what is left for the declarations
	for _, p := range list {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", p.Name, line(p.Version, 12), p.State, len(p.Instances),
			line(declares(p), max(width, 16)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range list {
		if p.Reason != "" {
			_, _ = fmt.Fprintf(out, "%s is %s\n", p.Name, stateOf(styles{}, p))
		}
	}
	return nil
}

// declares summarises a manifest in a few words.
func declares(p registrar.PluginInfo) string {
	var out []string
	for _, of := range []struct {
		n    int
		what string
	}{
		{len(p.Hooks), "hook"},
		{len(p.Tools), "tool"},
		{len(p.Providers), "provider"},
		{len(p.Listeners), "listener"},
		{len(p.Sensors), "sensor"},
		{len(p.Guides), "guide"},
	} {
		if of.n > 0 {
			out = append(out, count(of.n, of.what))
		}
	}
	if p.Storage != nil {
		out = append(out, "storage")
	}
	return cmp.Or(strings.Join(out, ", "), "nothing")
}

func count[N int | int64 | uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(int(n)) + " " + what + "s"
}

// onePlugin is the argument of commands about one plugin.
type onePlugin struct {
	Name string `arg:"" help:"Name of the plugin."`
}

type pluginsShowCmd struct {
	onePlugin
	JSON bool `help:"Print JSON."`
}

// Run implements the command.
func (s *pluginsShowCmd) Run(ctx context.Context, g *globals) error {
	list, err := plugins(ctx, g)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(p registrar.PluginInfo) bool { return string(p.Name) == s.Name })
	if i < 0 {
		return unregistered(s.Name)
	}
	if s.JSON {
		return printJSON(os.Stdout, list[i], true)
	}
	printPlugin(os.Stdout, stylesFor(os.Stdout), list[i])
	return nil
}

func printPlugin(out io.Writer, st styles, p registrar.PluginInfo) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	say("%s%s %s%s  %s", st.bold, p.Name, clean(p.Version), st.off, stateOf(st, p))
	if p.Description != "" {
		say("%s", clean(p.Description))
	}
	say("registered %s, priority %d, manifest %s", ago(p.Registered), p.Priority, p.Hash[:min(12, len(p.Hash))])
	for _, of := range []struct {
		what string
		list []subject.Plugin
	}{{"depends on", p.Dependencies}, {"runs after", p.RunAfter}, {"runs before", p.RunBefore}} {
		if len(of.list) > 0 {
			say("%s %s", of.what, join(of.list))
		}
	}
	for _, i := range p.Instances {
		say("  replica   %s, since %s%s", i.Instance, ago(i.Since), map[bool]string{true: ", draining"}[i.Draining])
	}
	for _, h := range p.Hooks {
		say("  hook      %-14s  %s, %d ms, on error %s", h.Point, cmp.Or(h.Mode, h.Point.DefaultMode()),
			cmp.Or(h.DeadlineMS, hook.DefaultDeadline.Milliseconds()), cmp.Or(h.OnError, h.Point.DefaultOnError()))
	}
	for _, t := range p.Tools {
		say("  tool      %s  %s", line(t.Name, 40), line(t.Description, 50))
	}
	for _, i := range p.Providers {
		say("  provider  %s %s", line(i.Name, 30), line(i.Model, 30))
	}
	if p.Storage != nil {
		kept := join(p.Storage.Verbs)
		if p.Storage.Index {
			kept = strings.TrimPrefix(kept+", an index", ", ")
		}
		say("  storage   %s", kept)
	}
	for _, l := range p.Listeners {
		say("  listener  %s  %s", l.Name, line(l.Description, 50))
	}
	for _, l := range p.Sensors {
		say("  sensor    %s  %s", l.Name, line(l.Description, 50))
	}
	for _, name := range p.Guides {
		say("  guide     %s", line(name, 60))
	}
	if len(p.Why) > 0 {
		say("reasons for its place in the order")
	}
	for _, why := range p.Why {
		say("  %s", line(why, 200))
	}
}

func stateOf(st styles, p registrar.PluginInfo) string {
	colour := st.yellow
	switch p.State {
	case plugin.Active:
		colour = st.green
	case plugin.Suspended:
		colour = st.red
	case plugin.Waiting, plugin.Draining:
	case plugin.Gone:
		colour = st.dim
	}
	text := colour + string(p.State) + st.off
	if p.Reason == "" {
		return text
	}
	if more, says := strings.CutPrefix(p.Reason, string(p.State)+" "); says { // "suspended by …"
		return text + " " + line(more, 300)
	}
	return text + ": " + line(p.Reason, 300)
}

func join[T ~string](list []T) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = clean(string(s))
	}
	return strings.Join(out, ", ")
}

type pluginsSuspendCmd struct {
	onePlugin
	Reason string `help:"Reason to show to users." placeholder:"TEXT"`
	JSON   bool   `help:"Print JSON."`
}

// Run implements the command.
func (s *pluginsSuspendCmd) Run(ctx context.Context, g *globals) error {
	return operate(ctx, g, s.JSON,
		registrar.PluginRequest{Op: registrar.OpSuspend, Plugin: subject.Plugin(s.Name), Reason: s.Reason})
}

type pluginsResumeCmd struct {
	onePlugin
	JSON bool `help:"Print JSON."`
}

// Run implements the command.
func (r *pluginsResumeCmd) Run(ctx context.Context, g *globals) error {
	return operate(ctx, g, r.JSON, registrar.PluginRequest{Op: registrar.OpResume, Plugin: subject.Plugin(r.Name)})
}

type pluginsUnloadCmd struct {
	onePlugin
	Force  bool   `help:"Unload it even if others depend on it: they will wait."`
	Reason string `help:"Reason to show to users." placeholder:"TEXT"`
	JSON   bool   `help:"Print JSON."`
}

// Run implements the command.
func (u *pluginsUnloadCmd) Run(ctx context.Context, g *globals) error {
	return operate(ctx, g, u.JSON,
		registrar.PluginRequest{Op: registrar.OpUnload, Plugin: subject.Plugin(u.Name), Force: u.Force, Reason: u.Reason})
}

func unregistered(name string) error {
	return fmt.Errorf("no plugin %s is registered or was recently; %s plugins lists them", line(name, 80),
		buildinfo.Command())
}

// operate asks core to change a plugin's state, and shows the new state.
func operate(ctx context.Context, g *globals, asJSON bool, q registrar.PluginRequest) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var p registrar.PluginInfo
	q.Caller = writer()
	if err := administer(ctx, g, coreapi.VerbPlugin, q, &p); errors.Is(err, bus.ErrNotFound) {
		return unregistered(string(q.Plugin))
	} else if err != nil {
		return err
	}
	if asJSON {
		return printJSON(os.Stdout, p, true)
	}
	fmt.Printf("%s is %s\n", p.Name, stateOf(stylesFor(os.Stdout), p))
	return nil
}
