package provider

import (
	"context"
	"errors"
	"mime"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"skandha.dev/pkg/bus"
	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/strictjson"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/budget"
	"skandha.dev/services/provider/speech"
)

const (
	speechSlots = 4               // requests at a time, each with up to MaxAudioBytes
	speechQueue = 8               // requests that wait; further ones are refused
	speechDrain = 5 * time.Second // for requests in progress, on shutdown
	speechWait  = 2 * time.Minute // for one request, if the caller gives more time
)

// The answers of a process that has none.
var (
	errNoTranscriber = bus.Errorf(bus.CodeNotFound, "no transcriber is configured: set providers.transcriber in the "+
		"configuration file, or SKANDHA_TRANSCRIBER")
	errNoSpeaker = bus.Errorf(bus.CodeNotFound, "no speaker is configured: set providers.speaker in the configuration "+
		"file, or SKANDHA_SPEAKER")
)

// voice is a transcriber or a speaker, as it is asked over the bus.
type voice struct {
	name string // on the bus
	verb string
	none error
	is   speechModel // nil: none
	do   func(ctx context.Context, body []byte) (any, error)
}

// speechModel is what transcribers and speakers have in common.
type speechModel interface {
	Info() contract.Info
	Breaker() providerapi.Breaker
	Check(ctx context.Context) error
}

func (s *service) voices() []voice {
	hears := voice{providerapi.TranscriberName, providerapi.VerbTranscribe, errNoTranscriber, nil, s.transcribe}
	if s.transcriber != nil {
		hears.is = s.transcriber
	}
	speaks := voice{providerapi.SpeakerName, providerapi.VerbSpeak, errNoSpeaker, nil, s.speak}
	if s.speaker != nil {
		speaks.is = s.speaker
	}
	return []voice{hears, speaks}
}

// hearsAndSpeaks answers requests for speech, or for its absence.
func (s *service) hearsAndSpeaks() (leave func(), err error) {
	var all []func()
	leave = func() {
		for _, f := range all {
			f()
		}
	}
	for _, v := range s.voices() {
		stop, err := s.answers(v)
		if err != nil {
			leave()
			return nil, err
		}
		all = append(all, stop)
	}
	return leave, nil
}

func (s *service) answers(v voice) (leave func(), err error) {
	respond := func(verb string, f func(*bus.Request) (any, error), opts ...bus.RespondOption) (*bus.Responder, error) {
		return s.bus.Respond(subject.Service(v.name, verb), v.name, v.name,
			func(q *bus.Request) { coreapi.Answer(q, f) }, opts...)
	}
	if v.is == nil {
		absent, err := respond(providerapi.VerbAbsent, func(*bus.Request) (any, error) { return nil, v.none })
		if err != nil {
			return nil, err
		}
		return absent.Stop, nil
	}
	does, err := respond(v.verb, func(q *bus.Request) (any, error) { return v.do(q.Context(), q.Data) },
		bus.Concurrency(speechSlots), bus.Queue(speechQueue), bus.Stoppable())
	if err != nil {
		return nil, err
	}
	status, err := respond(providerapi.VerbStatus, func(*bus.Request) (any, error) { return voiceNow(v.is), nil })
	if err != nil {
		does.Stop()
		return nil, err
	}
	return func() {
		status.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), speechDrain)
		defer cancel()
		if err := does.Drain(ctx); err != nil {
			s.log.Warn("requests were abandoned", "to", v.name, "error", err)
		}
	}, nil
}

// transcribe answers one request.
func (s *service) transcribe(ctx context.Context, body []byte) (any, error) {
	var q providerapi.TranscribeRequest
	if err := strictjson.Unmarshal(body, &q); err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "the request for a transcript: %v", err)
	}
	if err := checkAudio(q); err != nil {
		return nil, err
	}
	return spoken(ctx, s, s.transcriber, "transcribing", func(ctx context.Context) (providerapi.Transcript, error) {
		return s.transcriber.Transcribe(ctx, q)
	})
}

// speak answers one request.
func (s *service) speak(ctx context.Context, body []byte) (any, error) {
	var q providerapi.SpeakRequest
	if err := strictjson.Unmarshal(body, &q); err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "the request for speech: %v", err)
	}
	if err := checkSpoken(q); err != nil {
		return nil, err
	}
	return spoken(ctx, s, s.speaker, "speaking", func(ctx context.Context) (providerapi.Speech, error) {
		return s.speaker.Speak(ctx, q)
	})
}

