package terminal

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/safetext"
)

// utterance is an input, with its sender.
type utterance struct {
	who, source, text string
	mine              bool
}

func (s utterance) block(width int) []string {
	mark, text := bold.of("› "), safetext.Clean(strings.TrimRight(s.text, "\n"))
	if !s.mine {
		name := safetext.Line(s.who)
		if s.source != "" {
			name += " in " + safetext.Line(s.source)
		}
		mark = magenta.of(name) + bold.of(" › ")
	}
	out := []string{""}
	for i, line := range strings.Split(text, "\n") {
		first := "  "
		if i == 0 {
			first = mark
		}
		out = append(out, wrap(bold.of(strings.ReplaceAll(line, "\t", "    ")), width, first, "  ")...)
	}
	return out
}

// message prints an answer of the agent.
func message(content string, f event.Format) block {
	return func(width int) []string {
		if f == event.Markdown {
			return append([]string{""}, renderMarkdown(content, width)...)
		}
		return append([]string{""}, lines(content, style{}, width, "")...)
	}
}

// lines cleans, styles and wraps text.
func lines(text string, s style, width int, indent string) []string {
	var out []string
	for line := range strings.SplitSeq(strings.TrimRight(safetext.Clean(text), "\n"), "\n") {
		out = append(out, wrap(s.of(strings.ReplaceAll(line, "\t", "    ")), width, indent, indent)...)
	}
	return out
}

// note prints a notice.
func (m *model) note(s style, text string) {
	m.print(func(width int) []string { return lines(text, s, width, "") })
}

// greet prints the greeting and the latest turns.
func (m *model) greet() {
	c := m.cfg
	m.print(func(width int) []string {
		out := wrap(bold.of("Skandha")+" — "+safetext.Line(c.About), width, "", "")
		out = append(out,
			wrap(dim.of(fmt.Sprintf("session %s · /help lists commands · Ctrl-C cancels, twice leaves · Ctrl-D leaves",
				c.Ref)), width, "", "")...)
		for _, h := range c.Hints {
			out = append(out, wrap(safetext.Line(h), width, "", "")...)
		}
		return out
	})
	for i, p := range c.Past {
		m.again = ""
		if p.Failed && p.Writer == c.Writer {
			m.again = p.Text
		}
		if i == 0 {
			m.note(dim, "\nearlier in this session:")
		}
		m.print(p.block(p.Writer == c.Writer))
	}
	for _, i := range c.Backlog {
		m.item(i)
	}
	m.cfg.Past, m.cfg.Backlog = nil, nil
}

// pastRows is how many rows of an earlier answer are shown.
const pastRows = 5

func (p Past) block(mine bool) block {
	return func(width int) []string {
		text := []rune(safetext.Line(p.Text))
		if len(text) > 300 {
			text = append(text[:300], '…')
		}
		out := utterance{who: string(p.Writer), source: p.Source, text: string(text), mine: mine}.block(width)
		if p.Failed {
			return append(out, lines(p.Answer, yellow, width, "  ")...)
		}
		rows := renderMarkdown(p.Answer, width-2)
		more := len(rows) - pastRows
		for _, r := range rows[:min(len(rows), pastRows)] {
			out = append(out, "  "+r)
		}
		if more > 0 {
			out = append(out, dim.of(fmt.Sprintf("  … %d more lines", more)))
		}
		return out
	}
}

// count formats a number of things.
func count[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// seconds formats a duration that is still counted.
func seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%d s", int(max(d, 0).Seconds()))
	}
	return duration(d)
}

// duration formats a completed duration.
func duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
	}
	return d.Round(time.Minute).String()
}

// brief formats JSON on one line, with invisible characters spelled out.
func brief(data json.RawMessage, width int) string {
	s := safetext.Visible(strings.Join(strings.Fields(string(readable(data))), " "))
	if s == "{}" || s == "null" {
		return ""
	}
	return fit(s, width)
}
