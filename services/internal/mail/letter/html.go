package letter

import (
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// invisible are elements whose content people do not see.
var invisible = []atom.Atom{atom.Head, atom.Script, atom.Style, atom.Template, atom.Noscript, atom.Title}

// blocks are elements that begin and end a line.
var blocks = []atom.Atom{
	atom.Address, atom.Article, atom.Blockquote, atom.Dd, atom.Div, atom.Dl, atom.Dt, atom.Footer, atom.Form, atom.H1,
	atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Header, atom.Hr, atom.Li, atom.Ol, atom.P, atom.Pre, atom.Section,
	atom.Table, atom.Tr, atom.Ul,
}

// void are elements that have no content and no end.
var void = []atom.Atom{
	atom.Area, atom.Base, atom.Br, atom.Col, atom.Embed, atom.Hr, atom.Img, atom.Input, atom.Link, atom.Meta, atom.Source,
	atom.Track, atom.Wbr,
}

// maxNested bounds how deep hidden elements are followed; what is below is hidden, too.
const maxNested = 1 << 16

// htmlText returns what people see of a page, as text. It reads tokens and builds no tree, so
// that deep nesting costs nothing.
func htmlText(page string) string {
	t := textWriter{}
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return t.String()
		case html.TextToken:
			t.words(z.Token().Data)
		case html.StartTagToken:
			t.open(z.Token())
		case html.SelfClosingTagToken:
			t.single(z.Token())
		case html.EndTagToken:
			t.end(z.Token())
		}
	}
}

// textWriter collects the text of a page.
type textWriter struct {
	out    strings.Builder
	line   bool      // the line is not empty
	space  bool      // a space is due before the next word
	hidden atom.Atom // the element that hides the text; 0: none
	depth  int       // of elements of that kind inside it
	href   string    // of the link around the text
	pre    int
}

func (t *textWriter) String() string { return t.out.String() }

func (t *textWriter) newline() {
	if t.line {
		t.out.WriteByte('\n')
	}
	t.line, t.space = false, false
}

func (t *textWriter) words(s string) {
	if t.hidden != 0 || t.depth > 0 {
		return
	}
	if t.pre > 0 {
		t.out.WriteString(s)
		t.line = t.line || s != ""
		return
	}
	for i, w := range strings.Fields(s) {
		if t.line && (i > 0 || t.space || strings.TrimLeft(s, " \t\n\r\f\u00a0") != s) {
			t.out.WriteByte(' ')
		}
		t.out.WriteString(w)
		t.line, t.space = true, false
	}
	if t.line && strings.TrimRight(s, " \t\n\r\f\u00a0") != s {
		t.space = true
	}
}

func (t *textWriter) single(tag html.Token) {
	if t.depth > 0 {
		return
	}
	switch {
	case tag.DataAtom == atom.Br:
		t.out.WriteByte('\n')
		t.line, t.space = false, false
	case tag.DataAtom == atom.Img && attr(tag, "alt") != "" && !hides(tag):
		t.words(" [" + attr(tag, "alt") + "] ")
	case slices.Contains(blocks, tag.DataAtom):
		t.newline()
	}
}

func (t *textWriter) open(tag html.Token) {
	a := tag.DataAtom
	switch {
	case slices.Contains(void, a):
		t.single(tag)
		return
	case t.depth > 0:
		if a == t.hidden && t.depth < maxNested {
			t.depth++
		}
		return
	case slices.Contains(invisible, a) || hides(tag):
		t.hidden, t.depth = a, 1
		return
	case slices.Contains(blocks, a):
		t.newline()
	}
	switch a {
	case atom.Li:
		t.words("- ")
	case atom.Pre:
		t.pre++
	case atom.Td, atom.Th:
		t.space = true
	case atom.A:
		t.href = link(tag)
	}
}

func (t *textWriter) end(tag html.Token) {
	a := tag.DataAtom
	if t.depth > 0 {
		if a == t.hidden {
			if t.depth--; t.depth == 0 {
				t.hidden = 0
			}
		}
		return
	}
	switch {
	case a == atom.A && t.href != "":
		t.words(" (" + t.href + ")")
		t.href = ""
	case a == atom.Pre && t.pre > 0:
		t.pre--
	}
	if slices.Contains(blocks, a) {
		t.newline()
		if a == atom.P {
			t.out.WriteByte('\n')
		}
	}
}

// link returns the address of a link that people could follow.
func link(tag html.Token) string {
	if h := attr(tag, "href"); strings.HasPrefix(h, "http://") || strings.HasPrefix(h, "https://") {
		return h
	}
	return ""
}

func attr(tag html.Token, key string) string {
	for _, a := range tag.Attr {
		if a.Key == key {
			return strings.TrimSpace(a.Val)
		}
	}
	return ""
}

// hides reports whether an element's own style keeps people from seeing it.
func hides(tag html.Token) bool {
	for _, a := range tag.Attr {
		if a.Key == "hidden" {
			return true
		}
	}
	style := strings.ToLower(strings.Join(strings.Fields(attr(tag, "style")), ""))
	for rule := range strings.SplitSeq(style, ";") {
		switch strings.TrimSuffix(rule, "!important") {
		case "display:none", "visibility:hidden", "font-size:0", "font-size:0px", "font-size:1px", "opacity:0",
			"max-height:0", "max-height:0px", "mso-hide:all":
			return true
		}
	}
	return false
}
