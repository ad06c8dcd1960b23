package anthropic_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
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
		"f.csv":   {"text/csv; charset=utf-8", "a,b\n", "text [file f.csv, text/csv; charset=utf-8, 7 bytes]\na,b\n"},
		"g.txt":   {"text/plain", "\xff\xfe\x00", "text [file g.txt, text/plain, 7 bytes: its content is not UTF-8]"},
		"h.zip":   {"application/zip", "PK\x03\x04", "text [file h.zip, application/zip, 7 bytes: this model's API does not accept such a file]"},
		"i\n.svg": {"image/svg+xml", "<svg>", "text [file i .svg, image/svg+xml, 7 bytes]\n<svg>"},
		"j.png":   {"image/png", "", "text [file j.png, image/png, 7 bytes: its content is missing, because it is no longer stored, too large or empty]"},
		"k.png": {
			"image/png", png + strings.Repeat("x", 4<<20),
			"text [file k.png, image/png, 7 bytes: its content is missing, because it is no longer stored, too large or empty]",
		},
		"": {"nonsense", "?", "text [file ref.bin, nonsense, 7 bytes: this model's API does not accept such a file]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := anthropictest.New(t)
			file := contract.File{Ref: "main/s/ref.bin", Name: name, MediaType: c.media, Bytes: 7, Data: []byte(c.data)}
			question, used := says("look"), call("t1", "math:evaluate", `{}`)
			answer := result(used, "done")
			question.Files, answer.Files = []contract.File{file}, []contract.File{file}
			ask(t, client(t, s), request(t, question, calls(used), answer))
			m := last(t, s).Messages
			asked, answered := m[0].Content[0], m[2].Content[0].Content
			for _, b := range []anthropictest.Block{asked, answered[len(answered)-1]} {
				got := b.Type
				switch {
				case b.Source != nil:
					got += " " + b.Source.MediaType
					data, err := base64.StdEncoding.DecodeString(b.Source.Data)
					if err != nil || !bytes.Equal(data, file.Data) {
						t.Errorf("the content is %q, %v", data, err)
					}
				case b.Text != nil:
					_, added, _ := strings.Cut(*b.Text, "\n\n")
					got += " " + added
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

// A model without schemas of answers is asked in words instead, from then on at once.
func TestAModelThatRefusesASchemaIsAskedInWords(t *testing.T) {
	s := anthropictest.New(t)
	s.Next(func(w http.ResponseWriter, _ *http.Request) {
		anthropictest.Refuse(w, http.StatusBadRequest, "invalid_request_error",
			"output_config.format: Extra inputs are not permitted")
	})
	a := client(t, s)
	req := request(t, says("hello"))
	req.System, req.Schema = "Be brief.", json.RawMessage(`{"type":"object"}`)
	for n := range 2 {
		ask(t, a, req)
		r := last(t, s)
		if r.Output != nil || !strings.Contains(r.Raw, `{\"type\":\"object\"}`) || len(s.Seen()) != n+2 {
			t.Errorf("request %d is %s", len(s.Seen()), r.Raw)
		}
	}
	wellFormed(t, s)
}
