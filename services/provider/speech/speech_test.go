package speech_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/retry"
	"skandha.dev/services/provider/speech"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/openaitest"
)

var wave = providerapi.TranscribeRequest{Audio: []byte(openaitest.Wave), MediaType: "audio/wav"}

func config(srv *openaitest.Server, model string) speech.Config {
	return speech.Config{
		Name: "openai", Model: model, BaseURL: srv.URL, APIKey: openaitest.Key, KeyEnv: "OPENAI_API_KEY",
		Retry: retry.Config{Tries: 2, Pause: time.Millisecond},
	}
}

func transcriber(t *testing.T, cfg speech.Config) *speech.Transcriber {
	t.Helper()
	out, err := speech.NewTranscriber(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func speaker(t *testing.T, cfg speech.Config) *speech.Speaker {
	t.Helper()
	out, err := speech.NewSpeaker(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func shell(script string) speech.Config { return speech.Config{Command: []string{"sh", "-c", script}} }

func body(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, s)
	}
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, `{"error":{"message":"as the test asked"}}`)
	}
}

func TestAnAPITranscribes(t *testing.T) {
	srv := openaitest.New(t)
	srv.Audio.Text = " what do you see\n"
	tr := transcriber(t, config(srv, openaitest.Hears))
	got, err := tr.Transcribe(t.Context(), providerapi.TranscribeRequest{
		Audio: []byte("sound"), MediaType: "audio/webm;codecs=opus", Language: "en", Prompt: "Skandha",
	})
	if want := (providerapi.Transcript{Text: "what do you see", Seconds: 2, Model: "openai/hear-1"}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	h := srv.Audio.Seen()[0]
	if string(h.Audio) != "sound" || h.File != "speech.webm" || h.Fields["language"] != "en" || h.Fields["prompt"] != "Skandha" ||
		h.Fields["response_format"] != "json" {
		t.Errorf("it was sent %+v", h)
	}
	srv.Audio.Next(body(`{"task":"transcribe","language":"english","duration":1.5,"text":"hi","segments":[{"id":0}]}`))
	got, err = tr.Transcribe(t.Context(), wave)
	if want := (providerapi.Transcript{Text: "hi", Language: "english", Seconds: 1.5, Model: "openai/hear-1"}); err != nil || got != want {
		t.Errorf("verbose_json is %+v, %v, want %+v", got, err, want)
	}
	srv.Audio.Next(body(`{"text":""}`))
	if got, err = tr.Transcribe(t.Context(), wave); err != nil || got.Text != "" {
		t.Errorf("silence is %+v, %v", got, err)
	}
}

func TestATryThatFailedIsRepeated(t *testing.T) {
	srv := openaitest.New(t)
	srv.Audio.Text = "hi"
	srv.Audio.Next(status(http.StatusTooManyRequests, "Retry-After", "0.05"), status(http.StatusBadGateway))
	if _, err := transcriber(t, config(srv, openaitest.Hears)).Transcribe(t.Context(), wave); adapter.Failure(err) == nil ||
		adapter.Failure(err).Code != contract.ErrUnavailable || len(srv.Audio.Seen()) != 2 {
		t.Errorf("two tries: %v, %d requests", err, len(srv.Audio.Seen()))
	}
	if got, err := transcriber(t, config(srv, openaitest.Hears)).Transcribe(t.Context(), wave); err != nil || got.Text != "hi" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFaultsOfAnAPI(t *testing.T) {
	html := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprint(w, "<html>welcome</html>")
	}
	half := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = fmt.Fprint(w, `{"te`)
	}
	huge := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, strings.Repeat("a", providerapi.MaxAudioBytes+1))
	}
	srv := openaitest.New(t)
	hear, speak := transcriber(t, config(srv, openaitest.Hears)), speaker(t, config(srv, openaitest.Speaks))
	for _, c := range []struct {
		name    string
		h       http.HandlerFunc
		code    contract.ErrorCode
		says    string
		neither string // the one that it is no fault of
	}{
		{"429", status(429, "Retry-After", "600"), contract.ErrRateLimited, "as the test asked", ""},
		{"500", status(500), contract.ErrUnavailable, "answered 500", ""},
		{"401", status(401), contract.ErrAuth, "check providers.", ""},
		{"400", status(400), contract.ErrBadRequest, "as the test asked", ""},
		{"404", status(404), contract.ErrInternal, "check providers.", ""},
		{"413", status(413), contract.ErrTooLong, "answered 413", ""},
		{"redirect", status(302, "Location", "https://elsewhere.example.com"), contract.ErrInternal, "redirects", ""},
		{"HTML", html, contract.ErrGarbage, "text/html", ""},
		{"half a body", half, contract.ErrUnavailable, "broke", ""},
		{"a huge body", huge, contract.ErrTooLong, "longer than", ""},
		{"an error with status 200", body(`{"error":{"message":"overloaded","type":"server_error"}}`), contract.ErrUnavailable, "overloaded", ""},
		{"nothing", body(""), contract.ErrGarbage, "the answer holds no", ""},
		{"no text", body(`{}`), contract.ErrGarbage, "holds no", ""},
		{"half a JSON", body(`{"text":"hel`), contract.ErrGarbage, "holds no", ""},
		{"text that is a number", body(`{"text":1}`), contract.ErrGarbage, "holds no", ""},
		{"a long text", body(`{"text":"` + strings.Repeat("a", providerapi.MaxTranscriptBytes+1) + `"}`), contract.ErrTooLong, "transcript", "speak"},
		{"a key", body(openaitest.Key), contract.ErrGarbage, "holds no", ""},
	} {
		for name, ask := range map[string]func() error{
			"hear": func() error { _, err := hear.Transcribe(natstest.Context(t), wave); return err },
			"speak": func() error {
				_, err := speak.Speak(natstest.Context(t), providerapi.SpeakRequest{Text: "hi"})
				return err
			},
		} {
			if name == c.neither {
				continue
			}
			srv.Audio.Next(c.h, c.h)
			e, ok := errors.AsType[*contract.Error](ask())
			if !ok || e.Code != c.code || !strings.Contains(e.Message, c.says) || strings.Contains(e.Message, openaitest.Key) {
				t.Errorf("%s, %s: the error is %+v, want %s and %q", name, c.name, e, c.code, c.says)
			}
			for srv.Audio.Take() != nil { // not all are tried again
			}
			hear, speak = transcriber(t, config(srv, openaitest.Hears)), speaker(t, config(srv, openaitest.Speaks))
		}
	}
}

