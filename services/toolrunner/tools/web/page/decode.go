package page

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/gogs/chardet"
	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
)

// errNotText is the error of text that is none.
var errNotText = errors.New("the page is not text, although the server says that it is; web:fetch reads HTML, text, JSON and PDF")

// guessed is how much of a body its encoding is guessed from, in bytes.
const guessed = 64 << 10

// decode returns text as valid UTF-8. Its encoding is that of a byte order mark, of the header
// Content-Type, or of the page itself; if none says it and it is not UTF-8, it is guessed.
func decode(b []byte, contentType string) (string, error) {
	e, name, certain := charset.DetermineEncoding(b, contentType)
	if !certain {
		switch {
		case utf8.Valid(whole(b)):
			name = "utf-8"
		default:
			e, name = guess(b, e, name)
		}
	}
	if name != "utf-8" {
		out, err := e.NewDecoder().Bytes(b)
		if err != nil {
			return "", err
		}
		b = out
	}
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	if bytes.IndexByte(b, 0) >= 0 {
		return "", errNotText
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), nil
}

// whole returns b without a character that was cut at its end.
func whole(b []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-n:]) {
				return b[:len(b)-n]
			}
			break
		}
	}
	return b
}

// guess returns the encoding that the bytes look like; e if they look like none.
func guess(b []byte, e encoding.Encoding, name string) (encoding.Encoding, string) {
	best, err := chardet.NewHtmlDetector().DetectBest(b[:min(len(b), guessed)])
	if err != nil || best.Confidence < 30 {
		return e, name
	}
	found, known := charset.Lookup(best.Charset)
	if found == nil {
		return e, name
	}
	return found, known
}
