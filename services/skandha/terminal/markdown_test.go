package terminal

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// plain is what one reads of rows: styles do not count.
func plain(rows []string) string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = strings.TrimRight(ansi.Strip(r), " ")
	}
	return strings.Join(out, "\n")
}

func TestMarkdownReadsWell(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"prose is wrapped", "one two three four five", "one two three\nfour five"},
		{"a heading", "# Title #\n\ntext", "Title\n\ntext"},
		{"emphasis", "**b** *i* ***x*** ~~s~~", "b i x s"},
		{"emphasis that is none", "2*3*4 a_b_c **", "2*3*4 a_b_c **"},
		{"code", "use `a*b` ok", "use a*b ok"},
		{"escapes", `\*no\*`, "*no*"},
		{"a list hangs", "- alpha beta gamma\n  - inner\n1. one", "• alpha beta\n  gamma\n  • inner\n1. one"},
		{"tasks", "- [x] did\n- [ ] not", "☑ did\n☐ not"},
		{"a quote", "> said\n> > deep", "│ said\n│ │ deep"},
		{"a rule", "---", "───────────────"},
		{"code keeps its spaces", "```go\nif x {\n    y   z\n}\n```\nend", "  go\n  if x {\n      y   z\n  }\nend"},
		{"code that does not end", "```\n**x**", "  **x**"},
		{"a fence of another kind inside", "~~~\n```\n~~~\nx", "  ```\nx"},
		{"a table", "| a | bb |\n|---|:--|\n| ccc | d |\n", "a   │ bb\n────────\nccc │ d"},
		{"a table that is too wide", "| aaaaaaaa | bbbbbbbb |\n|-|-|\n| c | d |", "aaaaaaaa │\n  bbbbbbbb\nc │ d"},
		{"a link shows where it goes", "[safe](http://evil)", "safe\n(http://evil)"},
		{"a picture is not fetched", "![x](http://p/q)", "picture x\n(http://p/q)"},
		{"html is text", "<b>x</b>", "<b>x</b>"},
		{"blank lines are one", "a\n\n\n\nb\n\n", "a\n\nb"},
		{"a long word is broken", strings.Repeat("x", 20), strings.Repeat("x", 15) + "\nxxxxx"},
		{"wide characters", "世界世界世界世界世界", "世界世界世界世\n界世界"},
	} {
		if got := plain(renderMarkdown(c.in, 15)); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func TestMarkdownStyles(t *testing.T) {
	for in, want := range map[string]string{
		"**b `c` b**": "\x1b[1mb \x1b[36mc\x1b[39m b\x1b[22m",
		"*i*":         "\x1b[3mi\x1b[23m",
	} {
		if got := inline(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for _, row := range renderMarkdown("**one two three four five six seven**", 12) {
		if !strings.HasPrefix(row, "\x1b[1m") || !strings.HasSuffix(row, "\x1b[m") && !strings.HasSuffix(row, "\x1b[22m") {
			t.Errorf("%q does not begin and end its own styles", row)
		}
	}
}

// Whatever the pieces, the end is the same, and nothing is wider than it may be.
func FuzzMarkdownInPieces(f *testing.F) {
	f.Add("# a\n\n- **b** `c`\n```\nx\n```\n| a | b |\n|--|--|\n| 1 | 2 |\n[x](y) _z_", uint8(3), uint8(20))
	f.Add("\x1b[2J**\u202e👩‍👩‍👧世\xff", uint8(1), uint8(9))
	f.Fuzz(func(t *testing.T, text string, piece, width uint8) {
		text = strings.ToValidUTF8(text, "?")
		w := int(width%100) + 8
		whole := renderMarkdown(text, w)
		m := &markdown{width: w}
		runes := []rune(text)
		for n := int(piece%7) + 1; len(runes) > 0; {
			k := min(n, len(runes))
			m.write(string(runes[:k]))
			_ = m.render()
			runes = runes[k:]
		}
		if a, b := strings.Join(whole, "\n"), strings.Join(m.render(), "\n"); a != b {
			t.Fatalf("whole:\n%q\npieces:\n%q", a, b)
		}
		for _, row := range whole {
			if ansi.StringWidth(row) > w+4 {
				t.Fatalf("%d cells: %q", ansi.StringWidth(row), row)
			}
			if strings.ContainsAny(ansi.Strip(row), "\x1b\x07\r\u009b\u202e") {
				t.Fatalf("it got through: %q", row)
			}
		}
	})
}
