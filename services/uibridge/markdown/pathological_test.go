package markdown_test

import (
	"fmt"
	"strings"
)

// pathological are texts that have made readers of Markdown slow, by their size in
// bytes, more or less. Many are those of cmark's and goldmark's own tests.
var pathological = map[string]func(n int) string{
	"strong within emphasis": func(n int) string {
		return strings.Repeat("*a **a ", n/14) + "b" +
			strings.Repeat(" a** a*", n/14)
	},
	"many closers":          func(n int) string { return strings.Repeat("a_ ", n/3) },
	"many openers":          func(n int) string { return strings.Repeat("_a ", n/3) },
	"one long row of stars": func(n int) string { return strings.Repeat("*", n) },
	"stars around a letter": func(n int) string {
		return strings.Repeat("*", n/2) + "a" +
			strings.Repeat("*", n/2)
	},
	"openers of both kinds":  func(n int) string { return strings.Repeat("*_a ", n/4) },
	"link closers":           func(n int) string { return strings.Repeat("a]", n/2) },
	"link openers":           func(n int) string { return strings.Repeat("[a", n/2) },
	"link openers and stars": func(n int) string { return strings.Repeat("[ a_", n/4) },
	"nested brackets": func(n int) string {
		return strings.Repeat("[", n/2) + "a" +
			strings.Repeat("]", n/2)
	},
	"nested links": func(n int) string {
		return strings.Repeat("[", n/4) + "a" +
			strings.Repeat("](b)", n/5)
	},
	"pictures in pictures": func(n int) string {
		return strings.Repeat("![", n/4) + "a" +
			strings.Repeat("](b)", n/5)
	},
	"unclosed links":                func(n int) string { return strings.Repeat("[a](b", n/5) },
	"unclosed links in brackets":    func(n int) string { return strings.Repeat("[a](<b", n/6) },
	"parentheses in a link":         func(n int) string { return "[a](" + strings.Repeat("(", n) },
	"titles that never end":         func(n int) string { return strings.Repeat(`[a](b "c `, n/9) },
	"backticks of every length":     backticks,
	"one backtick in each line":     func(n int) string { return strings.Repeat("`a\n", n/3) },
	"backslashes":                   func(n int) string { return strings.Repeat("\\", n) },
	"entities":                      func(n int) string { return strings.Repeat("&#1234567;&am", n/13) },
	"ampersands":                    func(n int) string { return strings.Repeat("&", n) },
	"angle brackets":                func(n int) string { return strings.Repeat("<", n) },
	"comments that never end":       func(n int) string { return strings.Repeat("a <!--", n/6) },
	"processing instructions":       func(n int) string { return "a " + strings.Repeat("<?", n/2) },
	"declarations":                  func(n int) string { return "a " + strings.Repeat("<!A ", n/4) },
	"CDATA":                         func(n int) string { return "a " + strings.Repeat("<![CDATA[", n/9) },
	"autolinks that never end":      func(n int) string { return strings.Repeat("<https:a", n/8) },
	"mail addresses that never are": func(n int) string { return strings.Repeat("a*", n/2) + "@" },
	"mail addresses":                func(n int) string { return strings.Repeat("a@b.c ", n/6) },
	"addresses":                     func(n int) string { return strings.Repeat("https://a.b ", n/12) },
	"one long address":              func(n int) string { return "https://a.b/" + strings.Repeat("a*", n/2) },
	"addresses with punctuation":    func(n int) string { return "https://a.b/" + strings.Repeat("))", n/2) },
	"quotes in quotes":              func(n int) string { return strings.Repeat("> ", n/2) + "a" },
	"deep quotes, many lines":       func(n int) string { return strings.Repeat(strings.Repeat(">", 100)+"\n", n/101) },
	"lists in lists":                deepList,
	"lists in one line":             func(n int) string { return strings.Repeat("- ", n/2) + "a" },
	"quotes and lists":              func(n int) string { return strings.Repeat("> - ", n/4) + "a" },
	"a list of nothing":             func(n int) string { return strings.Repeat("-\n", n/2) },
	"a list and blank lines":        func(n int) string { return "- a\n" + strings.Repeat("\n", n) + "b" },
	"a loose list":                  func(n int) string { return strings.Repeat("- a\n\n", n/5) },
	"a wide table": func(n int) string {
		return strings.Repeat("|a", n/4) + "\n" +
			strings.Repeat("|-", n/4) + "\n"
	},
	"a wide table of short rows": func(n int) string {
		return "|" + strings.Repeat("a|", n/8) + "\n|" + strings.Repeat("-|", n/8) + "\n" + strings.Repeat("a\n", n/4)
	},
	"a table of short rows": func(n int) string {
		return strings.Repeat("a|", 60) + "\n" + strings.Repeat("-|", 60) + "\n" + strings.Repeat("a\n", n/2)
	},
	"many small tables":            func(n int) string { return strings.Repeat("a|b\n-|-\n1|2\n\n", n/13) },
	"rows that would begin tables": func(n int) string { return strings.Repeat("a|b\n-|-|-\n", n/10) },
	"escaped pipes in code":        func(n int) string { return "a|b\n-|-\n" + strings.Repeat("`\\|`|`\\|`\n", n/10) },
	"headings that are none":       func(n int) string { return strings.Repeat("a\n--", n/4) },
	"headings":                     func(n int) string { return strings.Repeat("# a #\n", n/6) },
	"hashes":                       func(n int) string { return "# " + strings.Repeat("a #", n/3) },
	"definitions":                  func(n int) string { return strings.Repeat("[a]: /b\n", n/8) },
	"uses of a long definition": func(n int) string {
		return "[a]: /" + strings.Repeat("b", n/2) + "\n\n" +
			strings.Repeat("[a]", n/6)
	},
	"fences that never end": func(n int) string { return strings.Repeat("```\na\n~~~\n", n/10) },
	"tabs":                  func(n int) string { return strings.Repeat("\t", n) + "a" },
	"tabs in a list":        func(n int) string { return strings.Repeat("-\t", n/2) + "a" },
	"blank lines":           func(n int) string { return strings.Repeat(" \n", n/2) },
	"one long word":         func(n int) string { return strings.Repeat("a", n) },
	"one long paragraph":    func(n int) string { return strings.Repeat("some words in a line\n", n/21) },
	"a line per letter":     func(n int) string { return strings.Repeat("a\n", n/2) },
	"hard breaks":           func(n int) string { return strings.Repeat("a  \n", n/4) },
	"indented code":         func(n int) string { return strings.Repeat("    a\n\n", n/7) },
	"tildes":                func(n int) string { return strings.Repeat("~a ~~b ", n/7) },
	// just below the bounds, again and again
	"paragraphs of stars":    func(n int) string { return paragraphs(n, strings.Repeat("*a **a ", 160)) },
	"paragraphs of openers":  func(n int) string { return paragraphs(n, strings.Repeat("*_a ", 240)) },
	"paragraphs of brackets": func(n int) string { return paragraphs(n, strings.Repeat("[a", 480)) },
	"paragraphs of pictures": func(n int) string {
		return paragraphs(n,
			strings.Repeat("![", 120)+"a"+strings.Repeat("](b)", 60))
	},
	"paragraphs of half links": func(n int) string { return paragraphs(n, strings.Repeat("[a](<b ", 120)) },
	"paragraphs of backticks":  func(n int) string { return paragraphs(n, backticks(480)) },
	"paragraphs of mail addresses": func(n int) string {
		return paragraphs(n,
			strings.Repeat("a*", 480)+strings.Repeat("b", 2000))
	},
	"paragraphs of titles":          func(n int) string { return paragraphs(n, strings.Repeat(`[a](b "c `, 120)) },
	"paragraphs of angle brackets":  func(n int) string { return paragraphs(n, strings.Repeat("<https:a", 240)) },
	"some signs, one long word":     func(n int) string { return strings.Repeat("a*", 480) + strings.Repeat("b", n) },
	"some backticks, one long line": func(n int) string { return backticks(480) + strings.Repeat("b", n) },
	"some brackets, one long line": func(n int) string {
		return strings.Repeat("[", 240) + strings.Repeat("b ", n/2) + strings.Repeat("]", 240)
	},

	"NUL":      func(n int) string { return strings.Repeat("\x00", n) },
	"no UTF-8": func(n int) string { return strings.Repeat("\xff", n) },
}

func backticks(n int) string {
	var b strings.Builder
	for i := 1; b.Len() < n; i++ {
		fmt.Fprintf(&b, "e%s", strings.Repeat("`", i))
	}
	return b.String()
}

func deepList(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		b.WriteString(strings.Repeat("  ", i) + "- a\n")
	}
	return b.String()
}

func paragraphs(n int, text string) string {
	return strings.Repeat(text+"\n\n", n/(len(text)+2))
}
