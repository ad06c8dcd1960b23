package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/provider"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/safetext"
)

// printMemories lists memories. On a terminal, texts are cut to its width.
func printMemories(out io.Writer, list []memory.Memory) error {
	rows := [][]string{{"ID", "KIND", "DATE", "SOURCE", "TEXT"}}
	for _, m := range list {
		rows = append(rows, memoryRow(m))
	}
	return printRows(out, rows)
}

// printHits lists memories that match a search, with how each was found.
func printHits(out io.Writer, hits []memory.Hit) error {
	rows := [][]string{{"MATCH", "ID", "KIND", "DATE", "SOURCE", "TEXT"}}
	for _, h := range hits {
		match := fmt.Sprintf("%s %.2f", line(string(h.Match), 10), h.Score)
		rows = append(rows, append([]string{match}, memoryRow(h.Memory)...))
	}
	return printRows(out, rows)
}

func memoryRow(m memory.Memory) []string {
	text := safetext.Line(m.Text)
	if m.Pinned {
		text = "(pinned) " + text
	}
	if foreign(m.Source) {
		text = "! " + text
	}
	return []string{
		safetext.Line(m.ID), line(string(m.Kind), 12), m.Created.Local().Format(time.DateOnly),
		line(sourceOf(m.Source), 30), text,
	}
}

// printRows prints rows of which the last cell is as wide as the terminal leaves room for.
func printRows(out io.Writer, rows [][]string) error {
	last := len(rows[0]) - 1
	if width := terminalWidth(out); width > 0 {
		for i := range last {
			longest := 0
			for _, r := range rows {
				longest = max(longest, ansi.StringWidth(r[i]))
			}
			width -= longest + 2
		}
		for _, r := range rows {
			r[last] = ansi.Truncate(r[last], max(width, 20), "…")
		}
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, r := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// terminalWidth returns the number of columns; 0 if out is no terminal.
func terminalWidth(out io.Writer) int {
	f, ok := out.(*os.File)
	if !ok || !isTerminal(f) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 80
	}
	return width
}

// foreign reports whether strangers may have written the text.
func foreign(s memory.Source) bool { return s.Origin == memory.FromTool || s.Origin == memory.FromWeb }

// sourceOf says in a few words where a memory came from.
func sourceOf(s memory.Source) string {
	switch s.Origin {
	case memory.FromPerson:
		return cmp.Or(string(s.Principal), "a person")
	case memory.FromAgent:
		return "the agent"
	case memory.FromTool:
		return strings.TrimSpace("tool " + s.Tool)
	case memory.FromWeb:
		return "web " + cmp.Or(s.URL, s.Tool)
	}
	return string(s.Origin)
}

// printHow says by what memories are found, and what is wrong with that.
func printHow(out io.Writer, a coreapi.MemoryAnswer) {
	how := "Search is by words alone: no embedder is configured (skandha docs memory)."
	if a.Embedder != "" {
		how = "Search is semantic, with the embedder " + line(a.Embedder, 80) + "."
	}
	_, _ = fmt.Fprintln(out, how)
	if a.Trouble != "" {
		_, _ = fmt.Fprintln(out, "! "+line(a.Trouble, 300))
	}
}

// printMemory shows all of a memory. In the text of a stranger, invisible characters are
// spelled out.
func printMemory(out io.Writer, m memory.Memory) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fact := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", name, safetext.Line(value))
		}
	}
	fact("id", m.ID)
	fact("agent", string(m.Agent))
	fact("kind", string(m.Kind))
	fact("created", m.Created.Local().Format(time.DateTime))
	if !m.Updated.IsZero() {
		fact("changed", m.Updated.Local().Format(time.DateTime))
	}
	if m.Pinned {
		fact("pinned", "yes; the model sees it in every turn")
	}
	fact("source", sourceOf(m.Source))
	if m.Source.Origin != memory.FromPerson {
		fact("asked for by", string(m.Source.Principal))
	}
	fact("url", m.Source.URL)
	fact("session", strings.TrimSpace(string(m.Source.Session)+" "+m.Source.Turn))
	outcomeFacts(fact, m.Outcome)
	if err := w.Flush(); err != nil {
		return err
	}
	text := clean(m.Text)
	if foreign(m.Source) {
		text = safetext.Visible(m.Text)
		_, _ = fmt.Fprintln(out,
			"\n! Strangers may have written this text. The agent reads it as data and not as instructions.")
	}
	_, err := fmt.Fprintln(out, "\n"+text)
	return err
}

// outcomeFacts shows how the turn of an experience ended.
func outcomeFacts(fact func(name, value string), o *memory.Outcome) {
	if o == nil {
		return
	}
	fact("outcome", strings.ReplaceAll(o.Status, "_", " "))
	fact("tools", strings.Join(o.Tools, ", "))
	fact("failed", strings.Join(o.Failed, ", "))
	if o.CostMicroUSD > 0 {
		fact("cost", provider.USD(o.CostMicroUSD))
	}
	if o.DurationMS > 0 {
		fact("took", short(time.Duration(o.DurationMS)*time.Millisecond))
	}
}
