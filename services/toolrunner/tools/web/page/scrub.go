package page

import (
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// maxSpans bounds how many columns and rows the cells of a page span beyond the first: each is a
// cell of the Markdown, and they multiply.
const maxSpans = 1000

// maxNested bounds how deep lists and quotes nest: every line of one is indented by all that are
// around it.
const maxNested = 16

// dropped are elements that hold no text for a reader.
var dropped = map[atom.Atom]bool{
	atom.Style: true, atom.Noscript: true, atom.Template: true, atom.Iframe: true, atom.Object: true, atom.Embed: true,
	atom.Svg: true, atom.Canvas: true, atom.Audio: true, atom.Video: true, atom.Button: true, atom.Input: true,
	atom.Select: true, atom.Textarea: true, atom.Map: true,
}

// scrub removes from a page what a reader does not see, replaces pictures with their
// descriptions and makes links absolute. It keeps scripts of data, from which dates and
// authors are read.
func scrub(doc *html.Node, at *url.URL) {
	base, spans := baseOf(doc, at), maxSpans
	var next *html.Node
	for n := doc; n != nil; n = next {
		next = following(n, true)
		if n.Type != html.ElementNode {
			continue
		}
		switch {
		case n == doc.FirstChild || n.DataAtom == atom.Html || n.DataAtom == atom.Head || n.DataAtom == atom.Body:
		case dropped[n.DataAtom] || hidden(n) || n.DataAtom == atom.Script && attr(n, "type") != "application/ld+json":
			next = following(n, false)
			n.Parent.RemoveChild(n)
		case n.DataAtom == atom.Img:
			next = following(n, false)
			n.Parent.InsertBefore(&html.Node{Type: html.TextNode, Data: attr(n, "alt")}, n)
			n.Parent.RemoveChild(n)
		case n.DataAtom == atom.A:
			n.Attr = linked(attr(n, "href"), base)
		case nests[n.DataAtom] && nested(n) >= maxNested:
			n.DataAtom, n.Data, n.Attr = atom.Div, "div", nil
		case n.DataAtom == atom.Td || n.DataAtom == atom.Th:
			spans -= limitSpan(n, spans)
		}
	}
}

// nests are elements whose lines are indented.
var nests = map[atom.Atom]bool{atom.Blockquote: true, atom.Ul: true, atom.Ol: true, atom.Li: true}

// nested returns how many elements that indent are around one.
func nested(n *html.Node) (depth int) {
	for a := range n.Ancestors() {
		if nests[a.DataAtom] {
			depth++
		}
	}
	return depth
}

// following returns the node after n in the order of the document, which is its first child if
// into is set.
func following(n *html.Node, into bool) *html.Node {
	if into && n.FirstChild != nil {
		return n.FirstChild
	}
	for ; n != nil; n = n.Parent {
		if n.NextSibling != nil {
			return n.NextSibling
		}
	}
	return nil
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Namespace == "" && a.Key == key {
			return a.Val
		}
	}
	return ""
}

// hidden reports whether an element is evidently not shown: text that only a machine reads
// may be written to mislead it.
func hidden(n *html.Node) bool {
	for _, a := range n.Attr {
		switch a.Key {
		case "hidden":
			return true
		case "style":
			style := strings.Join(strings.Fields(strings.ToLower(a.Val)), "")
			for _, s := range []string{"display:none", "visibility:hidden", "font-size:0;", "font-size:0px", "opacity:0;"} {
				if strings.Contains(style+";", s) {
					return true
				}
			}
		}
	}
	return false
}

// baseOf returns the URL that links of the page are relative to.
func baseOf(doc *html.Node, at *url.URL) *url.URL {
	for n := range doc.Descendants() {
		if n.DataAtom == atom.Base {
			if u, err := at.Parse(attr(n, "href")); err == nil {
				return u
			}
			break
		}
	}
	return at
}

// linked returns the attributes of a link: none if following it would not open a page.
func linked(href string, base *url.URL) []html.Attribute {
	u, err := base.Parse(strings.TrimSpace(href))
	if href == "" || err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "mailto" {
		return nil
	}
	return []html.Attribute{{Key: "href", Val: u.String()}}
}

// limitSpan removes the spans of a cell if they add more than most cells. It returns how many
// the cell adds.
func limitSpan(n *html.Node, most int) int {
	columns, rows := span(n, "colspan"), span(n, "rowspan")
	if added := columns*rows - 1; added <= most {
		return added
	}
	n.Attr = nil
	return 0
}

func span(n *html.Node, key string) int {
	if v, err := strconv.Atoi(attr(n, key)); err == nil {
		return min(max(v, 1), maxSpans+2)
	}
	return 1
}
