package openaitest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	contract "skandha.dev/pkg/provider"
)

// Content is what a message says: a text, or a list of parts.
type Content struct {
	Text  string
	Parts []Part // nil if it is a text
}

// Part is a part of a message, of either API.
type Part struct {
	Type string `json:"type"`
	Text string `json:"text"`

	ImageURL json.RawMessage `json:"image_url"` // chat: an object with a url; responses: the URL
	Detail   string          `json:"detail"`
	File     *FilePart       `json:"file"` // chat
	FilePart                 // responses

	// of an answer that comes back
	Refusal     string          `json:"refusal"`
	Annotations json.RawMessage `json:"annotations"`
	Logprobs    json.RawMessage `json:"logprobs"`
}

// FilePart is the content of a document.
type FilePart struct {
	Filename string `json:"filename"`
	FileData string `json:"file_data"`
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *Content) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &c.Text) == nil {
		return nil
	}
	return strictly(b, &c.Parts)
}

// strictly decodes JSON that has no unknown fields.
func strictly(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// read returns the text and the files, or why the API would refuse them. Texts is the name
// of a text part.
func (c Content) read(texts string) (text string, files []contract.File, err error) {
	if c.Parts == nil {
		return c.Text, nil, nil
	}
	var lines []string
	for i, p := range c.Parts {
		if p.Type == texts {
			lines = append(lines, p.Text)
			continue
		}
		f, err := p.file()
		if err != nil {
			return "", nil, fmt.Errorf("content[%d]: %w", i, err)
		}
		files = append(files, f)
	}
	return strings.Join(lines, "\n\n"), files, nil
}

func (p Part) file() (contract.File, error) {
	switch p.Type {
	case "image_url":
		var image struct{ URL, Detail string }
		if strictly(p.ImageURL, &image) != nil {
			return contract.File{}, errors.New("image_url must be an object")
		}
		return picture(image.URL)
	case "input_image":
		var url string
		if json.Unmarshal(p.ImageURL, &url) != nil || !slices.Contains([]string{"low", "high", "auto"}, p.Detail) {
			return contract.File{}, errors.New("image_url must be a string, and detail low, high or auto")
		}
		return picture(url)
	case "file":
		if p.File == nil {
			return contract.File{}, errors.New("file is missing")
		}
		return document(*p.File)
	case "input_file":
		return document(p.FilePart)
	}
	return contract.File{}, fmt.Errorf("invalid type %q", p.Type)
}

var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

func picture(url string) (contract.File, error) {
	f, err := decodeURL(url)
	if err != nil {
		return f, err
	}
	if is := http.DetectContentType(f.Data); is != f.MediaType || !slices.Contains(pictures, is) {
		return f, fmt.Errorf("unsupported image: it is %s, and said to be %q", is, f.MediaType)
	}
	return f, nil
}

func document(p FilePart) (contract.File, error) {
	f, err := decodeURL(p.FileData)
	if err == nil && (p.Filename == "" || f.MediaType != "application/pdf") {
		return f, fmt.Errorf("unsupported file: %q, %q", p.Filename, f.MediaType)
	}
	f.Name = p.Filename
	return f, err
}

func decodeURL(url string) (contract.File, error) {
	head, data, ok := strings.Cut(url, ",")
	media, isData := strings.CutPrefix(head, "data:")
	media, is64 := strings.CutSuffix(media, ";base64")
	content, err := base64.StdEncoding.Strict().DecodeString(data)
	if !ok || !isData || !is64 || err != nil || len(content) == 0 {
		return contract.File{}, errors.New("invalid data URL")
	}
	return contract.File{Ref: "a/s/file", MediaType: media, Bytes: int64(len(content)), Data: content}, nil
}

// Format is the form of the answer.
type Format struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Strict *bool           `json:"strict"`
}

// check is what the real API would refuse, in words; empty if nothing.
func (f Format) check() string {
	var schema map[string]any
	if !functionName.MatchString(f.Name) || json.Unmarshal(f.Schema, &schema) != nil || f.Strict == nil {
		return fmt.Sprintf("invalid format: name %q, schema %s", f.Name, f.Schema)
	}
	if *f.Strict && (schema["type"] != "object" || !closed(schema)) {
		return "Invalid schema for response_format: 'additionalProperties' is required to be supplied and to be false"
	}
	return ""
}

// closed reports whether each object in a schema lists its properties, and no others.
func closed(v any) bool {
	switch v := v.(type) {
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !closed(e) })
	case map[string]any:
		properties, _ := v["properties"].(map[string]any)
		required, _ := v["required"].([]any)
		if v["type"] == "object" && (v["additionalProperties"] != false || len(properties) != len(required)) {
			return false
		}
		for _, e := range v {
			if !closed(e) {
				return false
			}
		}
	}
	return true
}
