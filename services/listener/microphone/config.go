package microphone

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/ffmpeg"
	"skandha.dev/services/listener/capture"
)

// Config of a microphone: exactly one source (url, file, alsa, pulse or command).
type Config struct {
	ffmpeg.Source  `yaml:",inline"`
	ALSA           string   `yaml:"alsa"`    // a device of ALSA, e.g. default or hw:1,0
	Pulse          string   `yaml:"pulse"`   // a source of PulseAudio or PipeWire, e.g. default
	Command        []string `yaml:"command"` // program and arguments; writes raw 16-bit little-endian mono PCM of 16 kHz
	capture.Config `yaml:",inline"`
	Speech         `yaml:",inline"`
	Language       string        `yaml:"language"`                                // of what is spoken, ISO 639-1, e.g. en; default: the model finds out
	Prompt         string        `yaml:"prompt"`                                  // words that may occur, for models that use it
	Patience       time.Duration `yaml:"patience" default:"3m" min:"1s" max:"1h"` // how long a segment waits for a transcriber
}

// Speech says what counts as speech.
type Speech struct {
	Margin    float64       `yaml:"margin" default:"10" min:"1" max:"60"`            // decibels above the noise floor
	Least     float64       `yaml:"least" default:"-50" min:"-96" max:"0"`           // decibels below full scale that are never speech
	Hangover  time.Duration `yaml:"hangover" default:"800ms" min:"100ms" max:"10s"`  // of silence, which ends a segment
	MinSpeech time.Duration `yaml:"min_speech" default:"300ms" min:"60ms" max:"10s"` // shorter sounds are dropped
	MaxSpeech time.Duration `yaml:"max_speech" default:"30s" min:"1s" max:"2m"`      // longer speech is cut into several inputs
}

const maxPrompt = 1 << 10

var (
	soundDevice = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:,=@+-]{0,199}$`)
	language    = regexp.MustCompile(`^[a-z]{2}$`)
)

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{c.Config.Validate(), c.Source.Validate(), bounds.Check("", struct {
		Speech
		Patience time.Duration `min:"1s" max:"1h"`
	}{c.Speech, c.Patience})}
	sources := 0
	for _, given := range []bool{c.URL != "", c.File != "", c.ALSA != "", c.Pulse != "", len(c.Command) > 0} {
		if given {
			sources++
		}
	}
	if sources != 1 {
		errs = append(errs, fmt.Errorf("url, file, alsa, pulse, command: %d of them are set, want exactly one", sources))
	}
	for field, device := range map[string]string{"alsa": c.ALSA, "pulse": c.Pulse} {
		if device != "" && !soundDevice.MatchString(device) {
			errs = append(errs, fmt.Errorf("%s is %.100q, want the name of a device, such as default or hw:1,0", field, device))
		}
	}
	if len(c.Command) > 0 && (c.Command[0] == "" || strings.Contains(strings.Join(c.Command, ""), "\x00")) {
		errs = append(errs, errors.New("command: name the program and its arguments"))
	}
	if c.Language != "" && !language.MatchString(c.Language) {
		errs = append(errs, fmt.Errorf("language is %.20q, want two letters of ISO 639-1, such as en", c.Language))
	}
	if c.MinSpeech >= c.MaxSpeech {
		errs = append(errs, fmt.Errorf("min_speech is %s, want less than max_speech, which is %s: nothing would be heard", c.MinSpeech, c.MaxSpeech))
	}
	if len(c.Prompt) > maxPrompt {
		errs = append(errs, fmt.Errorf("prompt has %d bytes, at most %d", len(c.Prompt), maxPrompt))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Config, c.Speech = bounds.Filled(c.Config), bounds.Filled(c.Speech)
	if c.Patience == 0 {
		c.Patience = 3 * time.Minute
	}
	return c
}

// output is how ffmpeg writes sound.
var output = append([]string{
	"-map", "0:a:0", "-vn", "-sn", "-dn", "-ac", "1", "-ar", "16000", "-c:a", "pcm_s16le", "-f", "s16le", "-flush_packets", "1",
}, ffmpeg.Output...)

// child is what reads the source.
func (c Config) child() (child ffmpeg.Child, err error) {
	switch {
	case len(c.Command) > 0:
		child = ffmpeg.Child{Args: c.Command}
	case c.ALSA != "":
		child = ffmpeg.Device("alsa", c.ALSA, nil, output)
	case c.Pulse != "":
		child = ffmpeg.Device("pulse", c.Pulse, nil, output)
	default:
		child, err = c.Source.Child(output...)
	}
	child.Stall = c.Stall
	return child, err
}
