package letter

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"path"
	"strings"

	"github.com/emersion/go-message"

	"skandha.dev/services/internal/text"
)

// parser walks through the parts of one letter.
type parser struct {
	letter  *Letter
	limits  Limits
	partial bool // the end of the letter was not fetched
	parts   int
	texts   []string
	bytes   int // of texts
}

// text returns the text of all parts.
func (p *parser) text() string { return strings.TrimSpace(strings.Join(p.texts, "\n\n")) }

func (p *parser) addText(s string) {
	s = strings.TrimSpace(s)
	rest := p.limits.TextBytes - p.bytes
	if s == "" || rest <= 0 {
		return
	}
	if len(s) > rest {
		p.note("the text is longer than %d bytes; its end is left out", p.limits.TextBytes)
		s = text.Cut(s, rest)
	}
	p.bytes += len(s)
	p.texts = append(p.texts, s)
}

// entity reads a part and those inside it. Fault is what New reported: an unknown charset or
// transfer encoding, with which the part is still readable.
func (p *parser) entity(e *message.Entity, fault error, depth int) {
	p.parts++
	media, params, err := e.Header.ContentType()
	if err != nil || media == "" {
		media = "text/plain"
	}
	disposition, dparams, _ := e.Header.ContentDisposition()
	name := p.fileName(dparams["filename"], params["name"])
	switch {
	case strings.HasPrefix(media, "multipart/"):
		p.multipart(e, media, params["boundary"], depth)
	case disposition == "attachment" || name != "" || !strings.HasPrefix(media, "text/"):
		p.attach(e, media, name, fault)
	default:
		p.body(e, media, fault)
	}
}

func (p *parser) multipart(e *message.Entity, media, boundary string, depth int) {
	switch {
	case depth >= p.limits.Depth:
		p.note("parts that are nested more than %d deep are left out", p.limits.Depth)
		return
	case boundary == "":
		p.note("a multipart has no boundary; it is read as text")
		p.body(e, "text/plain", nil)
		return
	case media == "multipart/alternative":
		p.alternative(e, depth)
		return
	}
	p.each(e, func(part *message.Entity, fault error) { p.entity(part, fault, depth+1) })
}

// alternative keeps the plain text if there is one, and the others otherwise.
func (p *parser) alternative(e *message.Entity, depth int) {
	texts, bytes := p.texts, p.bytes
	var plain, other []string
	p.each(e, func(part *message.Entity, fault error) {
		p.texts, p.bytes = nil, bytes
		p.entity(part, fault, depth+1)
		if media, _, _ := part.Header.ContentType(); media == "text/plain" && len(plain) == 0 {
			plain = p.texts
		} else if len(p.texts) > 0 {
			other = p.texts // the last one is the richest
		}
	})
	if len(plain) == 0 {
		plain = other
	}
	p.texts, p.bytes = texts, bytes
	for _, t := range plain {
		p.addText(t)
	}
}

// each calls do for the parts of a multipart.
func (p *parser) each(e *message.Entity, do func(*message.Entity, error)) {
	parts := e.MultipartReader()
	for n := 0; ; n++ {
		if p.parts >= p.limits.Parts {
			p.note("the letter has more than %d parts; the others are left out", p.limits.Parts)
			return
		}
		part, err := parts.NextPart()
		switch {
		case part != nil:
			do(part, err)
		case errors.Is(err, io.EOF):
			return
		default:
			if !p.partial {
				p.note("a multipart is damaged after %d parts: %v", n, err)
			}
			return
		}
	}
}

// body adds a part that people read.
func (p *parser) body(e *message.Entity, media string, fault error) {
	// Markup takes several times the size of the text.
	b, cut, err := readAll(e.Body, int64(p.limits.TextBytes)*8)
	p.damage(fault, err)
	if cut {
		p.note("a text is too long; its end is left out")
	}
	s := clean(string(b))
	if media == "text/html" {
		s = htmlText(s)
	}
	p.addText(s)
}

func (p *parser) attach(e *message.Entity, media, name string, fault error) {
	if len(p.letter.Files) >= p.limits.Attachments {
		p.note("the letter has more than %d attachments; the others are left out", p.limits.Attachments)
		return
	}
	if name == "" {
		name = p.unnamed(media)
	}
	if p.partial {
		p.note("the attachment %q was not read", name)
		return
	}
	b, _, err := readAll(e.Body, p.limits.Bytes)
	if message.IsUnknownCharset(fault) {
		fault = nil // it is kept as it is
	}
	p.damage(fault, err)
	p.letter.Files = append(p.letter.Files, File{Name: name, MediaType: media, Content: b})
}

// damage notes what could not be decoded.
func (p *parser) damage(fault, err error) {
	switch {
	case message.IsUnknownCharset(fault):
		p.note("%v; characters outside of ASCII are replaced", fault)
	case fault != nil:
		p.note("%v; the part is shown as it is", fault)
	}
	if err != nil && !p.partial {
		p.note("a part is damaged; only its beginning was read: %v", err)
	}
}

const maxNameBytes = 120

// fileName returns the first name that is not empty, without a path.
func (p *parser) fileName(names ...string) string {
	for _, n := range names {
		if n == "" {
			continue
		}
		n = strings.ReplaceAll(p.field(n), `\`, "/")
		switch n = path.Base(n); n {
		case ".", "..", "/":
		default:
			ext := path.Ext(n)
			if len(n) > maxNameBytes && len(ext) < 16 {
				return text.Cut(strings.TrimSuffix(n, ext), maxNameBytes) + ext
			}
			return text.Cut(n, maxNameBytes)
		}
	}
	return ""
}

// unnamed returns a name for an attachment that has none.
func (p *parser) unnamed(media string) string {
	ext := ".bin"
	switch known, _ := mime.ExtensionsByType(media); {
	case media == "message/rfc822":
		ext = ".eml"
	case len(known) > 0:
		ext = known[0]
	}
	return fmt.Sprintf("attachment-%d%s", len(p.letter.Files)+1, ext)
}
