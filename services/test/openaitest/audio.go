package openaitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	"skandha.dev/services/test/embedtest"
	"skandha.dev/services/test/scripted"
)

// The models of speech that the server offers.
const (
	Hears  = "hear-1"
	Speaks = "speak-1"
)

// Heard is a request for a transcript or for speech, as received.
type Heard struct {
	Audio  []byte
	File   string // its name
	Type   string // its media type
	Fields map[string]string
	Text   string // to speak
	Voice  string
}

// Audio is the server's transcriber and speaker.
type Audio struct {
	scripted.Queue[Heard]

	// Text is what was said in any audio.
	Text string
}

// formats are the endings of files that the real API accepts.
var formats = []string{".flac", ".m4a", ".mp3", ".mp4", ".mpeg", ".mpga", ".oga", ".ogg", ".wav", ".webm"}

// maxFile is the largest file that the real API accepts.
const maxFile = 25 << 20

func (s *Server) transcriptions(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxFile+1<<20))
	r.Body = io.NopCloser(bytes.NewReader(body))
	heard := Heard{Fields: map[string]string{}}
	if err == nil {
		err = heard.read(r)
	}
	if h := s.Audio.Note(heard); h != nil {
		h(w, r)
		return
	}
	if refused(w, r, err, heard.check) {
		return
	}
	embedtest.JSON(w, http.StatusOK, map[string]any{
		"text": s.Audio.Text, "usage": map[string]any{"type": "duration", "seconds": 2},
	})
}

func (h *Heard) read(r *http.Request) error {
	if err := r.ParseMultipartForm(maxFile); err != nil {
		return err
	}
	for name, values := range r.MultipartForm.Value {
		h.Fields[name] = strings.Join(values, ",")
	}
	f, header, err := r.FormFile("file")
	if err != nil {
		return err
	}
	h.File, h.Type = header.Filename, header.Header.Get("Content-Type")
	h.Audio, err = io.ReadAll(f)
	return err
}

func (h *Heard) check() string {
	switch {
	case h.Fields["model"] != Hears:
		return fmt.Sprintf("the model %q does not exist", h.Fields["model"])
	case len(h.Audio) == 0:
		return "the audio file is too short"
	case !slices.Contains(formats, path.Ext(h.File)):
		return "Invalid file format"
	}
	return ""
}

// Wave is an empty WAV file.
const Wave = "RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data\x00\x00\x00\x00"

// MP3 is the beginning of an MP3 file.
const MP3 = "ID3\x04\x00\x00\x00\x00\x00\x00"

func (s *Server) speech(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Model, Input, Voice string
		Format              string `json:"response_format"`
	}
	err := json.NewDecoder(r.Body).Decode(&q)
	if h := s.Audio.Note(Heard{Text: q.Input, Voice: q.Voice}); h != nil {
		h(w, r)
		return
	}
	if refused(w, r, err, func() string {
		switch {
		case q.Model != Speaks:
			return fmt.Sprintf("the model %q does not exist", q.Model)
		case q.Input == "" || q.Voice == "" || q.Format != "mp3":
			return "input, voice or response_format is invalid"
		}
		return ""
	}) {
		return
	}
	w.Header().Set("Content-Type", "audio/mpeg")
	_, _ = io.WriteString(w, MP3+q.Input)
}
