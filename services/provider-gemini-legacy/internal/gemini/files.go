package gemini

import (
	"cmp"
	"fmt"
	"mime"
	"slices"

	"github.com/google/generative-ai-go/genai"

	"skandha.dev/pkg/provider"
)

// shown are the media types that the models can read. The API refuses a conversation with any
// other.
var shown = []string{
	"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "application/pdf",
	"audio/wav", "audio/x-wav", "audio/mp3", "audio/mpeg", "audio/aiff", "audio/aac", "audio/ogg", "audio/flac",
}

// fileParts are the files of a message: each is its content after a line that names it, or
// only the line.
func fileParts(m provider.Message) (parts []genai.Part) {
	for _, f := range m.Files {
		name := fmt.Sprintf("file %s, %s, %d bytes", cmp.Or(f.Name, f.Ref), f.MediaType, f.Bytes)
		if m.Role == provider.RoleTool {
			name += ", of the tool " + m.Tool
		}
		kind, _, err := mime.ParseMediaType(f.MediaType)
		if err != nil || len(f.Data) == 0 || !slices.Contains(shown, kind) {
			parts = append(parts, genai.Text("["+name+"; its content is not shown]"))
			continue
		}
		parts = append(parts, genai.Text("["+name+"]"), genai.Blob{MIMEType: kind, Data: f.Data})
	}
	return parts
}
