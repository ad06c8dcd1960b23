package terminal

import (
	"bytes"
	"io"
	"regexp"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// style is a pair of SGR sequences. Each has its own end sequence, so that styles nest.
// The colours are the terminal's own sixteen: they fit its background.
type style struct{ on, off string }

func (s style) of(text string) string {
	if text == "" || s.on == "" {
		return text
	}
	return s.on + text + s.off
}

// sgr matches an SGR sequence.
var sgr = regexp.MustCompile(`\x1b\[([0-9;]*)m`)

// noColour removes the colours from styled text.
func noColour(text string) string {
	return sgr.ReplaceAllStringFunc(text, func(s string) string {
		var keep []string
		for n := range strings.SplitSeq(s[2:len(s)-1], ";") {
			if len(n) != 2 || n[0] != '3' { // 30 to 37, and 39; no others are used
				keep = append(keep, n)
			}
		}
		if len(keep) == 0 {
			return ""
		}
		return "\x1b[" + strings.Join(keep, ";") + "m"
	})
}

var (
	bold      = style{"\x1b[1m", "\x1b[22m"}
	dim       = style{"\x1b[2m", "\x1b[22m"}
	italic    = style{"\x1b[3m", "\x1b[23m"}
	underline = style{"\x1b[4m", "\x1b[24m"}
	reverse   = style{"\x1b[7m", "\x1b[27m"}
	strike    = style{"\x1b[9m", "\x1b[29m"}
	red       = style{"\x1b[31m", "\x1b[39m"}
	green     = style{"\x1b[32m", "\x1b[39m"}
	yellow    = style{"\x1b[33m", "\x1b[39m"}
	blue      = style{"\x1b[34m", "\x1b[39m"}
	magenta   = style{"\x1b[35m", "\x1b[39m"}
	cyan      = style{"\x1b[36m", "\x1b[39m"}
)

// wrap breaks styled text into rows of at most width cells, at spaces where it can. The
// first row begins with first, the others with rest. Every row begins and ends its own
// styles.
func wrap(text string, width int, first, rest string) []string {
	width = max(width, 8)
	inner := max(width-max(ansi.StringWidth(first), ansi.StringWidth(rest)), 4)
	var out []string
	for _, row := range split(ansi.Wrap(text, inner, "")) {
		// A terminal may count a cluster of runes as wider than it is: never wrap there.
		if ansi.StringWidthWc(row) > inner {
			out = append(out, split(ansi.HardwrapWc(row, inner, true))...)
			continue
		}
		out = append(out, row)
	}
	for i, row := range out {
		if i == 0 {
			out[i] = first + row
		} else {
			out[i] = rest + row
		}
	}
	return out
}

// split splits text into rows that each begin and end their own styles.
func split(text string) []string {
	var buf bytes.Buffer
	w := lipgloss.NewWrapWriter(&buf)
	_, _ = io.WriteString(w, text) // writing to a buffer does not fail
	_ = w.Close()
	return strings.Split(buf.String(), "\n")
}

// hardwrap breaks plain text into rows of at most width cells, keeping its spaces.
func hardwrap(text string, width int) []string {
	width = max(width, 4)
	return strings.Split(ansi.HardwrapWc(strings.ReplaceAll(text, "\t", "    "), width, true), "\n")
}

// fit cuts styled text to width cells.
func fit(text string, width int) string {
	return ansi.TruncateWc(text, max(width, 1), "…")
}

func cells(s string) int { return max(ansi.StringWidth(s), ansi.StringWidthWc(s)) }
