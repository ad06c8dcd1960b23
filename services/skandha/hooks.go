package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/registrar"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
)

// hooksCmd shows the hook points, and runs hook scripts.
type hooksCmd struct {
	Show   hooksShowCmd   `cmd:"" default:"withargs" help:"Show the hook points: which plugins answer, by which rules, how fast and how reliably."`
	Import hooksImportCmd `cmd:"" help:"Run the commands of a hooks.json, in the format of Claude Code and Open Plugins, as a plugin until it is stopped."`
}

type hooksShowCmd struct {
	JSON bool `help:"Print JSON."`
}

// Run implements the command.
func (h *hooksShowCmd) Run(ctx context.Context, g *globals) error {
	var info coreapi.HooksInfo
	if err := ask(ctx, g, coreapi.VerbHooks, nil, &info); err != nil {
		return err
	}
	if h.JSON {
		return printJSON(os.Stdout, info, true)
	}
	return printHooks(os.Stdout, info)
}

// printHooks lists the points, and under each the plugins that answer there, in order.
func printHooks(out io.Writer, info coreapi.HooksInfo) error {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "POINT, PLUGIN\tMODE\tWITHIN\tON ERROR\tON SILENCE\tASKED\tFAILED\tP50\tP99")
	var remarks []string
	anybody := false
	for _, p := range info.Points {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t\t\t\t\t\t\n", p.Point, p.Mode, short(time.Duration(p.BudgetMS)*time.Millisecond))
		for _, h := range p.Plugins {
			anybody = true
			mode := string(h.Mode)
			if h.Judge {
				mode = "judge"
			}
			_, _ = fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", line(string(h.Plugin), 24), mode,
				short(time.Duration(h.DeadlineMS)*time.Millisecond),
				h.OnError, h.OnSilence, h.Asked, h.Failed, latency(h, h.P50US), latency(h, h.P99US))
			if h.Unasked != "" {
				remarks = append(remarks, fmt.Sprintf("%s: %s is not asked: %s", p.Point, h.Plugin, line(h.Unasked, 200)))
			}
			if h.LastError != "" {
				remarks = append(remarks, fmt.Sprintf("%s: last error of %s: %s", p.Point, h.Plugin, line(h.LastError, 200)))
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if !anybody {
		remarks = append(remarks,
			"No plugin has a hook. To write one:  "+buildinfo.Command()+" plugins new --lang go|python|node|shell NAME")
	}
	for l := range strings.Lines(table.String()) {
		_, _ = fmt.Fprintln(out, strings.TrimRight(l, " \n")) // a point has fewer cells than a plugin
	}
	_, err := fmt.Fprintf(out, "%sFigures from core %s, since its start.\n", lines(remarks), info.Instance)
	return err
}

func lines(list []string) string {
	var b strings.Builder
	for _, s := range list {
		b.WriteString(s + "\n")
	}
	return b.String()
}

func latency(h coreapi.HookInfo, us int64) string {
	if h.Asked == 0 {
		return "–"
	}
	return short(time.Duration(us) * time.Microsecond)
}

// short formats a duration in three digits.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1e3)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}

type pluginsOrderCmd struct {
	Hook string `arg:"" optional:"" help:"Hook point, e.g. before_act."`
	JSON bool   `help:"Print JSON."`
}

// placed is a plugin with the reasons for its place in the order.
type placed struct {
	Plugin registrar.PluginInfo `json:"-"`
	Name   string               `json:"plugin"`
	State  plugin.LeaseState    `json:"state"`
	Why    []string             `json:"why"`
}

// Run implements the command.
func (o *pluginsOrderCmd) Run(ctx context.Context, g *globals) error {
	if o.Hook != "" && !slices.Contains(hook.Points(), hook.Point(o.Hook)) {
		return fmt.Errorf("unknown hook point %s; the points are %s", line(o.Hook, 40), join(hook.Points()))
	}
	list, err := plugins(ctx, g)
	if err != nil {
		return err
	}
	order := place(list, hook.Point(o.Hook))
	if o.JSON {
		return printJSON(os.Stdout, order, true)
	}
	var hooks coreapi.HooksInfo
	if err := ask(ctx, g, coreapi.VerbHooks, nil, &hooks); err != nil {
		return err
	}
	printOrder(os.Stdout, stylesFor(os.Stdout), order, o.Hook)
	return printMissing(os.Stdout, hooks, hook.Point(o.Hook))
}

// place returns the registered plugins that have a hook at the point, if one is named.
// The reasons refer to the order of all plugins.
func place(list []registrar.PluginInfo, at hook.Point) []placed {
	out := []placed{}
	for _, p := range list {
		hooked := slices.ContainsFunc(p.Hooks, func(h plugin.Hook) bool { return h.Point == at })
		if p.State == plugin.Gone || at != "" && !hooked {
			continue
		}
		why := p.Why
		if len(why) == 0 {
			why = []string{fmt.Sprintf("no dependency puts it after others, priority %d", p.Priority)}
		}
		out = append(out, placed{p, string(p.Name), p.State, why})
	}
	return out
}

func printOrder(out io.Writer, st styles, order []placed, at string) {
	if len(order) == 0 && at != "" {
		_, _ = fmt.Fprintf(out, "No plugin has a hook at %s.\n", at)
		return
	}
	if len(order) == 0 {
		_ = printPlugins(out, nil)
		return
	}
	for i, p := range order {
		state := ""
		if p.State != plugin.Active {
			state = "  " + stateOf(st, p.Plugin)
		}
		_, _ = fmt.Fprintf(out, "%2d. %s%s%s%s\n", i+1, st.bold, p.Name, st.off, state)
		for _, why := range p.Why {
			_, _ = fmt.Fprintf(out, "      %s%s%s\n", st.dim, line(why, 200), st.off)
		}
	}
	if at != "" && hook.Point(at).DefaultMode() == hook.Parallel {
		_, _ = fmt.Fprintf(out,
			"%s asks all plugins at once unless configured otherwise; their answers are combined in this order.\n", at)
	}
}

// verdictsOf holds what hooks did in a decision, as one line of JSON.
type verdictsOf struct {
	subject.Ref
	Hooks []hook.Verdict `json:"hooks"`
}

// printVerdicts shows what hooks did in a decision, one line each, in the format of
// events. An empty session is left out.
func printVerdicts(out io.Writer, st styles, indent string, at time.Time, session string, list []hook.Verdict) {
	if session != "" {
		session = " " + session
	}
	for _, v := range list {
		colour := st.blue
		switch v.Verb {
		case hook.Continue, hook.Stop, hook.Replace:
		case hook.DenyVerb:
			colour = st.red
		case hook.Confirm, hook.AnswerFor:
			colour = st.yellow
		}
		what := fmt.Sprintf("%s: %s, %s", v.Plugin, v.Verb, short(time.Duration(v.LatencyUS)*time.Microsecond))
		if v.Step != "" {
			what += ", " + v.Step
		}
		switch {
		case v.Error != "":
			colour = st.red
			what += ", failed: " + line(v.Error, 120)
		case v.Reason != "":
			what += ": " + line(v.Reason, 120)
		}
		_, _ = fmt.Fprintf(out, "%s%s%s%s%s %s%-22s%s %s\n", indent, st.dim, at.Local().Format("15:04:05.000"), session,
			st.off,
			colour, "hook."+string(v.Point), st.off, what)
	}
}

// commitLine formats the header of a commit.
func commitLine(st styles, seq uint64, h event.Header) string {
	return fmt.Sprintf("%s%8d %s%s commit after %d, by %s%s, driver %d, digest %s", st.dim, seq,
		h.Now.Local().Format("15:04:05.000"), st.off,
		h.Prev, h.Trigger.Kind, triggerOf(h.Trigger), h.Driver, h.Digest)
}
