package provider_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider"
	"skandha.dev/services/provider/budget"
	"skandha.dev/services/provider/retry"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/openaitest"
	"skandha.dev/services/test/scripted"
)

// withVoices starts a service whose transcriber and speaker are at an OpenAI-compatible server.
func withVoices(t *testing.T, settings provider.Settings) (*core, *openaitest.Server) {
	t.Helper()
	srv := openaitest.New(t)
	cfg := provider.Config{
		Settings: settings, Transcriber: "openai/" + openaitest.Hears, Speaker: "openai/" + openaitest.Speaks,
		Retry: retry.Config{Tries: 1},
	}
	deps := provider.Deps{Logger: natstest.Logger(t)}
	if err := deps.Select(cfg, env("OPENAI_BASE_URL", srv.URL, "OPENAI_API_KEY", openaitest.Key)); err != nil {
		t.Fatal(err)
	}
	return startWith(t, natstest.Start(t), cfg, deps, scripted.New()), srv
}

// askVoice asks the transcriber or speaker of any process.
func askVoice[A any](c *core, name, verb string, question any) (a A, err error) {
	body, ok := question.(string)
	if !ok {
		b, err := json.Marshal(question)
		if err != nil {
			c.t.Fatal(err)
		}
		body = string(b)
	}
	raw, err := c.caller.Request(natstest.Context(c.t), subject.Service(name, verb), name, []byte(body))
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(raw, &a)
}

func hear(c *core, question any) (providerapi.Transcript, error) {
	return askVoice[providerapi.Transcript](c, providerapi.TranscriberName, providerapi.VerbTranscribe, question)
}

func say(c *core, question any) (providerapi.Speech, error) {
	return askVoice[providerapi.Speech](c, providerapi.SpeakerName, providerapi.VerbSpeak, question)
}

func voiceOf(c *core, name, verb string) (providerapi.SpeechModel, error) {
	return askVoice[providerapi.SpeechModel](c, name, verb, "")
}

