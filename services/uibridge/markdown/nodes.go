package markdown

import (
	"bytes"
	"html"
	"regexp"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer"
	goldhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/util"
)

// maxInline is the maximum depth of nested emphasis.
const maxInline = 8

func newRenderer() renderer.Renderer {
	return renderer.NewRenderer(renderer.WithNodeRenderers(
		util.Prioritized(nodes{}, 100), // the lowest wins
		util.Prioritized(extension.NewTableHTMLRenderer(
			extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), 500),
		util.Prioritized(goldhtml.NewRenderer(), 1000),
	))
}

// nodes renders the nodes with addresses, language names or nesting.
type nodes struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (nodes) RegisterFuncs(reg renderer.NodeRendererFuncRegisterer) {
	reg.Register(kindAsWritten, asWrittenHTML)
	reg.Register(ast.KindFencedCodeBlock, codeHTML)
	reg.Register(ast.KindAutoLink, autoLinkHTML)
	reg.Register(ast.KindLink, linkHTML)
	reg.Register(ast.KindImage, imageHTML)
	reg.Register(ast.KindEmphasis, emphasisHTML)
	reg.Register(extast.KindStrikethrough, strikethroughHTML)
	reg.Register(extast.KindTaskCheckBox, taskHTML)
}

func asWrittenHTML(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString("<p>")
		writeLines(w, source, n)
		_, _ = w.WriteString("</p>\n")
	}
	return ast.WalkSkipChildren, nil
}

func writeLines(w util.BufWriter, source []byte, n ast.Node) {
	for i := range n.Lines().Len() {
		line := n.Lines().At(i)
		_, _ = w.WriteString(html.EscapeString(string(line.Value(source))))
	}
}

// language matches what may follow "language-" in a class.
var language = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+#._-]{0,31}$`)

func codeHTML(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	n := node.(*ast.FencedCodeBlock)
	_, _ = w.WriteString("<pre><code")
	if l := n.Language(source); language.Match(l) {
		_, _ = w.WriteString(` class="language-` + string(l) + `"`)
	}
	_ = w.WriteByte('>')
	writeLines(w, source, n)
	_, _ = w.WriteString("</code></pre>\n")
	return ast.WalkSkipChildren, nil
}

func autoLinkHTML(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	n := node.(*ast.AutoLink)
	to := string(n.URL(source))
	if n.AutoLinkType == ast.AutoLinkEmail && !strings.HasPrefix(strings.ToLower(to), "mailto:") {
		to = "mailto:" + to
	}
	to, ok := linkAddress(to)
	if ok {
		openLink(w, to, "")
	}
	_, _ = w.WriteString(html.EscapeString(string(n.Label(source))))
	if ok {
		_, _ = w.WriteString("</a>")
	}
	return ast.WalkContinue, nil
}

func linkHTML(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	n := node.(*ast.Link)
	to, ok := linkAddress(unescape(n.Destination))
	switch {
	case !ok: // keep its text
	case entering:
		openLink(w, to, unescape(n.Title))
	default:
		_, _ = w.WriteString("</a>")
	}
	return ast.WalkContinue, nil
}

func openLink(w util.BufWriter, to, title string) {
	_, _ = w.WriteString(`<a href="` + html.EscapeString(to) + `"`)
	writeTitle(w, title)
	_, _ = w.WriteString(` rel="` + linkRel + `" target="_blank">`)
}

func writeTitle(w util.BufWriter, title string) {
	if title != "" {
		_, _ = w.WriteString(` title="` + html.EscapeString(title) + `"`)
	}
}

func imageHTML(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	n := node.(*ast.Image)
	dest := unescape(n.Destination)
	var alt strings.Builder
	writeText(&alt, source, n)
	if isArtifact(dest) {
		_, _ = w.WriteString(`<img src="` + html.EscapeString(dest) + `" alt="` + html.EscapeString(alt.String()) + `"`)
		writeTitle(w, unescape(n.Title))
		_ = w.WriteByte('>')
		return ast.WalkSkipChildren, nil
	}
	to, ok := linkAddress(dest)
	ok = ok && !within(n, ast.KindLink)
	label := alt.String()
	if ok {
		openLink(w, to, unescape(n.Title))
		if strings.TrimSpace(label) == "" {
			label = to
		}
	}
	_, _ = w.WriteString(html.EscapeString(label))
	if ok {
		_, _ = w.WriteString("</a>")
	}
	return ast.WalkSkipChildren, nil
}

// within reports whether the node is inside a node of this kind.
func within(n ast.Node, kind ast.NodeKind) bool {
	for p := n.Parent(); p != nil; p = p.Parent() {
		if p.Kind() == kind {
			return true
		}
	}
	return false
}

// writeText writes what a reader sees of the node, without its markup.
func writeText(b *strings.Builder, source []byte, n ast.Node) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			if c.IsRaw() {
				b.Write(c.Segment.Value(source))
			} else {
				b.WriteString(unescape(c.Segment.Value(source)))
			}
			if c.SoftLineBreak() || c.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.AutoLink:
			b.Write(c.Label(source))
		default:
			writeText(b, source, c)
		}
	}
}

// unescape resolves backslashes and entities.
func unescape(b []byte) string {
	return string(util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(bytes.Clone(b)))))
}

func emphasisHTML(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	tag := "em"
	if node.(*ast.Emphasis).Level == 2 {
		tag = "strong"
	}
	return inlineHTML(w, tag, node, entering)
}

func strikethroughHTML(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	return inlineHTML(w, "del", node, entering)
}

// inlineHTML omits the element if it is nested too deeply.
func inlineHTML(w util.BufWriter, tag string, node ast.Node, entering bool) (ast.WalkStatus, error) {
	depth := 0
	for p := node.Parent(); p != nil && p.Type() == ast.TypeInline; p = p.Parent() {
		if depth++; depth >= maxInline {
			return ast.WalkContinue, nil
		}
	}
	if entering {
		_, _ = w.WriteString("<" + tag + ">")
	} else {
		_, _ = w.WriteString("</" + tag + ">")
	}
	return ast.WalkContinue, nil
}

// taskHTML writes a task's checkbox as a character: a control would have no effect here.
func taskHTML(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		mark := "☐ "
		if node.(*extast.TaskCheckBox).IsChecked {
			mark = "☑ "
		}
		_, _ = w.WriteString(mark)
	}
	return ast.WalkContinue, nil
}
