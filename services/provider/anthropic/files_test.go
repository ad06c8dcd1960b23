package anthropic_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/test/anthropictest"
)

const (
	png  = "\x89PNG\r\n\x1a\n and more"
	jpeg = "\xff\xd8\xff and more"
	webp = "RIFF....WEBPVP and more"
	pdf  = "%PDF-1.7 and more"
)

// Every file becomes one block that the API accepts; the test's server looks at the content.
func TestFiles(t *testing.T) {
	for name, c := range map[string]struct {
		media, data string
		want        string // type, and media type or text
	}{
		"a.png":   {"image/png", png, "image image/png"},
		"b.png":   {"image/png", jpeg, "image image/jpeg"}, // what it really is
		"c.webp":  {"image/webp; x=1", webp, "image image/webp"},
		"d.gif":   {"image/gif", "GIF89a", "image image/gif"},
		"e.pdf":   {"application/pdf", pdf, "document application/pdf"},
		"f.csv":   {"text/csv; charset=utf-8", "a,b\n", "text The file \"f.csv\":\na,b\n"},
		"g.txt":   {"text/plain", "\xff\xfe\x00", `text The file "g.txt" (text/plain, 3 bytes) is of a type that cannot be shown.`},
		"h.zip":   {"application/zip", "PK\x03\x04", `text The file "h.zip" (application/zip, 4 bytes) is of a type that cannot be shown.`},
		"i\n.svg": {"image/svg+xml", "<svg>", `text The file "i\n.svg" (image/svg+xml, 5 bytes) is of a type that cannot be shown.`},
		"j.png":   {"image/png", "", `text The file "j.png" (image/png, 7 bytes) is not available.`},
		"k.png": {
			"image/png", png + strings.Repeat("x", 4<<20), `text The picture "k.png" (4194321 bytes) is too large to be shown.`,
		},
		"": {"nonsense", "?", `text The file "ref.bin" (nonsense, 1 bytes) is of a type that cannot be shown.`},
	} {
		t.Run(name, func(t *testing.T) {
			s := anthropictest.New(t)
			file := contract.File{Ref: "main/s/ref.bin", Name: name, MediaType: c.media, Bytes: 7, Data: []byte(c.data)}
			question, used := says("look"), call("t1", "math:evaluate", `{}`)
			answer := result(used, "done")
			question.Files, answer.Files = []contract.File{file}, []contract.File{file}
			ask(t, client(t, s), request(t, question, calls(used), answer))
			m := last(t, s).Messages
			for _, b := range []anthropictest.Block{m[0].Content[0], m[2].Content[0].Content[1]} {
				got := b.Type
				switch {
				case b.Source != nil:
					got += " " + b.Source.MediaType
					data, err := base64.StdEncoding.DecodeString(b.Source.Data)
					if err != nil || !bytes.Equal(data, file.Data) {
						t.Errorf("the content is %q, %v", data, err)
					}
				case b.Text != nil:
					got += " " + *b.Text
				}
				if got != c.want {
					t.Errorf("sent %q, want %q", got, c.want)
				}
			}
			wellFormed(t, s)
		})
	}
}

func TestAMessageOfFilesAlone(t *testing.T) {
	s := anthropictest.New(t)
	m := says("")
	m.Files = []contract.File{{Name: "a.png", MediaType: "image/png", Data: []byte(png)}}
	stray := contract.Message{Role: contract.RoleTool, CallID: "none", Tool: "x", Text: "y", Files: m.Files}
	used := call("t1", "x", `{}`)
	failed := result(used, "no")
	failed.Failed, failed.Files = true, m.Files
	_, _, _, _ = generate(t, client(t, s), request(t, m, stray, calls(used), failed)) // the test's model has no eyes
	if got := shape(last(t, s)); got != "user: image, text output of x: y, image\nassistant: call t1 x {}\nuser: error t1, image" {
		t.Errorf("sent %s", got)
	}
	wellFormed(t, s)
}

func TestTheSchemaOfAnAnswer(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"n":{"type":"integer","minimum":1}},"required":["n"]}`: `{"additionalProperties":false,` +
			`"properties":{"n":{"description":"{minimum: 1}","type":"integer"}},"required":["n"],"type":"object"}`,
		`{"type":["string","null"]}`: `{"type":["string","null"]}`, // the SDK cannot read it
	} {
		s := anthropictest.New(t)
		req := request(t, says("hello"))
		req.Schema = json.RawMessage(schema)
		ask(t, client(t, s), req)
		if o := last(t, s).Output; o == nil || string(o.Format.Schema) != want {
			t.Errorf("%s: sent %s", schema, last(t, s).Raw)
		}
		wellFormed(t, s)
	}
	s := anthropictest.New(t)
	req := request(t, says("hello"))
	req.Schema = json.RawMessage(`true`)
	var e *contract.Error
	if _, _, _, err := generate(t, client(t, s), req); !errors.As(err, &e) || e.Code != contract.ErrBadRequest {
		t.Errorf("a schema that is no object: %v", err)
	}
}
