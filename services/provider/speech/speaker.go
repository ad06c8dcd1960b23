package speech

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
)

// Speaker turns text into speech. It is safe for concurrent use.
type Speaker struct{ source }

// NewSpeaker validates the configuration; it neither connects nor starts a program yet.
func NewSpeaker(cfg Config) (*Speaker, error) {
	s, err := newSource("providers.speaker", cfg)
	if err != nil {
		return nil, fmt.Errorf("configuring the speaker: %w", err)
	}
	if s.program() && s.cfg.Voice == "" && strings.Contains(strings.Join(s.cfg.Command, "\n"), VoicePlaceholder) {
		return nil, fmt.Errorf("configuring the speaker: voice is missing: command has the placeholder %s", VoicePlaceholder)
	}
	return &Speaker{s}, nil
}

type speechRequest struct {
	Model  string `json:"model"`
	Input  string `json:"input"`
	Voice  string `json:"voice"`
	Format string `json:"response_format"`
}

// format is what an API is asked for: all browsers play it, and it is small.
const (
	format          = "mp3"
	formatMediaType = "audio/mpeg"
)

// Speak returns a text as audio. The request must be valid. The error is a *[contract.Error] where it
// can be; when ctx was cancelled it may be the context's own.
func (s *Speaker) Speak(ctx context.Context, q providerapi.SpeakRequest) (providerapi.Speech, error) {
	out := providerapi.Speech{Model: s.model()}
	voice := cmp.Or(q.Voice, s.cfg.Voice)
	if s.program() {
		var err error
		if out.Audio, err = s.synthesise(ctx, q.Text, voice); err != nil {
			return out, err
		}
		out.MediaType = audioType("", out.Audio)
		if out.MediaType == "" {
			return out, adapter.Errorf(contract.ErrGarbage, "the output of %s is not audio: it must write WAV, MP3 or Ogg "+
				"to its standard output", s.cfg.Model)
		}
		return out, nil
	}
	body, err := json.Marshal(speechRequest{s.cfg.Model, q.Text, voice, format})
	if err != nil {
		return out, adapter.Errorf(contract.ErrInternal, "encoding the text: %v", err)
	}
	err = s.post(ctx, "/audio/speech", "application/json", body, providerapi.MaxAudioBytes, func(a httpapi.Answer) error {
		out.Audio, out.MediaType = a.Body, audioType(a.MediaType, a.Body)
		switch {
		case len(a.Body) == 0:
			return s.garbage(nil, "the answer holds no audio: it is empty")
		case out.MediaType == "":
			return s.garbage(a.Body, "the answer holds no audio: it is %s", cmp.Or(a.MediaType, "of an unknown type"))
		}
		return nil
	})
	return out, err
}

// audioType returns the media type of audio: what the content shows, or else what was declared; ""
// if it is no audio.
func audioType(declared string, audio []byte) string {
	switch found := http.DetectContentType(audio); {
	case found == "audio/wave":
		return "audio/wav"
	case found == "application/ogg":
		return "audio/ogg"
	case strings.HasPrefix(found, "audio/"):
		return found
	case len(audio) > 1 && audio[0] == 0xFF && audio[1]&0xE0 == 0xE0: // an MP3 frame without ID3
		return formatMediaType
	case strings.HasPrefix(declared, "audio/"):
		return declared
	}
	return ""
}
