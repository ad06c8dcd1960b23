package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/services/core/planner"
)

// The answers of slash commands: Markdown that is also readable without rendering.

// maxListed is how many plugins, tools or hooks one answer lists.
const maxListed = 100

func (x *causeDecider) help([]string) string {
	var b strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&b, "- `%s` — %s\n", strings.TrimSpace("/"+c.Name+" "+c.Args), c.Help)
	}
	return b.String()
}

func (x *causeDecider) listTools([]string) string {
	names := x.offered()
	if len(names) == 0 {
		return "No tools are available: no runner has announced any."
	}
	var b strings.Builder
	for _, n := range names {
		spec, ok := x.env.Tools.Lookup(n)
		if !ok && n == planner.ExecuteName {
			spec = planner.ExecuteSpec()
		}
		fmt.Fprintf(&b, "- %s — %s\n", asCode(n), asText(spec.Description))
	}
	return b.String()
}

var plain = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "~", `\~`, "`", "\\`", "[", `\[`, "<", `\<`)

// asText returns plain text as Markdown, with special characters escaped.
func asText(text string) string {
	return plain.Replace(onOneLine(text))
}

func (x *causeDecider) listProviders([]string) string {
	infos := x.env.Executors.Providers()
	if len(infos) == 0 {
		return "No provider is available."
	}
	var b strings.Builder
	for _, p := range infos {
		fmt.Fprintf(&b, "- **%s**, model %s. %s\n", p.Name, asCode(p.Model), p.Note)
	}
	return b.String()
}

func (x *causeDecider) listPlugins([]string) string {
	if x.env.Plugins == nil {
		return "The list of plugins is not available here."
	}
	all := x.env.Plugins()
	if len(all) == 0 {
		return "No plugins are registered."
	}
	var b strings.Builder
	for i, p := range all {
		if i == maxListed {
			fmt.Fprintf(&b, "- … and %d more\n", len(all)-i)
			break
		}
		state := p.State
		if p.Reason != "" {
			state += ": " + onOneLine(p.Reason)
		}
		fmt.Fprintf(&b, "- **%s** %s — %s\n", p.Name, p.Version, state)
		for _, part := range []struct {
			what  string
			names []string
		}{{"hooks", p.Hooks}, {"tools", p.Tools}, {"offers", p.Other}} {
			if len(part.names) > 0 {
				fmt.Fprintf(&b, "  - %s: %s\n", part.what, asCodes(part.names))
			}
		}
	}
	return b.String()
}

func (x *causeDecider) metrics([]string) string {
	var b strings.Builder
	s := x.s
	fmt.Fprintf(&b, "**This session** — %s, of which %d failed; %s waiting; %s\n\n",
		count(s.Turns, "turn"), s.Failed, count(len(s.Queue), "input"), count(s.Commits, "commit"))
	fmt.Fprintf(&b, "- tokens: %d in, %d out\n", s.Usage.InputTokens, s.Usage.OutputTokens)
	if s.Usage.CostMicroUSD > 0 {
		fmt.Fprintf(&b, "- cost: %.4f USD\n", float64(s.Usage.CostMicroUSD)/1e6)
	}
	if n := len(s.Breaker.Recent); n > 0 {
		fmt.Fprintf(&b, "- %d of the last %d tool calls failed; the session is locked at %d\n",
			s.Breaker.failures(), n, lockAt)
	}
	if s.Locked != "" {
		fmt.Fprintf(&b, "- locked: %s\n", onOneLine(s.LockedWhy()))
	}
	x.toolMetrics(&b)
	x.hookMetrics(&b)
	return b.String()
}

func (x *causeDecider) toolMetrics(b *strings.Builder) {
	if x.env.Stats == nil {
		return
	}
	all := slices.Clone(x.env.Stats())
	slices.SortStableFunc(all, func(a, b ToolUse) int { return cmp.Compare(b.Used, a.Used) })
	for i, t := range all {
		switch i {
		case 0:
			b.WriteString("\n**Tools**, over all sessions\n\n")
		case maxListed:
			fmt.Fprintf(b, "- … and %d more\n", len(all)-i)
			return
		}
		unknown := ""
		if t.Unknown > 0 {
			unknown = fmt.Sprintf(", outcome unknown %s", count(t.Unknown, "time"))
		}
		fmt.Fprintf(b, "- %s: used %s, expected success rate %.0f %%%s, mean %s\n",
			asCode(t.Tool), count(t.Used, "time"), 100*t.SuccessRate, unknown, mean(t.MeanLatency))
	}
}

func (x *causeDecider) hookMetrics(b *strings.Builder) {
	if x.env.HookStats == nil {
		return
	}
	for i, h := range x.env.HookStats() {
		switch i {
		case 0:
			b.WriteString("\n**Hooks**, since this core started\n\n")
		case maxListed:
			b.WriteString("- …\n")
			return
		}
		fmt.Fprintf(b, "- %s at %s: asked %s, failed %d, p50 %s, p99 %s\n", h.Plugin, asCode(h.Point), count(h.Asked, "time"),
			h.Failed,
			time.Duration(h.P50US)*time.Microsecond, time.Duration(h.P99US)*time.Microsecond)
	}
}

// count formats a number of things, in the singular or plural.
func count[N int | int64 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// mean formats a mean duration for people.
func mean(d time.Duration) string {
	if d < time.Millisecond {
		return "under 1ms"
	}
	return d.Round(time.Millisecond).String()
}

// asCode formats a name as Markdown code, whatever characters it contains.
func asCode(name string) string {
	return "`" + strings.ReplaceAll(onOneLine(name), "`", "'") + "`"
}

func asCodes(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = asCode(n)
	}
	return strings.Join(out, ", ")
}

func onOneLine(s string) string { return cut(strings.Join(strings.Fields(s), " "), maxReason) }
