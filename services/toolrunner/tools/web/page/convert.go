package page

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"skandha.dev/services/internal/text"
	"skandha.dev/services/toolrunner/tools/web/pdftext"
	"skandha.dev/services/toolrunner/tools/web/source"
)

// maxText bounds the text of a page, in bytes.
const maxText = 2 << 20

// converted converts a body, in a goroutine that may be abandoned when ctx ends: the libraries that
// read HTML cannot be stopped. A page that is still being converted keeps its place, so only so many
// can be.
func (f *fetcher) converted(ctx context.Context, b body, whole bool) (document, error) {
	ctx, cancel := context.WithTimeout(ctx, f.convert)
	defer cancel()
	select {
	case f.busy <- struct{}{}:
	case <-ctx.Done():
		return document{}, errors.New("too many pages are being converted; try again later")
	}
	type outcome struct {
		document
		error
	}
	done := make(chan outcome, 1)
	go func() {
		defer func() { <-f.busy }()
		var o outcome
		defer func() {
			if p := recover(); p != nil {
				o.error = fmt.Errorf("the page could not be converted: %v", p)
			}
			done <- o
		}()
		o.document, o.error = f.document(ctx, b, whole)
	}()
	select {
	case o := <-done:
		return o.document, o.error
	case <-ctx.Done():
		return document{}, fmt.Errorf("the page could not be converted within %v", f.convert)
	}
}

// document returns a body as a document.
func (f *fetcher) document(ctx context.Context, b body, whole bool) (document, error) {
	src, ok := source.New("", b.url.String())
	if !ok {
		return document{}, errors.New("the URL that answered cannot be shown")
	}
	d := document{source: src, format: "text"}
	if b.cut {
		d.notes = append(d.notes, fmt.Sprintf("the page is longer than %d bytes; the rest was not read", len(b.data)))
	}
	switch kindOf(b.media) {
	case kindPDF:
		doc, err := f.readPDF(ctx, b.data)
		if err != nil {
			return document{}, err
		}
		d.pdf(doc)
	case kindHTML:
		s, err := decode(b.data, b.charset)
		if err != nil {
			return document{}, err
		}
		d.html(s, b.url, whole)
	default:
		s, err := decode(b.data, b.charset)
		if err != nil {
			return document{}, err
		}
		d.text = s
	}
	if len(d.text) > maxText {
		d.text = text.Cut(d.text, maxText)
		d.notes = append(d.notes, fmt.Sprintf("the text is longer than %d bytes; the rest was left out", maxText))
	}
	if strings.TrimSpace(d.text) == "" {
		d.notes = append(d.notes, "the page has no text")
	}
	return d, nil
}

func (d *document) pdf(doc pdftext.Document) {
	d.text = strings.ToValidUTF8(doc.Text, "\uFFFD")
	d.describe(doc.Title, doc.Author, "")
	if doc.Read < doc.Pages {
		d.notes = append(d.notes, fmt.Sprintf("only the first %d of %d pages were read", doc.Read, doc.Pages))
	}
	if strings.TrimSpace(d.text) == "" {
		d.notes = append(d.notes, "its pages may be pictures")
	}
}

// describe sets what the page says of itself.
func (d *document) describe(title, byline, site string) {
	if title = source.Line(title, 200); title != "" {
		d.source.Title = title
	}
	d.source.Byline, d.source.Site = source.Line(byline, 200), source.Line(site, 100)
}
