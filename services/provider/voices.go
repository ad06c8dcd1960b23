package provider

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/services/provider/httpapi"
	"skandha.dev/services/provider/speech"
)

// NameCommand is a provider of speech alone: a program on this machine.
const NameCommand = speech.NameCommand

// Voice configures what turns speech into text, or text into speech.
type Voice struct {
	// Model is <provider>/<model>, of openai or local; or command. Default: command if there is one,
	// else none.
	Model string `yaml:"model"`
	// BaseURL of an API with OpenAI's wire format. Default that of the provider. Its key is then
	// SKANDHA_TRANSCRIBER_KEY or SKANDHA_SPEAKER_KEY.
	BaseURL string `yaml:"base_url"`
	// Command is a program on this machine and its arguments. A recogniser gets the audio as the file
	// {file} or on its standard input; a synthesiser gets the text on its standard input, and the
	// voice as {voice}. The answer is what it writes to its standard output.
	Command []string `yaml:"command"`
	// Voice of a speaker. Default alloy for an API.
	Voice string `yaml:"voice"`
}

// kind is which of the two a [Voice] is.
type kind struct {
	name, env string // the name of the setting, and the beginning of its variables
	does      string
}

var (
	transcriber = kind{"transcriber", "SKANDHA_TRANSCRIBER", "turns speech into text"}
	speaker     = kind{"speaker", "SKANDHA_SPEAKER", "turns text into speech"}
)

// check reports all faults; each error begins with the name of its field.
func (v Voice) check(k kind) error {
	errs := []error{}
	if _, _, err := k.parse(v.Model); err != nil {
		errs = append(errs, fmt.Errorf("model %w", err))
	}
	if err := speech.CheckCommand(v.Command); err != nil {
		errs = append(errs, err)
	}
	if v.BaseURL != "" {
		if err := httpapi.CheckURL(v.BaseURL, "http://127.0.0.1:8000/v1", k.env+"_KEY"); err != nil {
			errs = append(errs, err)
		}
	}
	if err := speech.CheckVoice(v.Voice); err != nil {
		errs = append(errs, err)
	}
	if k == transcriber && v.Voice != "" {
		errs = append(errs, errors.New("voice is for a speaker: remove it"))
	}
	if v.Model == NameCommand && len(v.Command) == 0 {
		errs = append(errs, errors.New("command is missing, because model is command"))
	}
	return errors.Join(errs...)
}

// parse reads <provider>/<model>, command or none; both are empty if the text is. The error continues
// the name of the setting.
func (k kind) parse(text string) (name, model string, err error) {
	text = strings.TrimSpace(text)
	if slices.Contains([]string{"", NoEmbedder, NameCommand}, text) {
		return text, "", nil
	}
	name, model, _ = strings.Cut(text, "/")
	if (name == NameOpenAI || name == NameLocal) && model != "" {
		return name, model, nil
	}
	return "", "", fmt.Errorf("is %q, want <provider>/<model> with %s or %s as the provider, or %s, or %s", text, NameOpenAI,
		NameLocal, NameCommand, NoEmbedder)
}

// hint says how to configure it.
func (k kind) hint() string {
	return k.env + ", or providers." + k.name + " in the configuration file, names what " + k.does +
		": skandha docs configuration shows how"
}

// TranscriberHint and SpeakerHint say how to configure them.
var (
	TranscriberHint = transcriber.hint()
	SpeakerHint     = speaker.hint()
)

// SelectTranscriber chooses what turns speech into text: nil unless one is named, because the audio is
// sent to it. It returns one line with the choice and the reason. Keys and addresses are in the
// environment, as for the models. Getenv is [os.Getenv] outside of tests.
func SelectTranscriber(cfg Config, getenv func(string) string) (*speech.Transcriber, string, error) {
	c, why, err := selectVoice(cfg, transcriber, cfg.Transcriber, cfg.Settings.Transcriber, getenv)
	if c == nil || err != nil {
		return nil, why, err
	}
	t, err := speech.NewTranscriber(*c)
	if err != nil {
		return nil, "", fmt.Errorf("because %s: %w", why, err)
	}
	return t, fmt.Sprintf("%s %s: %s", modelName(t.Info()), t.Info().Note, why), nil
}

