package terminal

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"

	"skandha.dev/services/internal/proposal"
	"skandha.dev/services/internal/safetext"
)

// literal matches a JSON string.
var literal = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// readable removes unnecessary escapes from JSON strings: \u003c becomes <. An escape
// that does not encode a character is kept.
func readable(data json.RawMessage) json.RawMessage {
	return literal.ReplaceAllFunc(data, func(lit []byte) []byte {
		var text string
		if !bytes.ContainsRune(lit, '\\') || json.Unmarshal(lit, &text) != nil || strings.ContainsRune(text, utf8.RuneError) {
			return lit
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if enc.Encode(text) != nil {
			return lit
		}
		return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	})
}

// argRows formats arguments as JSON for a decision: nothing is hidden or left out.
// Values that fit are put on one row.
func argRows(args json.RawMessage, width int) []string {
	var b bytes.Buffer
	if json.Indent(&b, readable(args), "", "  ") != nil {
		b.Reset()
		b.Write(args)
	} else if one := onOneRow(b.String()); cells(one) <= width {
		return []string{one}
	}
	var out []string
	for line := range strings.SplitSeq(safetext.Visible(b.String()), "\n") {
		out = append(out, hardwrap(line, width)...)
	}
	return out
}

// onOneRow removes what json.Indent has added: JSON strings cannot contain a line feed.
func onOneRow(indented string) string {
	var b strings.Builder
	for i, line := range strings.Split(safetext.Visible(indented), "\n") {
		line = strings.TrimLeft(line, " ")
		if i > 0 && strings.HasSuffix(b.String(), ",") {
			b.WriteByte(' ')
		}
		b.WriteString(line)
	}
	return b.String()
}

// exactLine formats a line of a text that a user decides about.
func exactLine(s string) string {
	return safetext.Visible(strings.ReplaceAll(s, "\t", "⇥   "))
}

// callRows shows what a call would do: an edit as a diff, multi-line strings as lines,
// and the other arguments as JSON.
func callRows(tool string, args json.RawMessage, files *proposal.Files, width int) []string {
	fs, ok := proposal.Fields(args)
	if !ok {
		return argRows(args, width)
	}
	if e := proposal.EditOf(tool, fs, files); e != nil {
		out := argRows(proposal.Object(proposal.Without(fs, e.Shown...)), width)
		out = append(out, wrap(dim.of(e.About), width, "", "")...)
		return append(out, diffRows(e.Before, e.After, width)...)
	}
	var texts []proposal.Field
	for _, f := range fs {
		if f.Text != nil && strings.Contains(strings.TrimRight(*f.Text, "\n"), "\n") {
			texts = append(texts, f)
		}
	}
	rest := fs
	var out []string
	for _, f := range texts {
		rest = proposal.Without(rest, f.Name)
		out = append(out, hardwrap(safetext.Visible(f.Name)+":", width)...)
		for line := range strings.SplitSeq(*f.Text, "\n") {
			for _, row := range hardwrap(exactLine(line), width-2) {
				out = append(out, "  "+cyan.of(row))
			}
		}
	}
	if len(rest) > 0 || len(fs) == 0 {
		out = append(argRows(proposal.Object(rest), width), out...)
	}
	return out
}
