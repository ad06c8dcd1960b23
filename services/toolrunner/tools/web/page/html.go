package page

import (
	"bytes"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"codeberg.org/readeck/go-readability"
	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
)

// A main text shorter than fewRunes that is less than a fourth of the page is taken to be a
// wrong guess.
const fewRunes = 800

// html reads a page: its main text as Markdown or, if whole is set or there is none, all of it.
func (d *document) html(page string, at *url.URL, whole bool) {
	page, cut := bounded(page)
	if cut {
		d.notes = append(d.notes, "the page has more elements than are read; its end is missing")
	}
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil { // it nests deeper than the parser allows
		d.text = plain(page)
		d.notes = append(d.notes, "the page is damaged or nested too deep, and is shown as plain text")
		return
	}
	scrub(doc, at)
	article, err := mainText(doc, at)
	if err == nil {
		d.describe(article.Title, article.Byline, article.SiteName)
		if article.PublishedTime != nil {
			d.source.Published = article.PublishedTime.Format(time.DateOnly)
		}
	}
	node := article.Node
	if whole || node == nil || article.Length < fewRunes && article.Length*4 < visible(doc) {
		node = doc
	}
	md, err := markdown().ConvertNode(node)
	if err != nil {
		d.text = plain(page)
		return
	}
	d.format, d.text = "markdown", string(bytes.TrimSpace(md))
}

// mainText finds the main text. A page on which the finder panics has none.
func mainText(doc *html.Node, at *url.URL) (article readability.Article, err error) {
	defer func() {
		if recover() != nil {
			article, err = readability.Article{}, nil
		}
	}()
	p := readability.NewParser()
	return p.ParseDocument(doc, at)
}

// markdown returns a converter. Cells are not padded: one long cell would widen every row.
func markdown() *converter.Converter {
	return converter.NewConverter(converter.WithPlugins(
		base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(commonmark.WithLinkEmptyHrefBehavior(commonmark.LinkBehaviorSkip)),
		table.NewTablePlugin(table.WithCellPaddingBehavior(table.CellPaddingBehaviorNone), table.WithSkipEmptyRows(true)),
	))
}

// visible returns how many characters of text a page has.
func visible(n *html.Node) (count int) {
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			count += utf8.RuneCountInString(strings.TrimSpace(c.Data))
		}
	}
	return count
}