// SelectSpeaker chooses what turns text into speech, as [SelectTranscriber] does.
func SelectSpeaker(cfg Config, getenv func(string) string) (*speech.Speaker, string, error) {
	c, why, err := selectVoice(cfg, speaker, cfg.Speaker, cfg.Settings.Speaker, getenv)
	if c == nil || err != nil {
		return nil, why, err
	}
	sp, err := speech.NewSpeaker(*c)
	if err != nil {
		return nil, "", fmt.Errorf("because %s: %w", why, err)
	}
	return sp, fmt.Sprintf("%s %s: %s", modelName(sp.Info()), sp.Info().Note, why), nil
}

// selectVoice returns the configuration of what is named, or nil, and the reason.
func selectVoice(
	cfg Config, k kind, flag string, file Voice, getenv func(string) string,
) (*speech.Config, string, error) {
	if err := cfg.Validate(); err != nil {
		return nil, "", fmt.Errorf("configuring the provider: %w", err)
	}
	s := selector{cfg: cfg.withDefaults(), env: func(name string) string { return strings.TrimSpace(getenv(name)) }}
	inFile := file.Model
	if inFile == "" && len(file.Command) > 0 {
		inFile = NameCommand
	}
	for _, from := range []struct{ value, why string }{
		{flag, "it is configured"},
		{s.env(k.env), k.env + " is set"},
		{inFile, "the configuration file names it"},
	} {
		name, model, err := k.parse(from.value)
		switch {
		case err != nil:
			return nil, "", fmt.Errorf("%s %w", k.env, err) // the others are validated
		case name == NoEmbedder:
			return nil, "none: " + from.why, nil
		case name != "":
			c, err := s.voice(k, name, model, file)
			if err != nil {
				return nil, "", fmt.Errorf("%s %s, because %s: %w", k.name, from.value, from.why, err)
			}
			return &c, from.why, nil
		}
	}
	return nil, "none. " + k.hint(), nil
}

// voice makes the configuration of a provider's model.
func (s *selector) voice(k kind, name, model string, file Voice) (speech.Config, error) {
	if name == NameCommand {
		if len(file.Command) == 0 {
			return speech.Config{}, fmt.Errorf("providers.%s.command of the configuration file is missing", k.name)
		}
		return speech.Config{Command: file.Command, Voice: file.Voice}, nil
	}
	c := speech.Config{Name: name, Model: model, Voice: file.Voice, Retry: s.cfg.Retry, KeyEnv: k.env + "_KEY"}
	c.APIKey = httpapi.Key(s.env(k.env + "_KEY"))
	// A server that is named for speech alone is not sent the key of another one.
	if c.BaseURL = cmp.Or(s.env(k.env+"_URL"), file.BaseURL); c.BaseURL != "" {
		return c, nil
	}
	if name == NameLocal {
		if c.BaseURL = s.cfg.LocalURL; c.BaseURL == NoLocal {
			return c, fmt.Errorf("local_url is %s: set it, or %s_URL, to the server's address", NoLocal, k.env)
		}
		return c, nil
	}
	base := s.cfg.BaseURL // of the API that it is for
	if s.only(NameAnthropic) || s.only(NameGemini) {
		base = ""
	}
	c.BaseURL, c.KeyEnv = cmp.Or(base, s.env("OPENAI_BASE_URL")), "OPENAI_API_KEY"
	c.APIKey = httpapi.Key(cmp.Or(string(c.APIKey), s.env("OPENAI_API_KEY")))
	c.Organization, c.Project = s.env("OPENAI_ORG_ID"), s.env("OPENAI_PROJECT_ID")
	if c.BaseURL == "" && c.APIKey == "" {
		return c, errNoKey
	}
	return c, nil
}
