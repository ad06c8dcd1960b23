package terminal

import (
	"regexp"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"skandha.dev/services/internal/safetext"
)

// markdown renders text incrementally, line by line: complete lines are rendered once,
// and only the last, unfinished line is rendered again. It supports what models use:
// headings, lists, quotes, code, tables and emphasis. A link is shown with its address.
type markdown struct {
	width   int
	rows    []string // of the complete lines
	partial string   // the last line, so far
	fence   string   // the marker that ends the code; empty outside
	table   []string // lines of a table that may continue
}

func renderMarkdown(text string, width int) []string {
	m := &markdown{width: width}
	m.write(text)
	return m.render()
}

// write appends text.
func (m *markdown) write(text string) {
	text = safetext.Clean(text)
	for {
		line, rest, complete := strings.Cut(text, "\n")
		m.partial += line
		if !complete {
			return
		}
		m.line(m.partial)
		m.partial, text = "", rest
	}
}

// render returns the rows of everything so far.
func (m *markdown) render() []string {
	if m.partial == "" && len(m.table) == 0 {
		return trimBlank(m.rows)
	}
	c := *m // incomplete lines must not change the complete ones
	c.rows, c.table = m.rows[:len(m.rows):len(m.rows)], m.table[:len(m.table):len(m.table)]
	if c.partial != "" {
		c.line(c.partial)
	}
	c.endTable()
	return trimBlank(c.rows)
}

// trimBlank removes empty rows at both ends.
func trimBlank(rows []string) []string {
	for len(rows) > 0 && strings.TrimSpace(rows[0]) == "" {
		rows = rows[1:]
	}
	for len(rows) > 0 && strings.TrimSpace(rows[len(rows)-1]) == "" {
		rows = rows[:len(rows)-1]
	}
	return rows
}

var (
	fenceMark = regexp.MustCompile("^\\s{0,3}(`{3,}|~{3,})\\s*([^`]*)$")
	heading   = regexp.MustCompile(`^\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$`)
	rule      = regexp.MustCompile(`^\s{0,3}([-*_])(\s*[-*_]){2,}\s*$`)
	item      = regexp.MustCompile(`^(\s*)([-*+]|\d{1,9}[.)])\s+(\[[ xX]\]\s+)?(.*)$`)
	quoted    = regexp.MustCompile(`^\s{0,3}((?:>\s?)+)(.*)$`)
	tableRow  = regexp.MustCompile(`^\s*\|.*\|\s*$`)
)

func (m *markdown) line(s string) {
	if m.fence != "" {
		m.code(s)
		return
	}
	if tableRow.MatchString(s) {
		m.table = append(m.table, s)
		return
	}
	m.endTable()
	switch {
	case strings.TrimSpace(s) == "":
		if n := len(m.rows); n > 0 && m.rows[n-1] != "" {
			m.rows = append(m.rows, "")
		}
	case fenceMark.MatchString(s):
		g := fenceMark.FindStringSubmatch(s)
		m.fence = g[1]
		if lang := strings.TrimSpace(g[2]); lang != "" {
			m.add(wrap(dim.of(lang), m.width, "  ", "  "))
		}
	case rule.MatchString(s):
		m.add([]string{dim.of(strings.Repeat("─", min(m.width, 40)))})
	case heading.MatchString(s):
		g := heading.FindStringSubmatch(s)
		text := bold.of(inline(g[2]))
		if len(g[1]) <= 2 {
			text = bold.of(underline.of(inline(g[2])))
		}
		m.add(wrap(text, m.width, "", ""))
	case quoted.MatchString(s):
		g := quoted.FindStringSubmatch(s)
		bar := dim.of(strings.Repeat("│ ", strings.Count(g[1], ">")))
		m.add(wrap(italic.of(inline(g[2])), m.width, bar, bar))
	case item.MatchString(s):
		m.item(item.FindStringSubmatch(s))
	default:
		m.add(wrap(inline(strings.TrimSpace(s)), m.width, "", ""))
	}
}

func (m *markdown) add(rows []string) { m.rows = append(m.rows, rows...) }

func (m *markdown) code(s string) {
	if end := strings.TrimSpace(s); strings.HasPrefix(end, m.fence) && strings.Trim(end, m.fence[:1]) == "" {
		m.fence = ""
		return
	}
	for _, row := range hardwrap(s, m.width-2) {
		m.rows = append(m.rows, "  "+cyan.of(row))
	}
}

func (m *markdown) item(g []string) {
	indent := strings.Repeat(" ", min(ansi.StringWidth(strings.ReplaceAll(g[1], "\t", "    ")), m.width/3))
	bullet := "• "
	if g[2][0] >= '0' && g[2][0] <= '9' {
		bullet = g[2] + " "
	}
	switch checkbox := strings.TrimSpace(g[3]); {
	case checkbox == "":
	case strings.ContainsAny(checkbox, "xX"):
		bullet = "☑ "
	default:
		bullet = "☐ "
	}
	m.add(wrap(inline(g[4]), m.width, indent+blue.of(bullet), indent+strings.Repeat(" ", ansi.StringWidth(bullet))))
}

// endTable draws the table from its collected lines.
func (m *markdown) endTable() {
	lines := m.table
	m.table = nil
	if len(lines) == 0 {
		return
	}
	var grid [][]string
	var widths []int
	for _, l := range lines {
		row := tableCells(l)
		if isDelimiter(row) {
			continue
		}
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], cells(c))
		}
		grid = append(grid, row)
	}
	total := 0
	for _, w := range widths {
		total += w + 3
	}
	if total > m.width { // too wide for columns
		for _, row := range grid {
			m.add(wrap(strings.Join(row, dim.of(" │ ")), m.width, "", "  "))
		}
		return
	}
	for i, row := range grid {
		var b strings.Builder
		for j, c := range row {
			if i == 0 {
				c = bold.of(c)
			}
			b.WriteString(c + strings.Repeat(" ", widths[j]-cells(c)))
			if j < len(row)-1 {
				b.WriteString(dim.of(" │ "))
			}
		}
		m.rows = append(m.rows, strings.TrimRight(b.String(), " "))
		if i == 0 && len(lines) > 1 {
			m.rows = append(m.rows, dim.of(strings.Repeat("─", max(total-3, 1))))
		}
	}
}

func tableCells(line string) []string {
	line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "|"), "|")
	var out []string
	for c := range strings.SplitSeq(strings.ReplaceAll(line, `\|`, "\x00"), "|") {
		out = append(out, inline(strings.TrimSpace(strings.ReplaceAll(c, "\x00", "|"))))
	}
	return out
}

func isDelimiter(row []string) bool {
	return strings.Trim(strings.Join(row, ""), "-: ") == "" && strings.Contains(strings.Join(row, ""), "-")
}
