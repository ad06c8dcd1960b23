package anthropic

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	contract "skandha.dev/pkg/provider"
)

// source is the content of a picture or a document.
type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"` // as base64
}

// maxImage is the size of the largest picture that the API accepts, in bytes of base64.
const maxImage = 5 << 20

var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

const pdf = "application/pdf"

// fileBlocks returns the files of a message, one block each.
func fileBlocks(files []contract.File) []any {
	var out []any
	for _, f := range files {
		out = append(out, fileBlock(f))
	}
	return out
}

// fileBlock returns a file as the model can read it, or a line that says why it cannot. The
// type is the content's: the API refuses one that does not fit.
func fileBlock(f contract.File) *block {
	name := cmp.Or(f.Name, path.Base(f.Ref))
	declared, _, _ := mime.ParseMediaType(f.MediaType) // unknown: as no type
	found := http.DetectContentType(f.Data)
	switch {
	case len(f.Data) == 0:
		return line("The file %q (%s, %d bytes) is not available.", name, f.MediaType, f.Bytes)
	case strings.HasPrefix(declared, "text/") && isText(f.Data):
		return line("The file %q:\n%s", name, f.Data)
	case slices.Contains(pictures, found) && base64.StdEncoding.EncodedLen(len(f.Data)) > maxImage:
		return line("The picture %q (%d bytes) is too large to be shown.", name, len(f.Data))
	case slices.Contains(pictures, found):
		return &block{Type: "image", Source: &source{"base64", found, f.Data}}
	case found == pdf:
		return &block{Type: "document", Title: name, Source: &source{"base64", pdf, f.Data}}
	}
	return line("The file %q (%s, %d bytes) is of a type that cannot be shown.", name, f.MediaType, len(f.Data))
}

func isText(data []byte) bool { return utf8.Valid(data) && !bytes.ContainsRune(data, 0) }

func line(format string, args ...any) *block {
	return &block{Type: typeText, Text: fmt.Sprintf(format, args...)}
}
