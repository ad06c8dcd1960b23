package page

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
)

// sniffed is how much of a body says what it is, in bytes.
const sniffed = 512

type kind int

const (
	kindBinary kind = iota
	kindHTML
	kindPDF
	kindText
)

// textual are media types of text that do not begin with text/.
var textual = []string{
	"application/json", "application/xml", "application/javascript", "application/x-javascript", "application/ecmascript",
	"application/yaml", "application/x-yaml", "application/toml", "application/x-sh", "application/sql",
	"application/x-ndjson", "application/jsonl", "application/x-tex", "application/x-httpd-php",
	"message/rfc822", "application/graphql", "application/x-subrip",
}

func kindOf(media string) kind {
	switch {
	case media == "text/html", media == "application/xhtml+xml":
		return kindHTML
	case media == "application/pdf", media == "application/x-pdf":
		return kindPDF
	case strings.HasPrefix(media, "text/"), strings.HasSuffix(media, "+json"), strings.HasSuffix(media, "+xml"),
		strings.HasSuffix(media, "+yaml"):
		return kindText
	}
	if slices.Contains(textual, media) {
		return kindText
	}
	return kindBinary
}

// actual returns the media type of a body that begins with head. What the server says is
// believed, unless it says nothing, or the body is evidently a PDF or HTML.
func actual(said string, head []byte) string {
	looks, _, _ := strings.Cut(http.DetectContentType(head), ";")
	switch {
	case looks == "application/pdf":
		return looks
	case said == "", said == "application/octet-stream", said == "binary/octet-stream", said == "application/unknown",
		said == "application/force-download", said == "text/plain" && looks == "text/html" && isPage(head):
		return looks
	}
	return said
}

// isPage reports whether text begins as a page does, and not merely with some tag.
func isPage(head []byte) bool {
	head = bytes.ToLower(bytes.TrimSpace(head))
	return bytes.HasPrefix(head, []byte("<!doctype html")) || bytes.HasPrefix(head, []byte("<html"))
}
