package pdftext

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/klippa-app/go-pdfium"
	pdferrors "github.com/klippa-app/go-pdfium/errors"
	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
	"github.com/klippa-app/go-pdfium/webassembly"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// The bounds of a document.
const (
	maxPages  = 2000 // that are read
	maxText   = 2 << 20
	maxTime   = 20 * time.Second
	maxBroken = 20 // pages in a row that cannot be read
)

// wasmPage is the unit of WebAssembly's memory, in bytes.
const wasmPage = 64 << 10

// Document is what is read of a PDF.
type Document struct {
	Title, Author string
	Text          string // of the pages, with an empty line between two
	Pages         int    // that the document says it has
	Read          int    // pages that Text begins with; less than Pages if a limit was reached
}

var (
	// one bounds the memory: the second document waits for the first.
	one = make(chan struct{}, 1)
	// compiled keeps PDFium's machine code.
	compiled = wazero.NewCompilationCache()
)

// ready compiles PDFium once, in the background, and returns a channel that is closed when that
// is done. It is not part of the time for a document: a busy machine takes longer for it.
var ready = sync.OnceValue(func() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if pool, err := sandbox(context.Background()); err == nil {
			_ = pool.Close() // its code is kept
		} // otherwise the next sandbox has the same error
	}()
	return done
})

// Read returns the text of a PDF. It returns soon after ctx ends.
func Read(ctx context.Context, pdf []byte) (doc Document, err error) {
	select {
	case one <- struct{}{}:
		defer func() { <-one }()
	case <-ctx.Done():
		return Document{}, fmt.Errorf("waiting for another PDF: %w", ctx.Err())
	}
	select {
	case <-ready():
	case <-ctx.Done():
		return Document{}, fmt.Errorf("the PDF reader is still being prepared; try again: %w", ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the PDF reader failed: %v", p)
		}
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("the PDF could not be read in time: %w", ctx.Err())
		}
	}()
	pool, err := sandbox(ctx)
	if err != nil {
		return Document{}, err
	}
	defer func() { _ = pool.Close() }() // it is not used again
	reader, err := pool.GetInstanceWithContext(ctx)
	if err != nil {
		return Document{}, fmt.Errorf("starting the PDF reader: %w", err)
	}
	return read(ctx, reader, pdf)
}

// sandbox returns a pool of one instance, whose calls end with ctx.
func sandbox(ctx context.Context) (pdfium.Pool, error) {
	mem, err := reserved()
	if err != nil {
		return nil, err
	}
	pool, err := webassembly.Init(webassembly.Config{
		Context: experimental.WithMemoryAllocator(ctx, mem), MaxTotal: 1, FSConfig: wazero.NewFSConfig(), Stdout: io.Discard, Stderr: io.Discard,
		RuntimeConfig: wazero.NewRuntimeConfig().
			WithCoreFeatures(api.CoreFeaturesV2 | experimental.CoreFeaturesExceptionHandling).
			WithCompilationCache(compiled).WithCloseOnContextDone(true).WithMemoryLimitPages(memorySize / wasmPage),
	})
	if err != nil {
		return nil, fmt.Errorf("starting the PDF reader: %w", err)
	}
	return pool, nil
}

func read(ctx context.Context, r pdfium.Pdfium, pdf []byte) (Document, error) {
	opened, err := r.OpenDocument(&requests.OpenDocument{File: &pdf})
	if err != nil {
		return Document{}, explained(err)
	}
	count, err := r.FPDF_GetPageCount(&requests.FPDF_GetPageCount{Document: opened.Document})
	if err != nil {
		return Document{}, explained(err)
	}
	d := Document{Pages: count.PageCount, Title: meta(r, opened.Document, "Title"), Author: meta(r, opened.Document, "Author")}
	var b strings.Builder
	for broken := 0; d.Read < min(d.Pages, maxPages) && b.Len() < maxText && broken < maxBroken; d.Read++ {
		page := requests.Page{ByIndex: &requests.PageByIndex{Document: opened.Document, Index: d.Read}}
		got, err := r.GetPageText(&requests.GetPageText{Page: page})
		if ctx.Err() != nil {
			return Document{}, ctx.Err()
		}
		if err != nil {
			broken++
			continue
		}
		broken = 0
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(clean(got.Text))
	}
	d.Text = strings.TrimSpace(b.String())
	return d, nil
}

func meta(r pdfium.Pdfium, doc references.FPDF_DOCUMENT, tag string) string {
	m, err := r.FPDF_GetMetaText(&requests.FPDF_GetMetaText{Document: doc, Tag: tag})
	if err != nil {
		return "" // it is optional
	}
	return m.Value
}

// explained says what is wrong with a document that cannot be opened.
func explained(err error) error {
	switch {
	case errors.Is(err, pdferrors.ErrPassword):
		return errors.New("the PDF is protected by a password")
	case errors.Is(err, pdferrors.ErrSecurity):
		return errors.New("the PDF has an encryption that is not supported")
	case errors.Is(err, pdferrors.ErrFormat), errors.Is(err, pdferrors.ErrFile):
		return errors.New("the document is damaged, or no PDF")
	}
	return fmt.Errorf("reading the PDF: %w", err)
}

// clean removes what PDFium adds to the text: carriage returns, and marks where a word is
// divided at the end of a line.
var clean = strings.NewReplacer("\x02\r\n", "", "\x02", "", "\ufffe\r\n", "", "\ufffe", "", "\r\n", "\n", "\x00", "").Replace
