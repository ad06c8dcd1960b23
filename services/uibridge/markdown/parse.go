package markdown

import (
	"bytes"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// The bounds of a text that is rendered as Markdown.
const (
	maxDepth = 16  // of nested quotes and lists
	maxSigns = 500 // in a paragraph, a heading or a row, that may have to be scanned again
	maxPipes = 256 // escaped ones, in the tables of a text
)

// signs are the characters that may begin or end an inline element.
const signs = "*_~[]!()<>`&\\:@"

func newParser() parser.Parser {
	return parser.NewParser(
		parser.WithBlockParsers(
			block(parser.NewSetextHeadingParser(), 100),
			block(parser.NewThematicBreakParser(), 200),
			block(nesting{parser.NewListParser()}, 300),
			block(parser.NewListItemParser(), 400),
			block(parser.NewCodeBlockParser(), 500),
			block(calm{parser.NewATXHeadingParser()}, 600),
			block(parser.NewFencedCodeBlockParser(), 700),
			block(nesting{parser.NewBlockquoteParser()}, 800),
			block(parser.NewParagraphParser(), 1000),
		),
		parser.WithParagraphTransformers(
			util.Prioritized(tables{extension.NewTableParagraphTransformer()}, 200),
			util.Prioritized(crowds{}, 300),
		),
		parser.WithInlineParsers(
			util.Prioritized(extension.NewTaskCheckBoxParser(), 0),
			util.Prioritized(parser.NewCodeSpanParser(), 100),
			util.Prioritized(parser.NewLinkParser(), 200),
			util.Prioritized(parser.NewAutoLinkParser(), 300),
			util.Prioritized(parser.NewEmphasisParser(), 500),
			util.Prioritized(extension.NewStrikethroughParser(), 500),
			util.Prioritized(extension.NewLinkifyParser(extension.WithLinkifyAllowedProtocols([]string{"http:", "https:"})),
				999),
		),
		parser.WithASTTransformers(util.Prioritized(extension.NewTableASTTransformer(), 0)),
	)
}

func block(p parser.BlockParser, priority int) util.PrioritizedValue {
	return util.Prioritized(noting{p}, priority)
}

// opened holds the offsets at which top-level blocks of a text begin.
type opened struct {
	at    []int
	pipes int // escaped ones in tables so far
}

var openedKey = parser.NewContextKey()

func openedOf(pc parser.Context) *opened { return pc.Get(openedKey).(*opened) }

// noting records where top-level blocks begin.
type noting struct{ parser.BlockParser }

// Open implements parser.BlockParser.
func (n noting) Open(parent ast.Node, reader text.Reader, pc parser.Context) (ast.Node, parser.State) {
	_, segment := reader.PeekLine()
	node, state := n.BlockParser.Open(parent, reader, pc)
	if node != nil && parent.Kind() == ast.KindDocument {
		o := openedOf(pc)
		o.at = append(o.at, bytes.LastIndexByte(reader.Source()[:segment.Start], '\n')+1)
	}
	return node, state
}

// nesting does not open quotes and lists that would be nested too deeply; their text
// becomes a paragraph.
type nesting struct{ parser.BlockParser }

// Open implements parser.BlockParser.
func (n nesting) Open(parent ast.Node, reader text.Reader, pc parser.Context) (ast.Node, parser.State) {
	depth := 0
	for p := parent; p != nil; p = p.Parent() {
		if k := p.Kind(); k == ast.KindBlockquote || k == ast.KindList {
			depth++
		}
	}
	if depth >= maxDepth {
		return nil, parser.NoChildren
	}
	return n.BlockParser.Open(parent, reader, pc)
}

// calm does not open a heading whose line has too many signs; it becomes a paragraph.
type calm struct{ parser.BlockParser }

// Open implements parser.BlockParser.
func (c calm) Open(parent ast.Node, reader text.Reader, pc parser.Context) (ast.Node, parser.State) {
	if line, _ := reader.PeekLine(); crowded(line) {
		return nil, parser.NoChildren
	}
	return c.BlockParser.Open(parent, reader, pc)
}

func crowded(line []byte) bool { return countSigns(line) > maxSigns }

func countSigns(b []byte) int {
	n := 0
	for _, c := range b {
		if bytes.IndexByte([]byte(signs), c) >= 0 {
			n++
		}
	}
	return n
}

// crowds turns a paragraph with too many signs into plain text.
type crowds struct{}

// Transform implements parser.ParagraphTransformer.
func (crowds) Transform(node *ast.Paragraph, reader text.Reader, _ parser.Context) {
	lines, n := node.Lines(), 0
	for i := range lines.Len() {
		line := lines.At(i)
		n += countSigns(line.Value(reader.Source()))
	}
	if n <= maxSigns {
		return
	}
	raw := &asWritten{}
	raw.SetLines(lines)
	raw.SetBlankPreviousLines(node.HasBlankPreviousLines())
	parent := node.Parent()
	parent.ReplaceChild(parent, node, raw)
}

// asWritten is a paragraph that is not parsed further.
type asWritten struct{ ast.BaseBlock }

var kindAsWritten = ast.NewNodeKind("AsWritten")

// Kind implements ast.Node.
func (*asWritten) Kind() ast.NodeKind { return kindAsWritten }

// IsRaw implements ast.Node.
func (*asWritten) IsRaw() bool { return true }

// Dump implements ast.Node.
func (a *asWritten) Dump(source []byte, level int) { ast.DumpHelper(a, source, level, nil, nil) }

// tables does not create tables that would be much longer than their text, or costly to
// parse.
type tables struct{ parser.ParagraphTransformer }

// Transform implements parser.ParagraphTransformer.
func (t tables) Transform(node *ast.Paragraph, reader text.Reader, pc parser.Context) {
	lines := node.Lines()
	columns, size, pipes := 0, 0, 0
	for i := range lines.Len() {
		segment := lines.At(i)
		line := segment.Value(reader.Source())
		if crowded(line) {
			return
		}
		size += len(line)
		pipes += bytes.Count(line, []byte(`\|`))
		if len(bytes.Trim(line, "-|: \t\r\n")) == 0 { // it may be the delimiter row, which sets the number of columns
			columns = max(columns, bytes.Count(line, []byte("|"))+1)
		}
	}
	o := openedOf(pc)
	if columns == 0 || columns*lines.Len() > size || o.pipes+pipes > maxPipes {
		return
	}
	o.pipes += pipes
	t.ParagraphTransformer.Transform(node, reader, pc)
}