func TestASilentServerIsGivenUp(t *testing.T) {
	srv := openaitest.New(t)
	cfg := config(srv, openaitest.Hears)
	cfg.Stall, cfg.Retry.Tries = 30*time.Millisecond, 1
	srv.Audio.Next(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, err := transcriber(t, cfg).Transcribe(natstest.Context(t), wave)
	if f := adapter.Failure(err); f == nil || f.Code != contract.ErrTimeout || !strings.Contains(f.Message, "sent nothing for 30ms") {
		t.Errorf("the error is %v", err)
	}
}

func TestAnAPISpeaks(t *testing.T) {
	srv := openaitest.New(t)
	got, err := speaker(t, config(srv, openaitest.Speaks)).Speak(t.Context(), providerapi.SpeakRequest{Text: "four"})
	if err != nil || string(got.Audio) != openaitest.MP3+"four" || got.MediaType != "audio/mpeg" || got.Model != "openai/speak-1" {
		t.Errorf("%+v, %v", got, err)
	}
	if v := srv.Audio.Seen()[0].Voice; v != "alloy" {
		t.Errorf("the voice is %q", v)
	}
}

// A recogniser gets the audio as a file or on its standard input.
func TestAProgramTranscribes(t *testing.T) {
	for _, script := range []string{`cat`, `cat "{file}"; test "$(stat -c %a "{file}")" = 600`} {
		q := providerapi.TranscribeRequest{Audio: []byte(" what do you see\n"), MediaType: "audio/wav"}
		got, err := transcriber(t, shell(script)).Transcribe(t.Context(), q)
		if want := (providerapi.Transcript{Text: "what do you see", Model: "command/sh"}); err != nil || got != want {
			t.Errorf("%s: %+v, %v", script, got, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "skandha-speech-*")); len(left) > 0 {
		t.Errorf("recordings are left: %v", left)
	}
}

func TestAProgramSpeaks(t *testing.T) {
	cfg := shell(`printf 'ID3\004'; printf %s "$0 "; cat`)
	cfg.Command, cfg.Voice = append(cfg.Command, speech.VoicePlaceholder), "en-gb"
	got, err := speaker(t, cfg).Speak(t.Context(), providerapi.SpeakRequest{Text: "-w /tmp/x"})
	if err != nil || string(got.Audio) != "ID3\x04en-gb -w /tmp/x" || got.MediaType != "audio/mpeg" {
		t.Errorf("%q, %v", got.Audio, err)
	}
}

func TestFaultsOfAProgram(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", openaitest.Key)
	for _, c := range []struct {
		script string
		code   contract.ErrorCode
		says   string
	}{
		{"echo the model is missing >&2; exit 3", contract.ErrInternal, "exit status 3: the model is missing"},
		{"sleep 60 & sleep 60", contract.ErrTimeout, "did not end within 300ms"},
		{"yes", contract.ErrTooLong, "wrote more than"},
		{`printf '\377'`, contract.ErrGarbage, "not UTF-8"},
		{`test -z "$OPENAI_API_KEY" && exit 7`, contract.ErrInternal, "exit status 7"},
	} {
		cfg := shell(c.script)
		if cfg.Wait = time.Minute; c.code == contract.ErrTimeout {
			cfg.Wait = 300 * time.Millisecond
		}
		_, err := transcriber(t, cfg).Transcribe(natstest.Context(t), wave)
		if e, ok := errors.AsType[*contract.Error](err); !ok || e.Code != c.code || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: the error is %v, want %s and %q", c.script, err, c.code, c.says)
		}
	}
	_, err := transcriber(t, speech.Config{Command: []string{"no-such-program"}}).Transcribe(t.Context(), wave)
	if f := adapter.Failure(err); f == nil || f.Code != contract.ErrUnavailable || !strings.Contains(f.Message, "starting no-such-program") {
		t.Errorf("the error is %v", err)
	}
	if _, err := speaker(t, shell("echo hello")).Speak(t.Context(), providerapi.SpeakRequest{Text: "hi"}); err == nil ||
		!strings.Contains(err.Error(), "is not audio") {
		t.Errorf("the error is %v", err)
	}
}

func TestTheCallersContextEndsTheProgram(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	pipe := filepath.Join(t.TempDir(), "begun")
	done := make(chan error, 1)
	go func() {
		_, err := transcriber(t, shell("touch "+pipe+"; exec sleep 600")).Transcribe(ctx, wave)
		done <- err
	}()
	natstest.Eventually(t, "the program's start", func() bool { _, err := os.Stat(pipe); return err == nil })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestChecks(t *testing.T) {
	srv := openaitest.New(t)
	cfg := config(srv, openaitest.Hears)
	if err := transcriber(t, cfg).Check(t.Context()); err != nil {
		t.Error(err)
	}
	cfg.BaseURL = strings.TrimSuffix(srv.URL, "/v1") + "/without-a-list"
	if err := transcriber(t, cfg).Check(t.Context()); err != nil {
		t.Errorf("a server without a list of models: %v", err)
	}
	cfg.BaseURL = "http://127.0.0.1:1/v1"
	if err := transcriber(t, cfg).Check(t.Context()); err == nil {
		t.Error("a server that is not there is there")
	}
	if err := transcriber(t, shell("")).Check(t.Context()); err != nil {
		t.Error(err)
	}
	err := transcriber(t, speech.Config{Command: []string{"no-such-program"}}).Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("the error is %v", err)
	}
}

func TestConfigurationsThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct {
		cfg  speech.Config
		says string
	}{
		{speech.Config{Name: "openai"}, "model is missing"},
		{speech.Config{Name: "openai", Model: "m", BaseURL: "ftp://x"}, "base_url"},
		{speech.Config{Name: "openai", Model: "m", APIKey: "a b"}, "api_key contains a space"},
		{speech.Config{Name: "openai", Model: "m", Stall: -1}, "stall"},
		{speech.Config{Name: "openai", Model: "m", Voice: "-w"}, "voice is"},
		{speech.Config{Command: []string{""}}, "command[0] is empty"},
		{speech.Config{Command: []string{"x", "a\x00b"}}, "NUL"},
		{speech.Config{Command: []string{"espeak-ng", "-v", "{voice}"}}, "voice is missing"},
	} {
		if _, err := speech.NewSpeaker(c.cfg); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.says)
		}
	}
}
