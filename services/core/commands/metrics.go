package commands

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/provider"
)

// Session is what /metrics shows of a session.
type Session struct {
	Turns, Failed, Waiting int
	Commits                uint64
	Usage                  provider.Usage
	Calls, CallFailures    int    // among the latest tool calls
	LockAt                 int    // the failures that lock the session
	Locked                 string // why it is locked; empty if it is not
}

// ToolUse is a tool's statistics over all sessions.
type ToolUse struct {
	Tool        string
	Used        int64
	Unknown     int64 // calls whose outcome is unknown
	SuccessRate float64
	MeanLatency time.Duration
}

// HookUse holds this core's statistics of asking one plugin at one point.
type HookUse struct {
	Point, Plugin string
	Asked, Failed int64
	P50US, P99US  int64 // microseconds
}

// Statistics answers /metrics.
func Statistics(s Session, tools []ToolUse, hooks []HookUse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**This session** — %s, of which %d failed; %s waiting; %s\n\n",
		count(s.Turns, "turn"), s.Failed, count(s.Waiting, "input"), count(s.Commits, "commit"))
	fmt.Fprintf(&b, "- tokens: %d in, %d out\n", s.Usage.InputTokens, s.Usage.OutputTokens)
	if s.Usage.CostMicroUSD > 0 || s.Usage.Unpriced > 0 {
		fmt.Fprintf(&b, "- cost: %s\n", s.Usage.Cost())
	}
	if s.Calls > 0 {
		fmt.Fprintf(&b, "- %d of the last %d tool calls failed; the session is locked at %d\n",
			s.CallFailures, s.Calls, s.LockAt)
	}
	if s.Locked != "" {
		fmt.Fprintf(&b, "- locked: %s\n", oneLine(s.Locked))
	}
	writeTools(&b, tools)
	writeHooks(&b, hooks)
	return b.String()
}

func writeTools(b *strings.Builder, tools []ToolUse) {
	tools = slices.Clone(tools)
	slices.SortStableFunc(tools, func(a, b ToolUse) int { return cmp.Compare(b.Used, a.Used) })
	for i, t := range tools {
		switch i {
		case 0:
			b.WriteString("\n**Tools**, over all sessions\n\n")
		case maxListed:
			fmt.Fprintf(b, "- … and %d more\n", len(tools)-i)
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

func writeHooks(b *strings.Builder, hooks []HookUse) {
	for i, h := range hooks {
		switch i {
		case 0:
			b.WriteString("\n**Hooks**, since this core started\n\n")
		case maxListed:
			b.WriteString("- …\n")
			return
		}
		fmt.Fprintf(b, "- %s at %s: asked %s, failed %d, p50 %s, p99 %s\n",
			h.Plugin, asCode(h.Point), count(h.Asked, "time"), h.Failed,
			time.Duration(h.P50US)*time.Microsecond, time.Duration(h.P99US)*time.Microsecond)
	}
}
