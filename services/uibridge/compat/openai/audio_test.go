package openai_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	sdk "github.com/openai/openai-go/v3"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/test/openaitest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/compat/openai"
)

// speaking is a backend with a transcriber and a speaker.
type speaking struct {
	*transporttest.Backend
	err   error
	mu    sync.Mutex
	heard providerapi.TranscribeRequest
	said  providerapi.SpeakRequest
	hold  chan struct{} // nil: answers at once
	ended chan error    // why the context of a request has ended; nil: it is not waited for
}

func (s *speaking) Transcribe(ctx context.Context, q providerapi.TranscribeRequest) (providerapi.Transcript, error) {
	s.mu.Lock()
	s.heard = q
	s.mu.Unlock()
	if s.hold != nil {
		<-s.hold
	}
	if s.ended != nil {
		<-ctx.Done()
		s.ended <- ctx.Err()
	}
	return providerapi.Transcript{Text: "what do you see", Language: "en", Seconds: 1.5, Model: "openai/hear-1"}, s.err
}

func (s *speaking) Speak(_ context.Context, q providerapi.SpeakRequest) (providerapi.Speech, error) {
	s.said = q
	return providerapi.Speech{Audio: []byte(openaitest.MP3), MediaType: "audio/mpeg", Model: "openai/speak-1"}, s.err
}

func serveVoices(t *testing.T, cfg openai.Config) (*speaking, *rig) {
	t.Helper()
	s := &speaking{Backend: transporttest.New()}
	return s, serve(t, s, cfg)
}

func TestOpenAIsClientGetsATranscript(t *testing.T) {
	s, r := serveVoices(t, openai.Config{})
	audio := func() io.Reader {
		return sdk.File(strings.NewReader(openaitest.Wave), "speech.wav", "application/octet-stream")
	}
	got, err := r.sdk.Audio.Transcriptions.New(ctx(t), sdk.AudioTranscriptionNewParams{
		File: audio(), Model: "whisper-1", Language: sdk.String("EN"), Prompt: sdk.String("Skandha"), Temperature: sdk.Float(0.2),
	})
	if err != nil || got.Text != "what do you see" {
		t.Errorf("%+v, %v", got, err)
	}
	if q := s.heard; string(q.Audio) != openaitest.Wave || q.MediaType != "audio/wav" || q.Language != "en" || q.Prompt != "Skandha" {
		t.Errorf("asked %+v", q)
	}
	verbose, err := r.sdk.Audio.Transcriptions.New(ctx(t), sdk.AudioTranscriptionNewParams{
		File: audio(), Model: "whisper-1", ResponseFormat: sdk.AudioResponseFormatVerboseJSON,
	})
	if err != nil || verbose.Duration != 1.5 || verbose.Language != "en" || verbose.Text != "what do you see" {
		t.Errorf("%+v, %v", verbose, err)
	}
}

func TestOpenAIsClientGetsSpeech(t *testing.T) {
	s, r := serveVoices(t, openai.Config{})
	got, err := r.sdk.Audio.Speech.New(ctx(t), sdk.AudioSpeechNewParams{
		Input: "It is four.", Model: "tts-1", Voice: sdk.AudioSpeechNewParamsVoiceUnion{OfString: sdk.String("nova")},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = got.Body.Close() }()
	audio, err := io.ReadAll(got.Body)
	if err != nil || string(audio) != openaitest.MP3 || got.Header.Get("Content-Type") != "audio/mpeg" ||
		got.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%q, %v, %v", audio, got.Header, err)
	}
	if s.said.Text != "It is four." || s.said.Voice != "nova" {
		t.Errorf("asked %+v", s.said)
	}
}

