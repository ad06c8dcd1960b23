package speech

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"mime/multipart"
	"net/textproto"
	"strings"
	"unicode/utf8"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
)

// Transcriber turns speech into text. It is safe for concurrent use.
type Transcriber struct{ source }

// NewTranscriber validates the configuration; it neither connects nor starts a program yet.
func NewTranscriber(cfg Config) (*Transcriber, error) {
	s, err := newSource("providers.transcriber", cfg)
	if err != nil {
		return nil, fmt.Errorf("configuring the transcriber: %w", err)
	}
	return &Transcriber{s}, nil
}

// The limits of what is read of an answer, in bytes. One in verbose_json holds each word with its
// times.
const (
	maxTranscriptAnswer = 4 << 20
	maxLanguage         = 64
)

// Transcribe returns the text of a recording, which is empty if nothing was said. The request must be
// valid. The error is a *[contract.Error] where it can be; when ctx was cancelled it may be the
// context's own.
func (t *Transcriber) Transcribe(ctx context.Context, q providerapi.TranscribeRequest) (providerapi.Transcript, error) {
	out := providerapi.Transcript{Model: t.model()}
	if t.program() {
		text, err := t.recognise(ctx, q.Audio, fileName(q.MediaType))
		if err != nil {
			return out, err
		}
		out.Text, err = t.clean(text)
		return out, err
	}
	body, contentType, err := t.form(q)
	if err != nil {
		return out, adapter.Errorf(contract.ErrInternal, "encoding the audio: %v", err)
	}
	err = t.post(ctx, "/audio/transcriptions", contentType, body, maxTranscriptAnswer, func(a httpapi.Answer) error {
		return t.read(a.Body, &out)
	})
	return out, err
}

// form returns the request as OpenAI's API wants it.
func (t *Transcriber) form(q providerapi.TranscribeRequest) (body []byte, contentType string, err error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="file"; filename="` + fileName(q.MediaType) + `"`},
		"Content-Type":        {q.MediaType},
	})
	if err == nil {
		_, err = part.Write(q.Audio)
	}
	for _, f := range []struct{ name, value string }{
		{"model", t.cfg.Model}, {"response_format", "json"}, {"language", q.Language}, {"prompt", q.Prompt},
	} {
		if err == nil && f.value != "" {
			err = w.WriteField(f.name, f.value)
		}
	}
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), w.FormDataContentType(), err
}

// read reads an answer in the format json or verbose_json.
func (t *Transcriber) read(body []byte, out *providerapi.Transcript) (err error) {
	var answer struct {
		Text     *string `json:"text"`
		Language string  `json:"language"`
		Duration float64 `json:"duration"`
		Usage    struct {
			Seconds float64 `json:"seconds"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return t.garbage(body, "the answer holds no transcript: %v", err)
	}
	if answer.Text == nil {
		return t.garbage(body, "the answer holds no transcript: text is missing")
	}
	if len(answer.Language) <= maxLanguage {
		out.Language = answer.Language
	}
	out.Seconds = max(cmp.Or(answer.Duration, answer.Usage.Seconds), 0)
	out.Text, err = t.clean(*answer.Text)
	return err
}

// clean removes the white space around a text, and refuses one that cannot be a transcript.
func (t *Transcriber) clean(text string) (string, error) {
	text = strings.TrimSpace(text)
	if len(text) > providerapi.MaxTranscriptBytes {
		return "", adapter.Errorf(contract.ErrTooLong, "the transcript is longer than %d bytes", providerapi.MaxTranscriptBytes)
	}
	if !utf8.ValidString(text) {
		return "", adapter.Errorf(contract.ErrGarbage, "the transcript is not UTF-8")
	}
	return text, nil
}

// fileName returns the name of a file with such audio: servers go by the ending.
func fileName(mediaType string) string {
	media, _, _ := mime.ParseMediaType(mediaType)
	kind := strings.TrimPrefix(strings.TrimPrefix(media, "audio/"), "x-")
	switch kind {
	case "wave", "vnd.wave":
		kind = "wav"
	case "mpeg":
		kind = "mp3"
	case "webm", "ogg", "flac", "mp4", "wav", "m4a":
	default:
		kind = "bin"
	}
	return "speech." + kind
}
