package httpapi

import (
	"fmt"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	contract "skandha.dev/pkg/provider"
)

// PDF is the media type of PDF documents.
const PDF = "application/pdf"

var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// IsPicture reports whether a media type is one of the pictures that all APIs accept: PNG,
// JPEG, GIF and WebP.
func IsPicture(mediaType string) bool { return slices.Contains(pictures, mediaType) }

// Compose returns a message's text, with what its files add to it, and the files that are
// sent beside it, each with a media type that accepts has reported true for. Text files
// become text. A file that has no content, or that the API does not accept, becomes one line
// that names it and says so.
func Compose(m contract.Message, accepts func(mediaType string) bool) (text string, beside []contract.File) {
	var texts []string
	if m.Text != "" {
		texts = append(texts, m.Text)
	}
	for _, f := range m.Files {
		media, why := mediaType(f)
		switch {
		case why == "" && isText(media):
			texts = append(texts, "["+Title(f)+"]\n"+string(f.Data))
		case why == "" && accepts(media):
			f.MediaType = media
			beside = append(beside, f)
		case why == "":
			texts = append(texts, "["+Title(f)+": this model's API does not accept such a file]")
		default:
			texts = append(texts, "["+Title(f)+": "+why+"]")
		}
	}
	return strings.Join(texts, "\n\n"), beside
}

// Title describes a file in one line, such as "file plot.png, image/png, 1234 bytes".
func Title(f contract.File) string {
	return fmt.Sprintf("file %s, %s, %d bytes", FileName(f), oneLine(f.MediaType), max(f.Bytes, int64(len(f.Data))))
}

// Belongs is the line before a file that belongs to the result of a call, in APIs whose
// results are text: callID is the call's id as the API knows it; empty if it knows none.
func Belongs(m contract.Message, f contract.File, callID string) string {
	of := m.Tool
	if callID != "" {
		of = strings.TrimSpace(of + " (call " + callID + ")")
	}
	return "[" + Title(f) + ": belongs to the result of " + of + "]"
}

// FileName returns the file's name, or the last element of its reference if it has none.
func FileName(f contract.File) string {
	if name := oneLine(f.Name); name != "" {
		return name
	}
	return oneLine(path.Base(f.Ref))
}

// oneLine replaces control characters, so that a name cannot end the line that it is in.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || c == '\u2028' || c == '\u2029' {
			return ' '
		}
		return c
	}, s))
}

// mediaType returns the media type to send a file with, or why its content cannot be sent.
// APIs refuse a whole conversation for a picture that is not what its type says, so the type
// of a picture is read from the content.
func mediaType(f contract.File) (media, why string) {
	if len(f.Data) == 0 {
		return "", "its content is missing, because it is no longer stored, too large or empty"
	}
	media, _, err := mime.ParseMediaType(f.MediaType)
	if err != nil {
		return "", "its media type cannot be read"
	}
	if media == "image/jpg" || IsPicture(media) {
		if media = http.DetectContentType(f.Data); !IsPicture(media) {
			return "", "its content is not such a picture"
		}
	}
	if isText(media) && !utf8.Valid(f.Data) {
		return "", "its content is not UTF-8"
	}
	return media, ""
}

func isText(media string) bool {
	switch media {
	case "application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml":
		return true
	}
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "+json") || strings.HasSuffix(media, "+xml")
}
