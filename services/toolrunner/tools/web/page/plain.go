package page

import (
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// maxNodes bounds the elements, attributes, texts and comments of a page: each takes far more
// memory than its bytes.
const maxNodes = 150_000

// bounded returns the beginning of a page with at most maxNodes nodes, and whether that is
// not all of it.
func bounded(page string) (string, bool) {
	z := html.NewTokenizer(strings.NewReader(page))
	for nodes, at := 0, 0; ; {
		switch z.Next() {
		case html.ErrorToken:
			return page, false
		case html.StartTagToken, html.SelfClosingTagToken:
			nodes++
			for _, more := z.TagName(); more && nodes <= maxNodes; nodes++ {
				_, _, more = z.TagAttr()
			}
		case html.CommentToken, html.DoctypeToken, html.TextToken:
			nodes++
		}
		if nodes > maxNodes {
			return page[:at], true
		}
		at += len(z.Raw())
	}
}

// silent are elements whose content is no text for a reader.
var silent = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Noscript: true, atom.Template: true, atom.Svg: true, atom.Title: true,
}

// plain returns the text of a page without building a tree of it, for pages that are too deep
// or too damaged for one.
func plain(page string) string {
	var b strings.Builder
	z := html.NewTokenizer(strings.NewReader(page))
	for quiet := atom.Atom(0); ; {
		kind := z.Next()
		switch kind {
		case html.ErrorToken:
			return strings.TrimSpace(b.String())
		case html.StartTagToken, html.EndTagToken:
			name, _ := z.TagName()
			switch tag := atom.Lookup(name); {
			case kind == html.StartTagToken && quiet == 0 && silent[tag]:
				quiet = tag
			case kind == html.EndTagToken && quiet == tag:
				quiet = 0
			case quiet == 0 && !inline[tag]:
				lineBreak(&b)
			}
		case html.SelfClosingTagToken:
			lineBreak(&b)
		case html.TextToken:
			if quiet == 0 {
				words(&b, string(z.Text()))
			}
		}
	}
}

// inline are elements within a line.
var inline = map[atom.Atom]bool{
	atom.A: true, atom.Abbr: true, atom.B: true, atom.Cite: true, atom.Code: true, atom.Del: true, atom.Dfn: true,
	atom.Em: true, atom.Font: true, atom.I: true, atom.Ins: true, atom.Kbd: true, atom.Label: true, atom.Mark: true,
	atom.Q: true, atom.S: true, atom.Samp: true, atom.Small: true, atom.Span: true, atom.Strong: true, atom.Sub: true,
	atom.Sup: true, atom.Time: true, atom.Tt: true, atom.U: true, atom.Var: true,
}

// lineBreak begins a new line, unless one has begun.
func lineBreak(b *strings.Builder) {
	if s := b.String(); s != "" && !strings.HasSuffix(s, "\n") {
		b.WriteByte('\n')
	}
}

// words writes text with its white space reduced to single spaces.
func words(b *strings.Builder, s string) {
	fields := strings.Fields(s)
	if len(fields) == 0 {
		return
	}
	if before := b.String(); before != "" && !strings.HasSuffix(before, "\n") && !strings.HasSuffix(before, " ") &&
		strings.TrimLeft(s, " \t\r\n\f") != s {
		b.WriteByte(' ')
	}
	b.WriteString(strings.Join(fields, " "))
	if strings.TrimRight(s, " \t\r\n\f") != s {
		b.WriteByte(' ')
	}
}
