package scripted

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/httpapi"
)

// Saw describes the content of a file: its media type, size and checksum.
func Saw(f contract.File) string {
	sum := sha256.Sum256(f.Data)
	return fmt.Sprintf("%s, %d bytes, %s", f.MediaType, len(f.Data), hex.EncodeToString(sum[:6]))
}

// composed returns the request as a model sees it: text files and missing ones are text.
func composed(req contract.Request) (contract.Request, error) {
	req.Messages = slices.Clone(req.Messages)
	for i, raw := range req.Messages {
		if !bytes.Contains(raw, []byte(`"files"`)) {
			continue
		}
		var m contract.Message
		err := json.Unmarshal(raw, &m)
		if err != nil {
			return req, fmt.Errorf("messages[%d]: %w", i, err)
		}
		m.Text, m.Files = httpapi.Compose(m, accepts)
		if req.Messages[i], err = json.Marshal(m); err != nil {
			return req, err
		}
	}
	return req, nil
}

func accepts(mediaType string) bool { return httpapi.IsPicture(mediaType) || mediaType == httpapi.PDF }

// describe lists the files of the last user message, and what its text says after the first line.
func describe(req contract.Request) string {
	var lines []string
	for _, raw := range slices.Backward(req.Messages) {
		var m contract.Message
		if json.Unmarshal(raw, &m) != nil || m.Role != contract.RoleUser {
			continue
		}
		for _, f := range m.Files {
			lines = append(lines, Saw(f))
		}
		if _, rest, ok := strings.Cut(m.Text, "\n"); ok {
			lines = append(lines, strings.TrimSpace(rest))
		}
		break
	}
	if len(lines) == 0 {
		return "no files"
	}
	return strings.Join(lines, "\n")
}

// schema is the schema of the answer, without white space.
func schema(req contract.Request) string {
	var b bytes.Buffer
	if json.Compact(&b, req.Schema) != nil {
		return "no schema"
	}
	return b.String()
}