func TestTheServiceHearsAndSpeaks(t *testing.T) {
	c, srv := withVoices(t, provider.Settings{})
	srv.Audio.Text = "what do you see"
	long := append([]byte(openaitest.Wave), make([]byte, 2<<20)...) // more than a message of the bus holds
	heard, err := hear(c, providerapi.TranscribeRequest{Audio: long, MediaType: "audio/wav"})
	if want := (providerapi.Transcript{Text: "what do you see", Seconds: 2, Model: "openai/hear-1"}); err != nil || heard != want {
		t.Errorf("%+v, %v", heard, err)
	}
	if got := srv.Audio.Seen()[0].Audio; len(got) != len(long) {
		t.Errorf("%d bytes were sent, want %d", len(got), len(long))
	}
	said, err := say(c, providerapi.SpeakRequest{Text: "four", Voice: "nova"})
	if err != nil || string(said.Audio) != openaitest.MP3+"four" || said.MediaType != "audio/mpeg" || srv.Audio.Seen()[1].Voice != "nova" {
		t.Errorf("%+v, %v", said, err)
	}
	for _, name := range []string{providerapi.TranscriberName, providerapi.SpeakerName} {
		m, err := voiceOf(c, name, providerapi.VerbStatus)
		if err != nil || !strings.HasPrefix(m.Model, "openai/") || m.Reachable != nil || m.Breaker.State != providerapi.Closed {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	if r := c.report(); r.Transcriber == nil || !*r.Transcriber.Reachable || r.Speaker == nil || !*r.Speaker.Reachable {
		t.Errorf("the report is %+v", r)
	}
}

func TestRequestsForSpeechThatAreRefused(t *testing.T) {
	c, srv := withVoices(t, provider.Settings{})
	audio := []byte(openaitest.Wave)
	for _, q := range []struct {
		question any
		says     string
	}{
		{`{`, "unexpected"},
		{`{"audio":"","media_type":"audio/wav"}`, "audio is empty"},
		{providerapi.TranscribeRequest{Audio: audio}, `media_type is ""`},
		{providerapi.TranscribeRequest{Audio: audio, MediaType: "text/html"}, `media_type is "text/html"`},
		{providerapi.TranscribeRequest{Audio: audio, MediaType: "audio/wav", Language: "English"}, `language is "English"`},
		{providerapi.TranscribeRequest{Audio: audio, MediaType: "audio/wav", Prompt: strings.Repeat("a", 5000)}, "prompt has 5000 bytes"},
	} {
		if _, err := hear(c, q.question); !errors.Is(err, bus.ErrInvalidArgument) || !strings.Contains(err.Error(), q.says) {
			t.Errorf("%+v: the error is %v, want %q", q.question, err, q.says)
		}
	}
	large := providerapi.TranscribeRequest{Audio: make([]byte, providerapi.MaxAudioBytes+1), MediaType: "audio/wav"}
	if _, err := hear(c, large); !errors.Is(err, bus.ErrTooLarge) {
		t.Errorf("the error is %v", err)
	}
	for _, q := range []struct {
		question providerapi.SpeakRequest
		says     string
	}{
		{providerapi.SpeakRequest{Text: " "}, "text is empty"},
		{providerapi.SpeakRequest{Text: strings.Repeat("a", providerapi.MaxSpeechBytes+1)}, "more than 4096 bytes"},
		{providerapi.SpeakRequest{Text: "hi", Voice: "-w/tmp/x"}, "voice is"},
	} {
		if _, err := say(c, q.question); !errors.Is(err, bus.ErrInvalidArgument) || !strings.Contains(err.Error(), q.says) {
			t.Errorf("%.40q: the error is %v, want %q", q.question.Text, err, q.says)
		}
	}
	if n := len(srv.Audio.Seen()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestFailuresOfSpeechHaveCodes(t *testing.T) {
	c, srv := withVoices(t, provider.Settings{})
	for status, want := range map[int]error{
		http.StatusUnauthorized: bus.ErrDenied, http.StatusTooManyRequests: bus.ErrOverloaded,
		http.StatusNotFound: bus.ErrInternal, http.StatusBadRequest: bus.ErrInvalidArgument, http.StatusRequestEntityTooLarge: bus.ErrTooLarge,
	} {
		srv.Audio.Next(func(w http.ResponseWriter, _ *http.Request) {
			openaitest.Refuse(w, status, "", "", "as the test asked")
		})
		_, err := hear(c, providerapi.TranscribeRequest{Audio: []byte(openaitest.Wave), MediaType: "audio/wav"})
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "as the test asked") {
			t.Errorf("%d: the error is %v", status, err)
		}
	}
}

// What speech costs is not counted, so that no budget could hold it back.
func TestWithABudgetSpeechMustBeFree(t *testing.T) {
	limit := budget.Limit{USD: 1}
	c, srv := withVoices(t, provider.Settings{Budget: limit})
	_, err := say(c, providerapi.SpeakRequest{Text: "hi"})
	if !errors.Is(err, bus.ErrDenied) || !strings.Contains(err.Error(), "set input and output of openai/speak-1 to 0") ||
		len(srv.Audio.Seen()) != 0 {
		t.Errorf("the error is %v", err)
	}
	free := budget.Prices{"openai/" + openaitest.Speaks: {Input: new(0.0), Output: new(0.0)}}
	c, _ = withVoices(t, provider.Settings{Budget: limit, Prices: free})
	if _, err := say(c, providerapi.SpeakRequest{Text: "hi"}); err != nil {
		t.Error(err)
	}
}

func TestWithoutATranscriberOrSpeakerTheServiceSaysSo(t *testing.T) {
	c := start(t, provider.Config{})
	for name, variable := range map[string]string{
		providerapi.TranscriberName: "SKANDHA_TRANSCRIBER", providerapi.SpeakerName: "SKANDHA_SPEAKER",
	} {
		if _, err := voiceOf(c, name, providerapi.VerbStatus); !errors.Is(err, bus.ErrUnavailable) {
			t.Errorf("%s: the error is %v", name, err)
		}
		_, err := voiceOf(c, name, providerapi.VerbAbsent)
		if !errors.Is(err, bus.ErrNotFound) || !strings.Contains(err.Error(), variable) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if r := c.report(); r.Transcriber != nil || r.Speaker != nil {
		t.Errorf("the report is %+v", r)
	}
}

func TestRequestsForSpeechInProgressAreAnsweredOnShutdown(t *testing.T) {
	c, srv := withVoices(t, provider.Settings{})
	began := make(chan struct{})
	srv.Audio.Next(func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		c.stop()
		_, _ = w.Write([]byte(openaitest.MP3))
	})
	got := make(chan error, 1)
	go func() {
		_, err := say(c, providerapi.SpeakRequest{Text: "hi"})
		got <- err
	}()
	<-began
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := <-c.ended; err != nil {
		t.Error(err)
	}
}

// What a caller has given up takes no slot: neither what is in progress, nor what waits.
func TestACallerThatGivesUpFreesItsSlot(t *testing.T) {
	c, srv := withVoices(t, provider.Settings{})
	const slots, queue = 4, 8
	began, ended := make(chan struct{}, slots), make(chan struct{}, slots)
	for range slots {
		srv.Audio.Next(func(_ http.ResponseWriter, r *http.Request) {
			began <- struct{}{}
			<-r.Context().Done()
			ended <- struct{}{}
		})
	}
	wave, err := json.Marshal(providerapi.TranscribeRequest{Audio: []byte(openaitest.Wave), MediaType: "audio/wav"})
	if err != nil {
		t.Fatal(err)
	}
	subj := subject.Service(providerapi.TranscriberName, providerapi.VerbTranscribe)
	running, stopRunning := context.WithCancel(natstest.Context(t))
	waiting, stopWaiting := context.WithCancel(natstest.Context(t))
	defer stopRunning()
	defer stopWaiting()
	gone := make(chan error, slots+queue+1)
	ask := func(ctx context.Context) {
		_, err := c.caller.RequestOrStop(ctx, subj, providerapi.TranscriberName, wave)
		gone <- err
	}
	for range slots {
		go ask(running)
	}
	for range slots {
		<-began
	}
	for range queue + 1 {
		go ask(waiting)
	}
	if err := <-gone; !errors.Is(err, bus.ErrOverloaded) {
		t.Errorf("one more than can wait: %v", err)
	}
	givenUp := func(n int) {
		for range n {
			if err := <-gone; !errors.Is(err, bus.ErrCancelled) {
				t.Errorf("a request that was given up: %v", err)
			}
		}
	}
	stopWaiting()
	givenUp(queue)
	stopRunning()
	givenUp(slots)
	for range slots {
		<-ended
	}
	srv.Audio.Text = "me"
	natstest.Eventually(t, "another caller is answered", func() bool {
		heard, err := c.caller.Request(natstest.Context(t), subj, providerapi.TranscriberName, wave)
		return err == nil && strings.Contains(string(heard), "me")
	})
	if n := len(srv.Audio.Seen()); n != slots+1 {
		t.Errorf("%d requests were sent, want %d: those that waited were given up", n, slots+1)
	}
}

func TestATranscriberIsOnlyWhatIsNamed(t *testing.T) {
	file := func(v provider.Voice) provider.Config {
		return provider.Config{Settings: provider.Settings{Transcriber: v}}
	}
	program := file(provider.Voice{Command: []string{"/usr/bin/whisper", "{file}"}})
	other := provider.Voice{Model: "openai/w", BaseURL: "http://w:8000/v1"}
	for _, c := range []struct {
		cfg  provider.Config
		env  []string
		want string // the line; "!" before an error
	}{
		{provider.Config{}, []string{"OPENAI_API_KEY", "k"}, "none. SKANDHA_TRANSCRIBER, or providers.transcriber"},
		{provider.Config{}, []string{"OPENAI_API_KEY", "k", "SKANDHA_TRANSCRIBER", "openai/whisper-1"}, "openai/whisper-1 at api.openai.com: SKANDHA_TRANSCRIBER is set"},
		{provider.Config{}, []string{"SKANDHA_TRANSCRIBER", "openai/whisper-1"}, "!OPENAI_API_KEY is not set"},
		{provider.Config{}, []string{"SKANDHA_TRANSCRIBER", "openai/w", "SKANDHA_TRANSCRIBER_URL", "http://w:1/v1"}, "openai/w at w:1"},
		{provider.Config{Transcriber: "local/w"}, nil, "local/w at 127.0.0.1:11434: it is configured"},
		{provider.Config{Transcriber: "local/w", LocalURL: "none"}, nil, "!local_url is none"},
		{program, nil, "command/whisper on this machine: the configuration file names it"},
		{program, []string{"SKANDHA_TRANSCRIBER", "none"}, "none: SKANDHA_TRANSCRIBER is set"},
		{program, []string{"SKANDHA_TRANSCRIBER", "command"}, "command/whisper on this machine: SKANDHA_TRANSCRIBER is set"},
		{file(other), []string{"OPENAI_API_KEY", "k"}, "openai/w at w:8000"},
		{provider.Config{Transcriber: "command"}, nil, "!providers.transcriber.command of the configuration file is missing"},
		{provider.Config{Transcriber: "gemini/x"}, nil, `!transcriber is "gemini/x", want <provider>/<model>`},
		{provider.Config{}, []string{"SKANDHA_TRANSCRIBER", "whisper"}, `!SKANDHA_TRANSCRIBER is "whisper", want`},
		{file(provider.Voice{Model: "x"}), nil, `!providers.transcriber.model is "x", want`},
		{file(provider.Voice{Model: "command"}), nil, "!providers.transcriber.command is missing"},
		{file(provider.Voice{Command: []string{""}}), nil, "!providers.transcriber.command[0] is empty"},
		{file(provider.Voice{Model: "openai/w", BaseURL: "w"}), nil, "!providers.transcriber.base_url is not"},
		{file(provider.Voice{Model: "openai/w", Voice: "x"}), nil, "!providers.transcriber.voice is for a speaker"},
	} {
		tr, line, err := provider.SelectTranscriber(c.cfg, env(c.env...))
		if err != nil {
			line = "!" + err.Error()
		}
		wrong, fails := strings.CutPrefix(c.want, "!")
		if fails != (err != nil) || !strings.Contains(line, wrong) || (tr == nil) != (fails || strings.HasPrefix(line, "none")) {
			t.Errorf("%+v, %v: %s, want %s", c.cfg, c.env, line, c.want)
		}
	}
}

// A server that is named for speech alone is not sent the key of the language model's.
func TestAnotherServerGetsAnotherKey(t *testing.T) {
	srv := openaitest.New(t)
	cfg := provider.Config{
		Settings: provider.Settings{Speaker: provider.Voice{Model: "openai/" + openaitest.Speaks, BaseURL: srv.URL}},
		Retry:    retry.Config{Tries: 1, Pause: time.Millisecond},
	}
	for name, works := range map[string]bool{"OPENAI_API_KEY": false, "SKANDHA_SPEAKER_KEY": true} {
		sp, _, err := provider.SelectSpeaker(cfg, env(name, openaitest.Key))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sp.Speak(t.Context(), providerapi.SpeakRequest{Text: "hi"}); (err == nil) != works {
			t.Errorf("with %s: %v", name, err)
		}
	}
}