// languages is what [providerapi.TranscribeRequest].Language may be.
var languages = regexp.MustCompile(`^[a-z]{2}$`)

func checkAudio(q providerapi.TranscribeRequest) error {
	media, _, err := mime.ParseMediaType(q.MediaType)
	switch {
	case len(q.Audio) == 0:
		return bus.Errorf(bus.CodeInvalidArgument, "audio is empty")
	case len(q.Audio) > providerapi.MaxAudioBytes:
		return bus.Errorf(bus.CodeTooLarge, "audio has %d bytes, want at most %d", len(q.Audio), providerapi.MaxAudioBytes)
	case err != nil || !strings.HasPrefix(media, "audio/") && media != "video/webm" && media != "video/mp4":
		return bus.Errorf(bus.CodeInvalidArgument, "media_type is %.80q, want that of audio, e.g. audio/wav", q.MediaType)
	case q.Language != "" && !languages.MatchString(q.Language):
		return bus.Errorf(bus.CodeInvalidArgument, "language is %.80q, want two letters of ISO 639-1, e.g. en", q.Language)
	case len(q.Prompt) > providerapi.MaxPromptBytes || !utf8.ValidString(q.Prompt):
		return bus.Errorf(bus.CodeInvalidArgument, "prompt has %d bytes, want at most %d of UTF-8", len(q.Prompt),
			providerapi.MaxPromptBytes)
	}
	return nil
}

func checkSpoken(q providerapi.SpeakRequest) error {
	if strings.TrimSpace(q.Text) == "" || len(q.Text) > providerapi.MaxSpeechBytes {
		return bus.Errorf(bus.CodeInvalidArgument, "text is empty or has more than %d bytes: %d", providerapi.MaxSpeechBytes,
			len(q.Text))
	}
	if err := speech.CheckVoice(q.Voice); err != nil {
		return bus.Errorf(bus.CodeInvalidArgument, "%v", err)
	}
	return nil
}

// spoken asks a transcriber or speaker. A panic is the failure of this request.
func spoken[A any](
	ctx context.Context, s *service, m speechModel, doing string, ask func(context.Context) (A, error),
) (answer A, err error) {
	ctx, cancel := context.WithTimeout(ctx, speechWait)
	defer cancel()
	began, info := time.Now(), m.Info()
	failure := s.affordable(info)
	if failure == nil {
		failure = func() (failure *contract.Error) {
			defer func() {
				if v := recover(); v != nil {
					s.log.Error(doing+" panicked", "panic", v, "stack", string(debug.Stack()))
					failure = adapter.Errorf(contract.ErrInternal, "%s panicked", doing)
				}
			}()
			answer, err = ask(ctx)
			return adapter.Failure(err)
		}()
	}
	log := s.log.With("model", modelName(info), "took", time.Since(began))
	if failure != nil && errors.Is(context.Cause(ctx), bus.ErrCancelled) {
		log.Debug(doing + " was stopped: the caller gave up")
		return answer, context.Cause(ctx)
	}
	if failure != nil {
		log.Warn(doing+" failed", "code", string(failure.Code), "reason", failure.Message)
		return answer, wireError(failure)
	}
	log.Debug(doing + " succeeded")
	return answer, nil
}

// affordable refuses speech that may cost something while a budget applies: APIs count it in minutes,
// characters or tokens, so that its worst case is not known.
func (s *service) affordable(info contract.Info) *contract.Error {
	if s.ledger == nil || info.Name == speech.NameCommand {
		return nil
	}
	if price, known := s.price(info, true, budget.Price.OfAnswers); known && price.IsZero() {
		return nil
	}
	return adapter.Errorf(contract.ErrOverBudget, "a budget applies, and what speech costs is not counted: to use it all the "+
		"same, set input and output of %s to 0 in providers.prices", modelName(info))
}

// voiceNow describes a transcriber or speaker without trying it.
func voiceNow(m speechModel) providerapi.SpeechModel {
	return providerapi.SpeechModel{Model: modelName(m.Info()), Note: m.Info().Note, Breaker: m.Breaker()}
}

// voiceChecked describes a transcriber or speaker, and whether it can be used.
func voiceChecked(ctx context.Context, m speechModel) *providerapi.SpeechModel {
	out := voiceNow(m)
	err := m.Check(ctx)
	out.Reachable = new(err == nil)
	if err != nil {
		out.Error = adapter.Failure(err).Message
	}
	return &out
}
