package anthropic

import (
	"encoding/base64"
	"slices"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/httpapi"
)

// source is the content of a picture or a document.
type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"` // as base64
}

// maxImage is the size of the largest picture that the API accepts, in bytes of base64.
const maxImage = 5 << 20

// composed returns a message's text, with what its files add to it, and a block for each file
// that is sent beside it.
func composed(m contract.Message) (text string, files []any) {
	m.Files = slices.Clone(m.Files)
	for i, f := range m.Files {
		if httpapi.IsPicture(f.MediaType) && base64.StdEncoding.EncodedLen(len(f.Data)) > maxImage {
			m.Files[i].Data = nil // the text says so
		}
	}
	text, beside := httpapi.Compose(m, func(media string) bool { return httpapi.IsPicture(media) || media == httpapi.PDF })
	for _, f := range beside {
		files = append(files, fileBlock(f))
	}
	return text, files
}

func fileBlock(f contract.File) *block {
	if f.MediaType == httpapi.PDF {
		return &block{Type: "document", Title: httpapi.FileName(f), Source: &source{"base64", f.MediaType, f.Data}}
	}
	return &block{Type: "image", Source: &source{"base64", f.MediaType, f.Data}}
}
