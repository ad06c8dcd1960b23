package markdown

import (
	"bytes"
	"fmt"
	"html"
	"log/slog"
	"strings"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
)

// maxBytes is the size of the longest text that is rendered as Markdown. Longer texts
// are shown as plain text.
const maxBytes = 1 << 20

// Renderer turns Markdown into HTML.
type Renderer struct {
	parser   parser.Parser
	renderer renderer.Renderer
	policy   *bluemonday.Policy
}

// New returns a renderer.
func New() *Renderer {
	return &Renderer{parser: newParser(), renderer: newRenderer(), policy: newPolicy()}
}

// Render returns the text as HTML.
func (r *Renderer) Render(markdown string) string {
	src := clean(markdown)
	if len(src) > maxBytes {
		return plain(src)
	}
	return r.guarded(src, func() (string, error) {
		doc, _ := r.parse(src)
		return r.html(doc, src)
	})
}

// guarded returns plain text if the library panics: text of a model must not end the
// process.
func (r *Renderer) guarded(src []byte, render func() (string, error)) (out string) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("rendering Markdown failed; showing plain text", "panic", fmt.Sprint(p), "bytes", len(src))
			out = plain(src)
		}
	}()
	out, err := render()
	if err != nil {
		return plain(src)
	}
	return out
}

// parse parses the text, and returns the offsets at which its top-level blocks begin.
func (r *Renderer) parse(src []byte) (ast.Node, []int) {
	ctx := parser.NewContext()
	found := &opened{}
	ctx.Set(openedKey, found)
	doc := r.parser.Parse(text.NewReader(src), parser.WithContext(ctx))
	return doc, found.at
}

func (r *Renderer) html(doc ast.Node, src []byte) (string, error) {
	var out bytes.Buffer
	if err := r.renderer.Render(&out, src, doc); err != nil {
		return "", fmt.Errorf("rendering Markdown: %w", err)
	}
	return r.policy.SanitizeReader(&out).String(), nil
}

// clean makes the text valid UTF-8 without NUL, which HTML cannot represent.
func clean(s string) []byte {
	return []byte(strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD"))
}

// plain returns the text as preformatted HTML.
func plain(src []byte) string {
	if len(bytes.TrimSpace(src)) == 0 {
		return ""
	}
	return "<pre>\n" + html.EscapeString(string(src)) + "</pre>\n" // a parser drops the first newline
}
