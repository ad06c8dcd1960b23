package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// Voices turns speech into text, and text into speech. An error is that of the bus.
type Voices interface {
	Transcribe(ctx context.Context, q providerapi.TranscribeRequest) (providerapi.Transcript, error)
	Speak(ctx context.Context, q providerapi.SpeakRequest) (providerapi.Speech, error)
}

const (
	audioSlots = 8                // requests in memory at a time, each with up to the limit of a body
	audioWait  = 90 * time.Second // for the transcriber or the speaker
	busyMS     = 1000             // after which a client tries again, if too many requests are in progress
)

// spoken is the request for speech. Fields that it does not name are accepted and ignored: they say
// how it should sound.
type spoken struct {
	Model  string          `json:"model"`
	Input  string          `json:"input"`
	Voice  json.RawMessage `json:"voice"`
	Stream string          `json:"stream_format"`
}

// speech answers POST /v1/audio/speech with the audio.
func (d *Handler) speech(w http.ResponseWriter, r *http.Request) error {
	ctx, leave, err := d.enterAudio(r)
	if err != nil {
		return err
	}
	defer leave()
	body, err := d.body(w, r)
	if err != nil {
		return err
	}
	var q spoken
	if err := json.Unmarshal(body, &q); err != nil {
		return invalid("", "the body is not a JSON object with the fields of OpenAI's API: "+err.Error())
	}
	voice, err := voiceOf(q.Voice)
	switch {
	case err != nil:
		return err
	case q.Stream != "" && q.Stream != "audio":
		return invalid("stream_format", "want audio: events are not supported")
	case strings.TrimSpace(q.Input) == "" || len(q.Input) > providerapi.MaxSpeechBytes:
		return invalid("input", fmt.Sprintf("want 1 to %d bytes of text; it has %d", providerapi.MaxSpeechBytes, len(q.Input)))
	}
	out, err := d.voices.Speak(ctx, providerapi.SpeakRequest{Text: q.Input, Voice: voice})
	if err != nil {
		return voiceError("speaker", err)
	}
	h := w.Header()
	h.Set("Content-Type", out.MediaType)
	h.Set("Content-Length", fmt.Sprint(len(out.Audio)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(out.Audio) // the client may have disconnected
	return nil
}

// voiceOf reads a voice: its name, or an object with its id.
func voiceOf(raw json.RawMessage) (string, error) {
	var name string
	var object struct {
		ID string `json:"id"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &name) == nil {
		return name, nil
	}
	if json.Unmarshal(raw, &object) == nil {
		return object.ID, nil
	}
	return "", invalid("voice", "want the name of a voice")
}

// heard is the request for a transcript.
type heard struct {
	providerapi.TranscribeRequest
	format string
	file   bool   // it is there
	other  string // the name of another field with a file
}

// transcriptions answers POST /v1/audio/transcriptions.
func (d *Handler) transcriptions(w http.ResponseWriter, r *http.Request) error {
	ctx, leave, err := d.enterAudio(r)
	if err != nil {
		return err
	}
	defer leave()
	q, err := d.readHeard(w, r)
	if err != nil {
		return err
	}
	out, err := d.voices.Transcribe(ctx, q.TranscribeRequest)
	if err != nil {
		return voiceError("transcriber", err)
	}
	switch q.format {
	case "text":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = io.WriteString(w, out.Text+"\n") // the client may have disconnected
	case "verbose_json":
		request.JSON(w, http.StatusOK, struct {
			Task     string  `json:"task"`
			Language string  `json:"language"`
			Duration float64 `json:"duration"`
			Text     string  `json:"text"`
		}{"transcribe", out.Language, out.Seconds, out.Text})
	default:
		request.JSON(w, http.StatusOK, struct {
			Text string `json:"text"`
		}{out.Text})
	}
	return nil
}

// enterAudio checks the right, and holds a place among the requests in memory.
func (d *Handler) enterAudio(r *http.Request) (ctx context.Context, leave func(), err error) {
	if err := contract.PrincipalOf(r.Context()).Require(contract.Talk, ""); err != nil {
		return nil, nil, err
	}
	select {
	case d.audio <- struct{}{}:
	default:
		return nil, nil, &contract.Error{
			Code: contract.CodeOverloaded, RetryAfterMS: busyMS, Message: "too many requests for speech at a time; try again in a moment",
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), audioWait)
	return ctx, func() {
		cancel()
		<-d.audio
	}, nil
}

// readHeard reads the form. Fields that it does not name are accepted and ignored.
func (d *Handler) readHeard(w http.ResponseWriter, r *http.Request) (q heard, err error) {
	r.Body = http.MaxBytesReader(w, r.Body, d.cfg.MaxMessage)
	form, err := r.MultipartReader()
	if err != nil {
		return q, errorOf(http.StatusUnsupportedMediaType, "unsupported_media_type",
			"Content-Type: want multipart/form-data with the audio in the field file")
	}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			// The server only notices that a client goes away when the body was read to its end.
			_, err = io.Copy(io.Discard, r.Body)
			if err == nil {
				break
			}
		}
		if err == nil {
			err = q.read(part)
		}
		if err != nil {
			return q, unreadable(err)
		}
	}
	switch {
	case !q.file && q.other != "":
		return q, invalid("file", fmt.Sprintf(`is missing; send the audio as the field "file", not %.40q`, q.other))
	case !q.file:
		return q, invalid("file", `is missing; send the audio as the field "file"`)
	case len(q.Audio) == 0:
		return q, invalid("file", "is empty; send a recording, for example as WAV")
	case !slices.Contains([]string{"", "json", "text", "verbose_json"}, q.format):
		return q, invalid("response_format", "want json, text or verbose_json")
	}
	return q, nil
}

func unreadable(err error) error {
	var known *apiError
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &large):
		return errorOf(http.StatusRequestEntityTooLarge, "too_large",
			fmt.Sprintf("the body is larger than %d bytes; send a shorter recording, or compressed audio", large.Limit))
	}
	return invalid("", "the form is incomplete")
}

// maxField bounds a text field of a form, in bytes.
const maxField = 8 << 10

// fields are the text fields that are read.
var fields = []string{"language", "prompt", "response_format", "stream"}

func (q *heard) read(part *multipart.Part) error {
	name := part.FormName()
	if name == "file" {
		if q.file {
			return invalid("file", "is there twice; send one file at a time")
		}
		q.file = true
		audio, err := io.ReadAll(part)
		q.Audio, q.MediaType = audio, audioType(part.Header.Get("Content-Type"), part.FileName(), audio)
		if err == nil && len(audio) > 0 && q.MediaType == "" {
			return invalid("file", "is not audio of a known type: name it like its format, for example speech.wav")
		}
		return err
	}
	if !slices.Contains(fields, name) {
		if part.FileName() != "" {
			q.other = strings.ToValidUTF8(name, "")
		}
		return nil // the next part discards what is left of it
	}
	raw, err := io.ReadAll(io.LimitReader(part, maxField+1))
	if err != nil {
		return err
	}
	if len(raw) > maxField {
		return invalid(name, fmt.Sprintf("is longer than %d bytes", maxField))
	}
	switch value := string(raw); name {
	case "language":
		q.Language = strings.ToLower(value)
	case "prompt":
		q.Prompt = value
	case "response_format":
		q.format = value
	case "stream":
		if value == "true" {
			return invalid("stream", "is not supported for transcripts: leave it out")
		}
	}
	return nil
}

// endings are the media types of files, by the endings that OpenAI's API accepts.
var endings = map[string]string{
	".flac": "audio/flac", ".m4a": "audio/mp4", ".mp3": "audio/mpeg", ".mp4": "audio/mp4", ".mpeg": "audio/mpeg",
	".mpga": "audio/mpeg", ".oga": "audio/ogg", ".ogg": "audio/ogg", ".wav": "audio/wav", ".webm": "audio/webm",
}

// audioType returns the media type of a file: as declared, by its name, or by its content; "" if it is
// no audio.
func audioType(declared, name string, audio []byte) string {
	if media, _, err := mime.ParseMediaType(declared); err == nil && (strings.HasPrefix(media, "audio/") || media == "video/webm") {
		return media
	}
	if media := endings[strings.ToLower(path.Ext(name))]; media != "" {
		return media
	}
	switch found := http.DetectContentType(audio); {
	case found == "audio/wave":
		return "audio/wav"
	case strings.HasPrefix(found, "audio/"), found == "video/webm":
		return found
	case found == "application/ogg":
		return "audio/ogg"
	}
	return ""
}

// voiceFaults maps the codes of the bus to statuses and OpenAI's codes; others are 502.
var voiceFaults = map[bus.Code]struct {
	status int
	code   string
}{
	bus.CodeInvalidArgument: {http.StatusBadRequest, "invalid_value"},
	bus.CodeTooLarge:        {http.StatusRequestEntityTooLarge, "too_large"},
	bus.CodeOverloaded:      {http.StatusTooManyRequests, "rate_limited"},
	bus.CodeUnavailable:     {http.StatusServiceUnavailable, "unavailable"},
	bus.CodeTimeout:         {http.StatusGatewayTimeout, "timeout"},
}

// voiceError describes why a transcriber or a speaker gave no answer.
func voiceError(name string, err error) error {
	if errors.Is(err, bus.ErrNotFound) {
		return errorOf(http.StatusNotFound, "no_"+name, fmt.Sprintf("no %s is configured: set providers.%s in the "+
			"configuration file, or SKANDHA_%s", name, name, strings.ToUpper(name)))
	}
	f, ok := voiceFaults[bus.CodeOf(err)]
	if !ok {
		f.status, f.code = http.StatusBadGateway, name+"_failed"
	}
	message := "the " + name + " did not answer; try again"
	if e, ok := errors.AsType[*bus.Error](err); ok && e.Message != "" {
		message = "the " + name + " failed: " + e.Message
	}
	e := errorOf(f.status, f.code, message)
	if f.status == http.StatusTooManyRequests {
		e.retryMS = busyMS
	}
	return e
}