// form is a request for a transcript: pairs of names and values.
func form(t *testing.T, file string, audio []byte, fields ...string) (body []byte, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if file != "" {
		part, err := w.CreateFormFile("file", file)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = part.Write(audio)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		if err := w.WriteField(fields[i], fields[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), w.FormDataContentType()
}

func (r *rig) send(t *testing.T, path string, body []byte, contentType string) (status int, text string) {
	t.Helper()
	q, err := http.NewRequestWithContext(ctx(t), http.MethodPost, r.server.URL+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", contentType)
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestTheTypeOfAudioIsFound(t *testing.T) {
	s, r := serveVoices(t, openai.Config{})
	for name, c := range map[string]struct{ audio, want string }{
		"a.WAV": {"x", "audio/wav"}, "a.webm": {"x", "audio/webm"}, "blob": {openaitest.Wave, "audio/wav"},
		"b.bin": {openaitest.MP3, "audio/mpeg"}, "c": {"OggS\x00", "audio/ogg"},
	} {
		body, kind := form(t, name, []byte(c.audio), "response_format", "text")
		if status, text := r.send(t, "/v1/audio/transcriptions", body, kind); status != 200 || text != "what do you see\n" ||
			s.heard.MediaType != c.want {
			t.Errorf("%s: %d %s, as %q", name, status, text, s.heard.MediaType)
		}
	}
}

// request is one that is refused.
type request struct {
	path, body, kind string
	status           int
	says             string
}

func (q request) as(kind, body string) request {
	q.kind, q.body = kind, body
	return q
}

func TestRequestsForSpeechThatAreRefused(t *testing.T) {
	_, r := serveVoices(t, openai.Config{MaxMessage: 100 << 10})
	forms := func(status int, says, file, audio string, fields ...string) request {
		body, kind := form(t, file, []byte(audio), fields...)
		return request{"/v1/audio/transcriptions", string(body), kind, status, says}
	}
	say := func(status int, says, body string) request {
		return request{"/v1/audio/speech", body, "application/json", status, says}
	}
	long, kind := form(t, "a.wav", []byte(strings.Repeat("a", 9<<10)))
	misnamed := string(long)
	for _, c := range []request{
		{"/v1/audio/transcriptions", "{}", "application/json", 415, "want multipart/form-data"},
		{"/v1/audio/transcriptions", "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF", "multipart/form-data; boundary=x", 400, "incomplete"},
		forms(400, `file is missing; send the audio as the field \"file\"`, "", "", "model", "whisper-1"),
		{"/v1/audio/transcriptions", strings.ReplaceAll(misnamed, `"file"`, `"audio"`), kind, 400, `send the audio as the field \"file\", not \"audio\"`},
		forms(400, `file is missing; send`, "", "", "audio", strings.Repeat("a", 9<<10)),
		forms(400, "file is empty", "a.wav", ""),
		forms(400, "file is not audio", "a.txt", "hello"),
		forms(400, "response_format want json, text", "a.wav", "x", "response_format", "srt"),
		forms(400, "stream is not supported", "a.wav", "x", "stream", "true"),
		forms(400, "prompt is longer", "a.wav", "x", "prompt", strings.Repeat("a", 9<<10)),
		forms(413, "the body is larger than 102400 bytes", "a.wav", strings.Repeat("a", 200<<10)),
		say(415, "application/json", ``).as("text/plain", "x"),
		say(400, "not a JSON object", `[]`),
		say(400, "input want 1 to 4096 bytes", `{"model":"tts-1","input":" ","voice":"alloy"}`),
		say(400, "input want 1 to 4096 bytes", `{"model":"tts-1","input":"`+strings.Repeat("a", 5000)+`","voice":"alloy"}`),
		say(400, "voice want the name", `{"model":"tts-1","input":"hi","voice":7}`),
		say(400, "stream_format want audio", `{"model":"tts-1","input":"hi","voice":"alloy","stream_format":"sse"}`),
	} {
		if status, text := r.send(t, c.path, []byte(c.body), c.kind); status != c.status || !strings.Contains(text, c.says) ||
			!strings.Contains(text, `"error":{`) {
			t.Errorf("%s, %.60q: %d %s, want %d and %q", c.path, c.body, status, text, c.status, c.says)
		}
	}
}

// What is missing is named, with what to set: the page and every client show it.
func TestFailuresOfSpeechInOpenAIsFormat(t *testing.T) {
	s, r := serveVoices(t, openai.Config{})
	for _, c := range []struct {
		err    error
		status int
		says   []string
	}{
		{bus.Errorf(bus.CodeNotFound, "none"), 404, []string{"no_", " is configured: set providers.", "SKANDHA_"}},
		{bus.Errorf(bus.CodeDenied, "auth: the key is wrong"), 502, []string{"_failed", "auth: the key is wrong"}},
		{bus.Errorf(bus.CodeOverloaded, "rate_limited: slow down"), 429, []string{"slow down"}},
		{bus.Errorf(bus.CodeTimeout, "timeout: espeak-ng did not end within 1m0s"), 504, []string{"did not end"}},
		{fmt.Errorf("asking: %w", bus.ErrUnavailable), 503, []string{`"unavailable"`}},
		{errors.New("secret detail"), 502, []string{"did not answer; try again"}},
	} {
		s.err = c.err
		body, kind := form(t, "a.wav", []byte("x"))
		for path, q := range map[string][2]string{
			"/v1/audio/transcriptions": {string(body), kind}, "/v1/audio/speech": {`{"input":"hi"}`, "application/json"},
		} {
			status, text := r.send(t, path, []byte(q[0]), q[1])
			if status != c.status || strings.Contains(text, "secret") {
				t.Errorf("%s, %v: %d %s", path, c.err, status, text)
			}
			for _, w := range c.says {
				if !strings.Contains(text, w) {
					t.Errorf("%s, %v: %s, want %q", path, c.err, text, w)
				}
			}
		}
	}
}

// A client that goes away is waited for by nobody, whatever it has left unread of its form.
func TestAClientThatGoesAwayEndsItsRequestForSpeech(t *testing.T) {
	s, r := serveVoices(t, openai.Config{})
	s.hold, s.ended = make(chan struct{}), make(chan error, 1)
	body, kind := form(t, "a.wav", []byte("x"))
	c, err := (&net.Dialer{}).DialContext(ctx(t), "tcp", r.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	body = append(body, strings.Repeat("an epilogue", 8<<10)...)
	_, err = fmt.Fprintf(c, "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		kind, len(body), body)
	if err != nil {
		t.Fatal(err)
	}
	s.hold <- struct{}{} // it is asked
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-s.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the transcriber's request ended with %v", err)
	}
}

func TestABusyTranscriberSaysWhenToTryAgain(t *testing.T) {
	s, r := serveVoices(t, openai.Config{})
	s.err = bus.Errorf(bus.CodeOverloaded, "12 requests are handled or wait")
	body, kind := form(t, "a.wav", []byte("x"))
	q, err := http.NewRequestWithContext(ctx(t), http.MethodPost, r.server.URL+"/v1/audio/transcriptions", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", kind)
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" {
		t.Errorf("%d, Retry-After %q", res.StatusCode, res.Header.Get("Retry-After"))
	}
}

// Each request may hold some megabytes, so that only a few are in memory at a time.
func TestTooManyRequestsForSpeechAtATime(t *testing.T) {
	s, r := serveVoices(t, openai.Config{})
	s.hold = make(chan struct{})
	body, kind := form(t, "a.wav", []byte("x"))
	codes := make(chan int, 9)
	for range cap(codes) {
		go func() {
			status, _ := r.send(t, "/v1/audio/transcriptions", body, kind)
			codes <- status
		}()
	}
	if first := <-codes; first != http.StatusTooManyRequests {
		t.Errorf("the answer is %d", first)
	}
	close(s.hold)
	for range cap(codes) - 1 {
		if got := <-codes; got != http.StatusOK {
			t.Errorf("the answer is %d", got)
		}
	}
}
